"""Rounds on several GPU types: the linear program, who gets which type, and when jobs move."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.core import Core
from colane.core.policy import Policy
from colane.model.hardware import Node
from colane.model.job import JobId
from colane.model.reason import Why
from colane.scheduling.mechanisms.fairness.allocation import max_min
from colane.scheduling.registry import UnknownPolicyError, create, preset
from tests.core.worlds import make_node

from .life import Coming, Life, known, step_time

LP = create("max-min:solver=lp,quantum_s=10")
FINISH = preset("finish-time-fair", lease_s=10.0)
SPEED = {"K80": 0.25, "V100": 1.0}
TWO = [make_node("a", 1, "K80"), make_node("b", 1, "V100")]
STEPS = [step_time(1.0), step_time(4.0, "K80"), step_time(1.0, gpus=2), step_time(4.0, "K80", gpus=2)]


def nothing(_core: Core, _now_s: float) -> None:
    """Look away."""


def life(policy: Policy, nodes: list[Node], jobs: list[Coming], look: Callable[[Core, float], None] = nothing) -> Life:
    """Steps take four times as long on a K80."""
    return Life(policy, nodes, jobs, STEPS, lambda _spec, kind: SPEED[kind], look).run()


def test_two_alike_jobs_share_both_types_equally() -> None:
    part = max_min(np.array([[0.4, 1.6]]), [2], [1], [1, 1])
    assert part == pytest.approx(np.array([[0.5, 0.5]]))


def test_each_gets_the_type_it_gains_more_by() -> None:
    """Gavel's point: the second is hardly faster on the second type."""
    part = max_min(np.array([[0.4, 1.6], [1.0, 1.0]]), [1, 1], [1, 1], [1, 1])
    assert part == pytest.approx(np.array([[0.0, 1.0], [1.0, 0.0]]), abs=1e-6)


@given(
    speeds=st.lists(st.tuples(*[st.sampled_from([0.0, 0.5, 1.0, 2.0])] * 2).filter(any), min_size=1, max_size=5),
    sizes=st.lists(st.integers(1, 4), min_size=5, max_size=5),
    jobs=st.lists(st.integers(1, 6), min_size=5, max_size=5),
)
def test_no_allocation_takes_more_than_there_is_or_a_type_that_cannot_be_used(
    speeds: list[tuple[float, float]], sizes: list[int], jobs: list[int]
) -> None:
    count, sizes, jobs = len(speeds), sizes[: len(speeds)], jobs[: len(speeds)]
    part = max_min(np.array(speeds), jobs, sizes, [4, 4])
    assert part.shape == (count, 2)
    assert not part[np.array(speeds) == 0].any()
    assert (part.sum(axis=1) <= 1 + 1e-6).all()
    assert (np.array(sizes) * np.array(jobs) @ part <= 4 + 1e-6).all()


@pytest.mark.parametrize("policy", [LP, FINISH], ids=["lp", "finish"])
def test_a_job_moves_to_a_faster_type_that_falls_free_while_no_job_waits(policy: Policy) -> None:
    """The second runs on the K80 for 15 s of its 40, and moves when the V100 falls free."""
    seen: list[Why] = []

    def look(core: Core, _now_s: float) -> None:
        job = core.state.jobs.get(JobId(2))
        if job is not None and job.reason is not None:
            seen.append(job.reason.why)

    jobs = [known(0, 15, preemptible=False), known(0, 40)]
    done = life(policy, TWO, jobs, look)
    assert done.spans[1] == [(0, 15)]
    assert done.nodes_used[2] == ["a", "b"]
    assert done.spans[2] == [(0, 15), (15, pytest.approx(15 + 40 - 15 / 4))]
    assert Why.MOVES_TYPE in seen


def test_alike_jobs_take_turns_on_the_faster_type() -> None:
    done = life(LP, TWO, [known(0, 100), known(0, 100)])
    ends = [spans[-1][1] for spans in done.spans.values()]
    assert max(ends) - min(ends) <= 35
    assert all(len(spans) > 3 for spans in done.spans.values())


def test_a_job_that_cannot_be_stopped_stays_where_it_is() -> None:
    done = life(LP, TWO, [known(0, 100, preemptible=False), known(0, 100, preemptible=False)])
    assert [len(spans) for spans in done.spans.values()] == [1, 1]


def test_a_gang_gets_a_node_of_its_own_type() -> None:
    """Singles on both V100s leave for it; one of them goes on on the K80."""
    nodes = [make_node("a", 1, "K80"), make_node("b", 2, "V100")]
    done = life(LP, nodes, [known(0, 100), known(0, 100), known(5, 30, gpus=2)])
    assert set(done.nodes_used[3]) == {"b"}
    assert done.spans[3][0][0] <= 20


def test_a_job_that_asks_for_a_type_gets_no_other() -> None:
    done = life(LP, TWO, [known(0, 40, gpu_type="K80"), known(0, 40)])
    assert done.nodes_used == {1: ["a"], 2: ["b"]}


def test_on_one_type_no_program_is_solved() -> None:
    plain, lp = (Life(policy, [make_node("n", 2)], [known(0, 50), known(3, 70), known(4, 20)], STEPS).run()
                 for policy in (preset("max-min", quantum_s=10.0), LP))  # fmt: skip
    assert plain.spans == lp.spans


def test_without_scipy_the_option_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str) -> ModuleSpec | None:
        return None if name == "scipy" else ModuleSpec(name, None)

    monkeypatch.setattr(sys.modules["colane.scheduling.mechanisms.fairness.allocation"].util, "find_spec", find)
    with pytest.raises(UnknownPolicyError, match=r"solver=lp needs SciPy; install it with: pip install 'colane\[lp\]'"):
        create("max-min:solver=lp")
