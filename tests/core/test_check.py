"""A good plan, broken in each way: the judge names each flaw."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from colane.core import ClusterState, Core
from colane.core.check import check
from colane.core.events import Launched, NodeRegistered, ProfileDeclared, Submitted
from colane.model.hardware import GpuId
from colane.model.job import Attempt, JobId, JobSpec, JobState, OnHost, Parking, SuspendVia, Suspension
from colane.model.job_spec import CheckpointContract
from colane.model.placement import Placement, Slot
from colane.model.plan import NOTHING, Action, Move, Park, Plan, Remark, Resize, SetCores, Start, Stop
from colane.model.reason import Reason, Why
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import create

from .worlds import GIB, make_node, make_profile

ROOT = Path(__file__).parents[2]
REASON = Reason(Why.FREE_GPU, {"gpu": "n0/0"})
PLAIN = JobSpec(name="a", family="vgg11", batch_size=64)


@pytest.fixture
def state() -> ClusterState:
    """Two nodes; job 1 runs on n0/0, job 2 is protected on n0/1, the rest cannot start (needs 9 GPUs)."""
    core = Core(create("fifo"), ClusterState(Beliefs()))
    core.step([NodeRegistered(make_node("n0", 4)), NodeRegistered(make_node("n1", 2, pool="other"))], 0.0)
    core.step([ProfileDeclared(make_profile("vgg11", "V100", 1e6, 6 * GIB))], 0.0)
    core.step(
        [Submitted(JobId(1), replace(PLAIN, preemptible=True)), Submitted(JobId(2), replace(PLAIN, share=False))], 1.0
    )
    core.step([Launched(JobId(1), 1, 7, 1.0)], 2.0)
    core.step([], 100.0)
    waiting = replace(PLAIN, pool="nowhere")
    core.step([Submitted(JobId(3), waiting), Submitted(JobId(4), waiting)], 101.0)
    for job in (JobId(3), JobId(4)):
        core.state.put_job(replace(core.state.jobs[job], spec=PLAIN))
    return core.state


def start(job: int, *gpus: tuple[str, int], lane: int = 0, cores: tuple[int, ...] = ()) -> Start:
    return Start(JobId(job), Placement(tuple(Slot(GpuId(*gpu), lane) for gpu in gpus), cores), REASON)


def flaws(state: ClusterState, *actions: Action, holds: Mapping[JobId, tuple[GpuId, ...]] = NOTHING) -> list[str]:
    return [flaw.code for flaw in check(state, Plan(state.version, actions, holds=holds))]


def respec(state: ClusterState, job: int, **changes: object) -> None:
    old = state.jobs[JobId(job)]
    state._leave_queue(old, None)
    fresh = replace(old, spec=replace(old.spec, **changes))  # type: ignore[arg-type]
    del state.jobs[old.id]
    state.put_job(fresh)


def test_a_good_plan_has_no_flaw(state: ClusterState) -> None:
    assert flaws(state, start(3, ("n0", 2)), start(4, ("n0", 2), lane=1), Stop(JobId(1), REASON)) == []


def test_two_actions_for_one_job(state: ClusterState) -> None:
    assert flaws(state, start(3, ("n0", 2)), start(3, ("n0", 3))) == ["decided-twice"]


def test_an_unknown_job(state: ClusterState) -> None:
    assert flaws(state, start(99, ("n0", 2))) == ["unknown-job"]


def test_a_job_that_runs_already(state: ClusterState) -> None:
    assert flaws(state, start(1, ("n0", 2))) == ["not-waiting"]


def test_an_unknown_gpu(state: ClusterState) -> None:
    assert flaws(state, start(3, ("n0", 9))) == ["no-such-gpu"]


def test_a_gang_that_is_not_whole(state: ClusterState) -> None:
    respec(state, 3, gpus=2)
    assert flaws(state, start(3, ("n0", 2))) == ["gang-not-whole"]
    assert flaws(state, start(3, ("n0", 2), ("n0", 2))) == ["gpu-twice-in-gang"]


def test_a_gang_over_two_nodes_and_pools(state: ClusterState) -> None:
    respec(state, 3, gpus=2)
    assert flaws(state, start(3, ("n0", 2), ("n1", 0))) == ["gang-on-many-nodes", "wrong-pool"]


def test_the_wrong_gpu_type(state: ClusterState) -> None:
    respec(state, 3, gpu_type="A100")
    assert flaws(state, start(3, ("n0", 2))) == ["wrong-gpu-type"]


def test_cores_that_were_not_asked_for_or_are_taken(state: ClusterState) -> None:
    assert flaws(state, start(3, ("n0", 2), cores=(0,))) == ["wrong-cores"]
    respec(state, 3, cores=1)
    respec(state, 4, cores=1)
    both = start(3, ("n0", 2), cores=(5,)), start(4, ("n0", 3), cores=(5,))
    assert flaws(state, *both) == ["core-booked-twice"]


def test_more_host_memory_than_the_node_has(state: ClusterState) -> None:
    respec(state, 3, host_memory_bytes=40 * GIB)
    respec(state, 4, host_memory_bytes=40 * GIB)
    assert flaws(state, start(3, ("n0", 2)), start(4, ("n0", 3))) == ["host-memory-overbooked"]


def test_more_gpu_memory_than_the_gpu_has(state: ClusterState) -> None:
    respec(state, 3, gpu_memory_bytes=12 * GIB)
    both = start(3, ("n0", 2)), start(4, ("n0", 2), lane=1)
    assert flaws(state, *both) == ["unsafe-memory"]
    respec(state, 4, gpu_memory_bytes=20 * GIB)
    assert flaws(state, start(4, ("n0", 2))) == ["unsafe-memory"]
    assert flaws(state, start(4, ("n0", 2)), start(3, ("n0", 3))) == ["unsafe-memory"]
    assert flaws(state, start(3, ("n0", 3)), start(4, ("n0", 2))) == ["unsafe-memory"]


def test_co_runners_for_a_job_that_wants_none(state: ClusterState) -> None:
    assert flaws(state, start(3, ("n0", 1), lane=1)) == ["may-not-share"]


def test_co_runners_for_a_job_of_unknown_memory(state: ClusterState) -> None:
    respec(state, 3, family="unheard-of")
    assert flaws(state, start(3, ("n0", 0), lane=1)) == ["may-not-share"]


def test_stopping_a_job_that_is_protected(state: ClusterState) -> None:
    assert flaws(state, Stop(JobId(2), REASON)) == ["protected"]


def test_stopping_a_job_that_cannot_save_its_state(state: ClusterState) -> None:
    respec(state, 1, preemptible=False)
    assert flaws(state, Stop(JobId(1), REASON)) == ["not-preemptible"]


def test_stopping_a_job_for_good_that_was_never_stopped_for_others(state: ClusterState) -> None:
    assert flaws(state, Stop(JobId(1), REASON, final=True)) == ["not-to-end"]


def test_a_job_that_would_save_its_state_is_asked_to_where_its_gpu_can_hold_it(state: ClusterState) -> None:
    assert flaws(state, Stop(JobId(1), REASON, save=False)) == []  # it has not said how it saves
    respec(state, 1, checkpoint=CheckpointContract("SIGUSR1", 9.0))
    assert flaws(state, Stop(JobId(1), REASON)) == []
    assert flaws(state, Stop(JobId(1), REASON, save=False)) == ["not-saved"]


def test_only_a_job_with_co_runners_is_isolated(state: ClusterState) -> None:
    assert flaws(state, Stop(JobId(1), REASON, isolate=True)) == ["isolates-a-job-alone"]
    respec(state, 1, gpus=1)
    assert flaws(state, Park(JobId(1), REASON, isolate=True)) == ["cannot-park", "isolates-a-job-alone"]


def test_a_stopped_job_holds_its_gpus_until_its_process_is_gone(state: ClusterState) -> None:
    respec(state, 3, share=False)
    assert flaws(state, Stop(JobId(1), REASON), start(3, ("n0", 0), lane=1)) == ["may-not-share"]


# -- holds


def test_what_is_held_for_one_is_not_given_to_another(state: ClusterState) -> None:
    held = {JobId(3): (GpuId("n0", 2), GpuId("n0", 3))}
    assert flaws(state, start(3, ("n0", 2)), holds=held) == []
    assert flaws(state, start(4, ("n0", 2)), holds=held) == ["held-for-another"]


def test_holds_for_no_job_of_nothing_and_twice(state: ClusterState) -> None:
    assert flaws(state, holds={JobId(1): (GpuId("n0", 2),), JobId(99): ()}) == [
        "holds-without-waiter",
        "holds-without-waiter",
    ]
    assert flaws(state, holds={JobId(3): (GpuId("n0", 9),)}) == ["no-such-gpu"]
    assert flaws(state, holds={JobId(3): (GpuId("n0", 2),), JobId(4): (GpuId("n0", 2),)}) == ["held-twice"]


# -- parking and moving


def change(cluster: ClusterState, job: int, **changes: object) -> None:
    """Give a placed job other fields, with all it books."""
    old = cluster.jobs[JobId(job)]
    cluster.release(old)
    cluster.put_job(replace(old, **changes))  # type: ignore[arg-type]


def move(job: int, number: int, lane: int = 0, cores: tuple[int, ...] = ()) -> Move:
    return Move(JobId(job), Placement((Slot(GpuId("n0", number), lane),), cores), REASON)


def test_which_jobs_may_be_parked(state: ClusterState) -> None:
    assert flaws(state, Park(JobId(1), REASON)) == ["cannot-park"]  # it was never seen to step
    change(state, 1, run=Attempt(first_step_s=3.0))
    assert flaws(state, Park(JobId(1), REASON)) == []
    assert flaws(state, Park(JobId(2), REASON)) == ["cannot-park"]  # protected
    assert flaws(state, Park(JobId(3), REASON)) == ["cannot-park"]  # waits
    change(state, 1, run=Attempt(first_step_s=3.0, host_refusal="it has two processes"))
    assert flaws(state, Park(JobId(1), REASON)) == ["cannot-park"]


def test_host_memory_for_all_that_are_parked_by_one_plan(state: ClusterState) -> None:
    change(state, 1, run=Attempt(first_step_s=3.0))
    respec(state, 3, host_memory_bytes=62 * GIB)
    assert flaws(state, start(3, ("n0", 2)), Park(JobId(1), REASON)) == ["host-memory-overbooked"]


def parked(state: ClusterState, home: str) -> None:
    change(state, 1, state=JobState.PAUSED, parking=Parking(home=home), on_host=OnHost(GIB))


def test_a_parked_job_goes_on_at_home_alone(state: ClusterState) -> None:
    parked(state, "n0/0")
    assert flaws(state, move(1, 0)) == []
    assert flaws(state, move(1, 2)) == ["not-at-home"]
    assert flaws(state, Move(JobId(1), Placement((Slot(GpuId("n1", 0), 0),)), REASON)) == ["not-at-home"]
    assert flaws(state, start(1, ("n0", 0))) == ["not-waiting"]
    assert flaws(state, start(3, ("n0", 0)), move(1, 0, lane=1)) == []
    parked(state, "n0")
    assert flaws(state, move(1, 2)) == []
    assert flaws(state, move(1, 1, lane=1)) == ["may-not-share"]


def test_a_parked_job_that_is_suspended_stays(state: ClusterState) -> None:
    parked(state, "n0/0")
    change(state, 1, suspension=Suspension(SuspendVia.LANE, "ann"))
    assert flaws(state, move(1, 0)) == ["not-movable"]


def test_a_job_comes_back_with_the_cores_it_asks_for(state: ClusterState) -> None:
    parked(state, "n0/0")
    respec(state, 1, cores=2)
    assert flaws(state, move(1, 0)) == ["wrong-cores"]
    assert flaws(state, move(1, 0, cores=(4, 5))) == []
    respec(state, 3, cores=1)
    assert flaws(state, start(3, ("n0", 2), cores=(5,)), move(1, 0, cores=(4, 5))) == ["core-booked-twice"]


def test_a_lane_is_changed_on_the_same_gpu_among_jobs_that_step(state: ClusterState) -> None:
    change(state, 1, run=Attempt(first_step_s=3.0))
    assert flaws(state, move(1, 0, lane=1)) == []
    assert flaws(state, move(1, 0)) == ["not-movable"]
    assert flaws(state, move(1, 2)) == ["not-movable"]
    assert flaws(state, start(3, ("n0", 0), lane=1), move(1, 0, lane=1)) == ["no-turns"]


# -- size and cores


def resize(job: int, *gpus: int, lane: int = 0) -> Resize:
    return Resize(JobId(job), Placement(tuple(Slot(GpuId("n0", gpu), lane) for gpu in gpus)), REASON)


def test_a_job_is_resized_to_another_place_that_is_free(state: ClusterState) -> None:
    assert flaws(state, resize(1, 2)) == []
    assert flaws(state, resize(1, 0)) == ["not-resizable"]
    assert flaws(state, resize(1, 0, lane=1)) == ["not-resizable"]
    assert flaws(state, resize(1, 2, 3)) == ["gang-not-whole"]
    assert flaws(state, resize(1, 1, lane=1)) == ["may-not-share"]
    assert flaws(state, resize(2, 2)) == ["protected", "not-resizable"]
    respec(state, 1, preemptible=False)
    assert flaws(state, resize(1, 2)) == ["not-preemptible"]


def cores(job: int, *numbers: int, elsewhere: tuple[tuple[str, tuple[int, ...]], ...] = ()) -> SetCores:
    return SetCores(JobId(job), numbers, elsewhere, REASON)


def test_cores_change_within_the_node_and_none_twice(state: ClusterState) -> None:
    assert flaws(state, cores(1, 0, 1)) == []
    assert flaws(state, cores(1, 0, 0)) == ["core-booked-twice"]
    assert flaws(state, cores(1, 99)) == ["wrong-cores"]
    assert flaws(state, cores(1, 0, elsewhere=(("n1", (1,)),))) == ["wrong-cores"]
    assert flaws(state, cores(2, 0)) == ["protected"]
    respec(state, 3, cores=1)
    assert flaws(state, cores(1, 5), start(3, ("n0", 2), cores=(5,))) == ["core-booked-twice"]


def test_cores_given_up_may_be_taken_by_another_in_the_same_plan(state: ClusterState) -> None:
    old = state.jobs[JobId(1)].placement
    assert old is not None
    change(state, 1, placement=replace(old, cores=(5, 6)))
    respec(state, 3, cores=1)
    assert flaws(state, start(3, ("n0", 2), cores=(5,))) == ["core-booked-twice"]
    assert flaws(state, cores(1, 6), start(3, ("n0", 2), cores=(5,))) == []


def test_nothing_is_remarked_of_a_job_that_waits(state: ClusterState) -> None:
    assert flaws(state, Remark(JobId(1), REASON)) == []
    assert flaws(state, Remark(JobId(3), REASON)) == ["not-running"]


VERB = re.compile(
    r"\b(is|are|has|had|was|does|would|will|may|can|cannot|must|lacks|takes|asks|exceeds|wants|shares|comes"
    r"|do not|need|reach|based)\b"
)


def test_every_flaw_is_a_sentence() -> None:
    """Of all that the source can say; what it puts into them is left out."""
    said = []
    for path in (ROOT / "src/colane/core").rglob("*.py"):
        tree = ast.parse(path.read_text())
        texts = {
            target.id: node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.JoinedStr)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Flaw":
                text = node.args[1]
                said.append(ast.unparse(texts.get(text.id, text) if isinstance(text, ast.Name) else text))
    assert len(said) > 50
    for sentence in said:
        words = re.sub(r"\{[^{}]*\}", "X", sentence)
        assert len(words.split()) >= 3, sentence
        assert VERB.search(words), sentence
        assert not re.search(r"_|[a-z][A-Z]", words), sentence
