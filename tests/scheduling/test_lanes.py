"""Paper B's policies on a GPU small enough to follow by hand: who is admitted, to which lane, and why one waits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from colane.core import ClusterState, Core
from colane.core.events import Ended, NodeRegistered, Outcome, ProfileDeclared, Submitted
from colane.core.policy import Policy
from colane.model.job import Exit, JobId, JobKind, JobSpec
from colane.model.job_spec import ShareBetween
from colane.model.placement import TurnRule
from colane.model.plan import Start
from colane.model.profile import Profile, ProfileKey, Value, ValueSource
from colane.model.reason import Reason, Why
from colane.model.sentences import sentence_of
from colane.perf.beliefs import Beliefs
from colane.perf.config import PerfConfig
from colane.scheduling.mechanisms.lanes.in_lane import ShareWhen
from colane.scheduling.registry import create, preset
from tests.core.worlds import GIB, make_node

NEEDS = {"a": (1, 7), "b": (1, 7), "d": (1, 2), "f": (1, 1), "big": (1, 9), "huge": (2, 13), "thin": (0, 1)}
"""P and E in GiB."""


def job(family: str, **more: object) -> JobSpec:
    return JobSpec(name=family, family=family, **more)  # type: ignore[arg-type]


def profile(family: str) -> Profile:
    persistent, ephemeral = (Value(float(part * GIB), ValueSource.MEASURED) for part in NEEDS[family])
    return Profile(key=ProfileKey(family, None, 1, "V100"), persistent_bytes=persistent, ephemeral_bytes=ephemeral)


def stepping(family: str, step_s: float) -> Profile:
    return Profile(key=ProfileKey(family, None, 1, "V100"), step_s=Value(step_s, ValueSource.MEASURED))


def make_core(policy: Policy, nodes: int = 1, memory_gib: int = 12) -> Core:
    exact = Beliefs(PerfConfig(persistent_factor=1.0, total_factor=1.0))
    core = Core(policy, ClusterState(exact))
    for number in range(nodes):
        node = make_node(f"n{number}", 1)
        gpus = tuple(replace(gpu, memory_bytes=memory_gib * GIB) for gpu in node.gpus)
        core.step([NodeRegistered(replace(node, gpus=gpus))], 0.0)
    core.step([ProfileDeclared(profile(family)) for family in NEEDS], 0.0)
    return core


def submit(core: Core, *specs: JobSpec, at_s: float = 1.0) -> Outcome:
    first = 1 + max(core.state.jobs, default=0)
    return core.step([Submitted(JobId(k), spec) for k, spec in enumerate(specs, first)], at_s)


def end(core: Core, number: int, at_s: float = 5.0) -> Outcome:
    return core.step([Ended(JobId(number), 1, "exited", Exit(0, None), 1.0, at_s)], at_s)


def lanes(core: Core) -> list[dict[int, tuple[int, ...]]]:
    found: list[dict[int, tuple[int, ...]]] = []
    for load in core.state.gpus.values():
        on_gpu: dict[int, tuple[int, ...]] = {}
        for booking in load.bookings:
            on_gpu[booking.lane] = (*on_gpu.get(booking.lane, ()), booking.job)
        found.append(on_gpu)
    return found


def reasons(outcome: Outcome) -> list[Reason]:
    return [one.action.reason for one in outcome.decisions if isinstance(one.action, Start)]


def test_the_worked_example_of_paper_b() -> None:
    """A(1,7), B(1,7), D(1,2), F(1,1) on 12: a lane, a turn in it, a second lane, and a wait."""
    core = make_core(preset("pack", gain_min=None))
    outcome = submit(core, job("a"), job("b"), job("d"), job("f"))
    assert lanes(core) == [{0: (1, 2), 1: (3,)}]
    assert [reason.why for reason in reasons(outcome)] == [Why.FREE_GPU, Why.JOINS_LANE, Why.NEW_LANE]
    assert sentence_of(reasons(outcome)[1]) == "takes turns with job 1 in lane 0 of n0/0, a lane with 7.52 GB of memory"
    assert sentence_of(reasons(outcome)[2]) == "n0/0 has room for lane 1, 2.15 GB of its memory, beside jobs 1, 2"
    assert sentence_of(core.why(JobId(4), 2.0)) == (
        "Resources: needs 1.07 GB of GPU memory and 1.07 GB more within a step; no lane has room for it: "
        "at most 0 bytes left, on n0/0 beside jobs 1, 2, 3"
    )


def known_core(**options: object) -> Core:
    """A GPU on which a job that keeps all of it busy runs, and may be joined by one like it or by a light one."""
    core = make_core(preset("pack", **options))
    for family, busy in (("d", 1.0), ("f", 1.0), ("thin", 0.1)):
        core.step(
            [ProfileDeclared(replace(stepping(family, 1.0), occupancy=Value(busy * 2e8, ValueSource.MEASURED)))], 0
        )
    return core


def test_a_lane_is_opened_only_where_all_together_gain() -> None:
    core = known_core()
    submit(core, job("d"), job("f"), job("thin"))
    assert lanes(core) == [{0: (1,), 1: (3,)}]
    reason = core.why(JobId(2), 2.0)
    assert reason.why is Why.NO_GAIN
    assert "all together would gain" in sentence_of(reason)
    assert reason.facts["least"] == 0.1


def test_by_the_papers_rule_memory_alone_decides() -> None:
    core = known_core(gain_min=None)
    submit(core, job("d"), job("f"), job("thin"))
    assert lanes(core) == [{0: (1,), 1: (2,), 2: (3,)}]


def test_where_nothing_is_known_of_the_co_runners_memory_decides() -> None:
    core = make_core(preset("pack"))
    submit(core, job("d"), job("f"))
    assert lanes(core) == [{0: (1,), 1: (2,)}]


def test_an_end_lets_in_any_job_that_fits_though_the_lane_stays() -> None:
    core = make_core(preset("pack", gain_min=None))
    submit(core, job("a"), job("b"), job("d"), job("f"))
    end(core, 1)
    assert lanes(core) == [{0: (2,), 1: (3, 4)}]


def test_a_lane_grows_for_a_newcomer_if_there_is_room() -> None:
    core = make_core(preset("pack", gain_min=None))
    outcome = submit(core, job("a"), job("big"))
    assert lanes(core) == [{0: (1, 2)}]
    assert [reason.why for reason in reasons(outcome)] == [Why.FREE_GPU, Why.GROWS_LANE]


def test_without_turns_every_job_has_a_lane_of_its_own_or_waits() -> None:
    core = make_core(preset("pack", gain_min=None, take_turns=False))
    submit(core, job("a"), job("b"), job("d"), job("f"))
    assert lanes(core) == [{0: (1,), 1: (3,)}]
    assert core.why(JobId(2), 2.0).why is Why.NO_LANE


def test_later_jobs_pass_one_that_does_not_fit_until_it_has_waited_too_long() -> None:
    core = make_core(preset("pack", gain_min=None, max_wait_s=100.0), memory_gib=15)
    submit(core, job("a"), job("huge"), job("d"))
    assert lanes(core) == [{0: (1,), 1: (3,)}]
    submit(core, job("thin"), at_s=200.0)
    assert lanes(core) == [{0: (1,), 1: (3,)}]
    assert sentence_of(core.why(JobId(4), 200.0)) == "Priority: waits in order behind job 2"
    end(core, 3, 300.0)
    end(core, 1, 301.0)
    assert lanes(core) == [{0: (2, 4)}]


def test_fair_and_srtf_have_one_lane_for_each_gpu() -> None:
    for name, rule in (("fair", TurnRule.FAIR), ("salus-srtf", TurnRule.SRTF)):
        core = make_core(create(name), memory_gib=16)
        submit(core, *map(job, ("a", "b", "d", "f")))
        assert lanes(core) == [{0: (1, 2, 3, 4)}]
        assert create(name).turns.rule is rule


def test_a_policy_that_says_nothing_of_turns_shares_equally() -> None:
    assert create("fifo").turns.rule is TurnRule.FAIR


def test_a_free_gpu_goes_first_unless_sharing_is_wanted_always_or_never() -> None:
    for share_when, expected in (
        (ShareWhen.QUEUE, [{0: (1, 3)}, {0: (2,)}]),
        (ShareWhen.ALWAYS, [{0: (1, 2, 3)}, {}]),
        (ShareWhen.NEVER, [{0: (1,)}, {0: (2,)}]),
    ):
        core = make_core(preset("fair", share_when=share_when), nodes=2)
        outcome = submit(core, job("d"), job("d"), job("d"))
        assert lanes(core) == expected
        assert outcome.rejected is None
    assert core.why(JobId(3), 2.0).why is Why.NO_FREE_GPU


def test_the_emptiest_gpu_is_joined_and_always_means_the_fullest() -> None:
    core = make_core(preset("fair"), nodes=2)
    submit(core, job("f"), job("f"), job("f"), job("f"))
    assert [sorted(sum(one.values(), ())) for one in lanes(core)] == [[1, 3], [2, 4]]
    core = make_core(preset("fair", share_when=ShareWhen.ALWAYS), nodes=2)
    submit(core, job("a"), job("big"), job("huge", gpu_memory_bytes=None), job("f"))
    assert lanes(core)[0][0][:2] == (1, 2)


def test_whose_jobs_may_share_is_a_setting() -> None:
    owners = [("ann", "x"), ("bob", "x"), ("bob", ""), ("cid", ""), ("dan", "y")]
    for between, expected in (
        (ShareBetween.ALL, (1, 2, 3, 4, 5)), (ShareBetween.GROUP, (1, 2)), (ShareBetween.USER, (1,)),
    ):  # fmt: skip
        core = make_core(preset("fair", share_between=between), memory_gib=16)
        submit(core, *(job("f", user=user, group=group) for user, group in owners))
        assert lanes(core) == [{0: expected}]
    assert core.why(JobId(2), 2.0).why is Why.NO_FREE_GPU
    submit(core, job("f", user="ann"))
    assert lanes(core) == [{0: (1, 6)}], "one of its own may join, past jobs of the same needs that may not"


def test_an_unknown_job_has_a_whole_gpu_until_it_is_measured() -> None:
    core = make_core(preset("pack"), nodes=1)
    submit(core, job("mystery"), job("d"), job("mystery"))
    assert lanes(core) == [{0: (1,)}]
    assert core.why(JobId(2), 2.0).why is Why.NO_FREE_GPU
    assert core.why(JobId(3), 2.0).why is Why.UNKNOWN_ALONE_FIRST


@pytest.mark.parametrize("alone", [{"share": False}, {"gpus": 2}])
def test_a_job_that_will_not_share_and_gangs_are_neither_joined_nor_join(alone: dict[str, object]) -> None:
    core = make_core(preset("pack"))
    submit(core, job("d"), job("d", **alone))
    assert lanes(core) == [{0: (1,)}]
    assert core.why(JobId(2), 2.0).why is Why.NO_FREE_GPU
    end(core, 1)
    submit(core, job("d"), at_s=6.0)
    expected = {0: (2,)} if alone.get("share") is False else {0: (3,)}
    assert lanes(core) == [expected]


def test_inference_goes_before_training_that_came_earlier() -> None:
    core = make_core(preset("pack", take_turns=False))
    submit(core, job("a"))
    submit(core, job("b"), job("b", kind=JobKind.INFERENCE, latency_s=0.1))
    end(core, 1)
    assert lanes(core) == [{0: (3,)}]


def test_no_job_takes_turns_with_a_server_that_could_not_answer_in_time() -> None:
    step_s = {"a": 0.3, "b": 0.05, "d": 0.02}
    for latency_s, expected in ((0.4, [{0: (1, 2)}]), (0.31, [{0: (1,)}])):
        core = make_core(preset("fair"), memory_gib=16)
        core.step([ProfileDeclared(stepping(family, value)) for family, value in step_s.items()], 0.0)
        submit(core, job("a"))
        submit(core, job("b", kind=JobKind.INFERENCE, latency_s=latency_s))
        assert lanes(core) == expected
    assert sentence_of(core.why(JobId(2), 2.0)) == (
        "Resources: taking turns with job 1 on n0/0, an answer could take 0.35 s, above the objective of 0.31 s"
    )


def test_a_servers_objective_keeps_long_steps_and_unknown_ones_out_of_its_lane() -> None:
    core = make_core(preset("fair"), memory_gib=16)
    core.step([ProfileDeclared(stepping("b", 0.05)), ProfileDeclared(stepping("d", 0.02))], 0.0)
    submit(core, job("b", kind=JobKind.INFERENCE, latency_s=0.1), job("a"), job("d"), job("f"))
    assert lanes(core) == [{0: (1, 3)}]
    assert core.why(JobId(2), 2.0).why is core.why(JobId(4), 2.0).why is Why.TOO_SLOW_TO_ANSWER


def test_a_lane_of_its_own_needs_no_objective() -> None:
    core = make_core(preset("pack"), memory_gib=16)
    submit(core, job("d"))
    submit(core, job("d", kind=JobKind.INFERENCE, latency_s=0.001))
    assert lanes(core) == [{0: (1,), 1: (2,)}]


def test_the_released_codes_rule_keeps_a_reserve_and_p_inside_the_lane() -> None:
    core = make_core(preset("salus-code", reserve_bytes=1 * GIB))
    submit(core, job("a"), job("b"), job("d"), job("f"))
    assert lanes(core) == [{0: (1,), 1: (3,)}]
    end(core, 1)
    submit(core, job("thin"), at_s=6.0)
    assert lanes(core) == [{1: (3, 5), 0: (2,)}], "a job without P fits into what E leaves"
    assert core.why(JobId(4), 6.0).why is Why.NO_LANE
