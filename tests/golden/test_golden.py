"""Every registered policy decides as it did; and the workloads are such that each shows what it is for."""

from __future__ import annotations

from collections import Counter

import pytest

from colane.model.reason import Why
from colane.scheduling.registry import NAMES, create

from . import large
from .draws import APART, compare, drawn
from .frozen import LOGS, Frozen, differences, every
from .log import codes
from .workloads import SIMULATED

MECHANISMS = {
    "easy-backfill": (Why.RESERVED, Why.BACKFILL, Why.WOULD_DELAY),
    "best-fit": (Why.BEST_FIT,),
    "colocate": (Why.SHARES, Why.NOT_WORTH_SHARING, Why.UNKNOWN_ALONE_FIRST, Why.BEHIND),
    "srtf": (Why.PREEMPTED, Why.PREEMPTING),
    "srsf": (Why.PREEMPTED, Why.PREEMPTING),
    "las": (Why.PREEMPTED, Why.PREEMPTING),
    "drf": (Why.LEAST_SHARE,),
    "max-min": (Why.PREEMPTED, Why.PREEMPTING),
    "max-min-packed": (Why.PREEMPTED, Why.SHARES),
    "finish-time-fair": (Why.PREEMPTED, Why.PREEMPTING),
    "topo-aware": (Why.BEST_UTILITY,),
    "topo-aware-p": (Why.BEST_UTILITY, Why.POSTPONED),
    "topo-aware-share": (Why.BEST_UTILITY, Why.SHARES),
    "pack": (Why.NEW_LANE, Why.JOINS_LANE, Why.GROWS_LANE, Why.NO_LANE, Why.NO_GAIN),
    "fair": (Why.JOINS_LANE, Why.GROWS_LANE, Why.TOO_SLOW_TO_ANSWER),
    "salus-srtf": (Why.JOINS_LANE, Why.GROWS_LANE, Why.PREEMPTING),
    "salus-code": (Why.NEW_LANE, Why.NO_LANE),
}
"""What a policy is for, by the reasons it must give somewhere."""

LIFE = (
    Why.NO_FREE_GANG, Why.NODE_LOST, Why.GPU_LOST, Why.SUSPENDED, Why.HELD, Why.RESUMED, Why.MOVED_TO_HOST,
    Why.RETURNING, Why.RETURNED, Why.CANCELLED, Why.RETRY, Why.TIME_LIMIT, Why.MEASURED_TOGETHER,
)  # fmt: skip
"""What happens to jobs under any policy."""


@pytest.mark.parametrize("frozen", list(every()), ids=lambda one: f"{one.workload}-{one.policy}")
def test_decides_as_it_did(frozen: Frozen) -> None:
    found = differences(frozen.path.read_text(), frozen.decide())
    assert not found, (
        f"{frozen.policy} decides otherwise on {frozen.workload}; if that is meant, say why in the commit and run "
        f"`python -m tests.golden.renew {frozen.policy}`:\n{found}"
    )


@pytest.mark.parametrize("policy", large.DECISIONS)
def test_decides_as_it_did_on_a_large_cluster(policy: str) -> None:
    lines = large.decide(policy)
    assert [line for line in lines if "refused-plan" in line] == []
    found = differences((large.LOGS / f"{policy}.txt").read_text(), large.hashed(lines))
    assert not found, (
        f"{policy} decides otherwise on the large cluster; `python -m tests.golden.large {policy} NUMBER`, here and at "
        f"the commit before, prints the 100 decisions of the first hash that differs:\n{found}"
    )


def test_nothing_is_frozen_for_policies_there_are_not() -> None:
    assert {path.stem for path in LOGS.glob("*/*")} == set(NAMES)


@pytest.mark.parametrize("policy", MECHANISMS)
def test_the_workloads_show_what_a_policy_is_for(policy: str) -> None:
    given: Counter[str] = Counter()
    for one in every():
        if one.policy == policy:
            given += codes(one.path.read_text())
    assert [why for why in MECHANISMS[policy] if not given[why]] == []


def test_the_workloads_show_a_jobs_life() -> None:
    given: Counter[str] = Counter()
    for one in every():
        given += codes(one.path.read_text())
    assert [why for why in LIFE if not given[why]] == []


def test_every_job_ends_and_no_plan_is_refused() -> None:
    for one in every():
        text = one.path.read_text()
        assert "refused-plan" not in text, one
        assert not [line for line in text.splitlines() if line.startswith("left")], one


def test_draws_of_a_world_differ() -> None:
    first, other = (SIMULATED["gangs"](create("fifo"), more).workload.jobs for more in (0, APART))
    assert first != other
    assert drawn("gangs", "fifo", 0) != drawn("gangs", "fifo", 1)


def test_policies_are_compared_with_the_first_one_in_the_same_draw() -> None:
    first, second = compare("gangs", 2, ["fifo", "sjf"])
    assert first == "gangs fifo: mean jct 1.0000 +- 0.0000, last end 1.0000 +- 0.0000, 0.0 moves"
    assert second.startswith("gangs sjf: mean jct 0.")
