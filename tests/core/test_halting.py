"""Jobs whose node is cut off: where nothing was started elsewhere, they go on where they stood."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from colane.core import ClusterState, Core
from colane.core.events import (
    CancelRequested,
    Ended,
    Event,
    IdleParkRequested,
    Launched,
    NodeLost,
    NodeRegistered,
    PartHalted,
    Progressed,
    RequeueRequested,
    ResumeRequested,
    Submitted,
    SuspendRequested,
)
from colane.core.reducers.halting import ORDER_MAX_S
from colane.model.hardware import Node
from colane.model.job import Exit, Job, JobId, JobKind, JobSpec, JobState, SuspendVia
from colane.model.job_spec import SAVED, CheckpointContract
from colane.model.phases import Array
from colane.model.progress import Progress
from colane.model.reason import Why
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import create
from colane.server.store.documents import decode_job, encode_job

from .audit import audit
from .worlds import make_node

ONE, TWO, THREE = JobId(1), JobId(2), JobId(3)
SPEC = JobSpec(name="train", family="vgg11", batch_size=64, user="ann")
GANG = replace(SPEC, gpus=2, multi_node=True)
NODES = tuple(replace(make_node(f"n{i}", 1), agent_id=f"a{i}") for i in range(3))
ON_HOST = Progress(at_s=9.7, steps=9, first_step_s=1.8, last_step_s=2.0, turn="paused", on_host_bytes=99)
ALL = frozenset(node.name for node in NODES)
Prepare = Callable[[Core, JobId], None]


def run(core: Core, job: JobId, steps: int = 9) -> None:
    placement = core.state.jobs[job].placement
    assert placement is not None
    attempt = core.state.jobs[job].attempt
    core.step([Launched(job, attempt, 70, 1.5, node) for node in placement.nodes], 1.5)
    if steps:
        core.step([Progressed(job, attempt, Progress(at_s=2.0, steps=steps, first_step_s=1.8, last_step_s=2.0))], 2.0)
        core.step([], 9.0)


def suspend(core: Core, job: JobId) -> None:
    run(core, job)
    core.step([SuspendRequested(job, "ann")], 9.5)


def to_host(core: Core, job: JobId) -> None:
    run(core, job)
    core.step([SuspendRequested(job, "ann", SuspendVia.HOST)], 9.5)
    core.step(
        [
            Progressed(
                job, 1, Progress(at_s=9.7, steps=9, first_step_s=1.8, last_step_s=2.0, turn="paused", on_host_bytes=99)
            )
        ],
        9.7,
    )


def park(core: Core, job: JobId) -> None:
    run(core, job)
    core.step([IdleParkRequested(job, 600.0)], 9.5)
    core.step(
        [
            Progressed(
                job, 1, Progress(at_s=9.7, steps=9, first_step_s=1.8, last_step_s=2.0, turn="paused", on_host_bytes=99)
            )
        ],
        9.7,
    )


def save(core: Core, job: JobId) -> None:
    run(core, job)
    core.step([RequeueRequested(job, "ann")], 9.5)


KINDS: dict[str, tuple[JobSpec, Prepare]] = {
    "assigned": (SPEC, lambda _core, _job: None),
    "launching": (SPEC, lambda core, job: run(core, job, 0)),
    "plain": (SPEC, run),
    "server": (replace(SPEC, kind=JobKind.INFERENCE), run),
    "suspended": (SPEC, suspend),
    "on the host": (SPEC, to_host),
    "parked": (SPEC, park),
    "element": (SPEC, run),
    "gang": (GANG, run),
    "gang that launches": (GANG, lambda core, job: run(core, job, 0)),
    "suspended gang": (GANG, suspend),
    "gang of an array": (GANG, run),
    "asked to save": (replace(SPEC, checkpoint=CheckpointContract("USR1", 60.0, (SAVED,))), save),
    "without GPUs": (replace(SPEC, gpus=0, cores=1), run),
}


def cluster(kind: str, nodes: int) -> tuple[Core, JobId]:
    """A job of a kind runs on as many nodes as it needs; others are there only if more are asked for."""
    spec, prepare = KINDS[kind]
    core = Core(create("fifo"), ClusterState(Beliefs()))
    core.step([NodeRegistered(node) for node in NODES[: spec.gpus or 1]], 0.0)
    array = Array("0", 1, None, ((0, 0),)) if kind in {"element", "gang of an array"} else None
    core.step([Submitted(ONE, spec, array=array)], 1.0)
    job = TWO if array is not None else ONE
    prepare(core, job)
    core.step([NodeRegistered(node) for node in NODES[spec.gpus or 1 : nodes]], 10.0)
    audit(core.state)
    return core, job


def stood(job: Job) -> list[object]:
    """What it is, but for what is told of it and since when it counts as its owner's use."""
    run = job.run._replace(assigned_s=None, went_on_s=None)
    return [
        job.state, job.attempt, job.placement, run, job.totals, job.suspension, job.parking, job.on_host, job.effective,
        job.throttle, job.halted,
    ]  # fmt: skip


def cut(core: Core, lost: Sequence[Node], at_s: float = 10.2) -> None:
    """These fall silent; what of a job is on nodes that are heard stands within a second, as its agents are told."""
    for node in lost:
        core.step([NodeLost(node.name, ALL, ALL)], at_s)
        audit(core.state)
    halt_others(core, at_s + 0.1)


def halt_others(core: Core, at_s: float) -> None:
    for job in list(core.state.jobs.values()):
        for node in job.placement.nodes if job.placement is not None and job.halted is not None else ():
            core.step([PartHalted(job.id, job.attempt, node)], at_s)
            audit(core.state)


def back(core: Core, lost: Sequence[Node], at_s: float = 10.8) -> None:
    for node in lost:
        core.step([NodeRegistered(node)], at_s)
        audit(core.state)


@pytest.mark.parametrize("cut_off", ["one", "all"])
@pytest.mark.parametrize("kind", KINDS)
def test_it_goes_on_where_nothing_was_started_elsewhere(kind: str, cut_off: str) -> None:
    spec = KINDS[kind][0]
    core, job = cluster(kind, nodes=0)
    before = core.state.jobs[job]
    used = NODES[: spec.gpus or 1]
    lost = used[-1:] if cut_off == "one" else used
    cut(core, lost)
    waits = core.state.jobs[job]
    assert (waits.state, waits.placement) == (JobState.QUEUED, None)
    waits = decode_job(encode_job(waits))
    assert waits == core.state.jobs[job], "it is kept over a restart"
    back(core, lost)
    goes_on = core.state.jobs[job]
    if kind == "asked to save":
        assert (goes_on.state, goes_on.attempt, goes_on.leaving) == (JobState.RUNNING, 1, None)
        return
    assert stood(goes_on) == stood(before)
    assert [line.reason.why for line in goes_on.story[-2:]] == [Why.NODE_LOST, Why.WENT_ON]
    assert goes_on.totals.losses == 0


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in {"suspended", "on the host"}])
def test_it_ends_where_it_was_started_elsewhere(kind: str) -> None:
    core, job = cluster(kind, nodes=3)
    placement = core.state.jobs[job].placement
    assert placement is not None
    lost = [node for node in NODES if node.name == placement.nodes[-1]]
    cut(core, lost)
    elsewhere = core.state.jobs[job]
    assert (elsewhere.state, elsewhere.attempt, elsewhere.halted) == (JobState.ASSIGNED, 2, None)
    back(core, lost)
    assert stood(core.state.jobs[job]) == stood(elsewhere)


OVER: dict[str, tuple[frozenset[str], Sequence[Event]]] = {
    "no agent halts when told": (frozenset(), ()),
    "one agent does not": (frozenset({"n1", "n2"}), ()),
    "a part has ended": (ALL, [Ended(ONE, 1, "exited", Exit(1, None), 1.5, 10.3, None, "n0")]),
    "it is cancelled": (ALL, [CancelRequested(ONE, "ann")]),
    "the other node is lost and cannot halt": (ALL, [NodeLost("n0")]),
    "a part does not stand in time": (ALL, []),
}


@pytest.mark.parametrize("how", OVER)
def test_a_gang_that_cannot_stand_is_stopped_on_its_other_nodes_before_it_starts_anew(how: str) -> None:
    core, _ = cluster("gang", nodes=0)
    told, events = OVER[how]
    core.step([NodeLost("n1", ALL, told)], 10.2)
    stopping = core.state.jobs[ONE]
    assert (stopping.state, stopping.attempt) == (JobState.STOPPING, 1)
    assert (stopping.halted is None) is (told != ALL)
    core.step(list(events), 10.3)
    if how.startswith("a part does not"):
        core.step([], 10.2 + ORDER_MAX_S)
    audit(core.state)
    after = core.state.jobs[ONE]
    assert after.halted is None
    if after.state is JobState.STOPPING:
        core.step([Ended(ONE, 1, "signalled", Exit(None, 15), 1.5, 10.4, None, "n0")], 50.0)
    core.step([NodeRegistered(NODES[0]), NodeRegistered(NODES[1])], 51.0)
    assert [job.attempt for job in core.state.jobs.values()] == ([] if how == "it is cancelled" else [2])


def test_a_gang_whose_node_is_back_before_its_other_parts_stand_goes_on_once_they_do() -> None:
    core, _ = cluster("gang", nodes=0)
    before = core.state.jobs[ONE]
    core.step([NodeLost("n1", ALL, ALL)], 10.2)
    back(core, NODES[1:2], 10.3)
    assert core.state.jobs[ONE].state is JobState.STOPPING
    halt_others(core, 10.4)
    assert stood(core.state.jobs[ONE]) == stood(before)


def test_a_gang_goes_on_only_when_all_its_nodes_are_back() -> None:
    core, _ = cluster("gang", nodes=0)
    before = core.state.jobs[ONE]
    cut(core, NODES[:2])
    back(core, NODES[:1])
    assert core.state.jobs[ONE].state is JobState.QUEUED
    back(core, NODES[1:2])
    assert stood(core.state.jobs[ONE]) == stood(before)


TAKEN: dict[str, tuple[JobSpec, bool]] = {
    "a GPU": (replace(SPEC, share=False, priority=1), False),
    "cores": (replace(SPEC, gpus=0, cores=len(NODES[0].cores)), False),
    "nothing of its own": (replace(SPEC, gpus=0, cores=1), True),
}


@pytest.mark.parametrize("what", TAKEN)
def test_a_gang_is_over_once_another_job_has_what_it_stands_on(what: str) -> None:
    spec, goes_on = TAKEN[what]
    core = Core(create("fifo"), ClusterState(Beliefs()))
    core.step([NodeRegistered(node) for node in NODES[:2]], 0.0)
    core.step([Submitted(ONE, replace(GANG, cores=4))], 1.0)
    run(core, ONE)
    cut(core, NODES[1:2])
    core.step([Submitted(TWO, spec)], 10.4)
    audit(core.state)
    assert core.state.jobs[TWO].state is JobState.ASSIGNED
    assert (core.state.jobs[ONE].halted is None) is (what == "a GPU")
    back(core, NODES[1:2])
    after = core.state.jobs[ONE]
    assert after.halted is None
    assert (after.state is JobState.RUNNING) is goes_on


@pytest.mark.parametrize("steps_on", [False, True])
def test_a_gang_that_fails_before_its_next_step_after_a_cut_has_lost_a_node_and_not_failed(*, steps_on: bool) -> None:
    core, _ = cluster("gang", nodes=0)
    cut(core, NODES[1:2])
    back(core, NODES[1:2])
    if steps_on:
        core.step([Progressed(ONE, 1, Progress(at_s=11.9, steps=12, first_step_s=1.8, last_step_s=11.9), "n0")], 12.0)
    core.step([Ended(ONE, 1, "exited", Exit(1, None), 1.5, 13.0, None, "n0", was_stopped=False)], 13.0)
    core.step([Ended(ONE, 1, "signalled", Exit(None, 15), 1.5, 14.0, None, "n1", was_stopped=True)], 14.0)
    after = core.state.jobs.get(ONE)
    if steps_on:
        assert after is None, "it has failed"
    else:
        assert after is not None
        assert (after.attempt, after.totals.losses, after.totals.failures) == (2, 1, 0)
        assert any(line.reason.why is Why.NOT_GONE_ON for line in after.story)


CHANGES: dict[str, tuple[Node, bool]] = {
    "another agent": (replace(NODES[0], agent_id="other"), False),
    "another GPU": (replace(NODES[0], gpus=(replace(NODES[0].gpus[0], uuid="GPU-new"),)), False),
    "another pool": (replace(NODES[0], pool="other"), False),
    "no GPU": (replace(NODES[0], gpus=()), False),
    "other memory": (replace(NODES[0], host_memory_bytes=1), True),
}


@pytest.mark.parametrize("change", CHANGES)
def test_it_goes_on_only_on_the_same_machine(change: str) -> None:
    core, job = cluster("plain", nodes=0)
    cut(core, NODES[:1])
    node, goes_on = CHANGES[change]
    back(core, [node])
    after = core.state.jobs[job]
    assert after.halted is None
    assert (after.state is JobState.RUNNING and after.attempt == 1) is goes_on


WISHES: dict[str, tuple[str, Event, JobState | None, int]] = {
    "cancelled": ("plain", CancelRequested(ONE, "ann"), None, 0),
    "held": ("plain", SuspendRequested(ONE, "ann"), JobState.QUEUED, 1),
    "resumed": ("suspended", ResumeRequested(ONE, "ann"), JobState.RUNNING, 1),
}


@pytest.mark.parametrize("wish", WISHES)
def test_what_its_owner_says_meanwhile_holds(wish: str) -> None:
    kind, event, state, attempt = WISHES[wish]
    core, job = cluster(kind, nodes=0)
    cut(core, NODES[:1])
    core.step([event], 10.5)
    back(core, NODES[:1])
    after = core.state.jobs.get(job)
    assert (None if after is None else after.state) == state
    assert after is None or (after.attempt, after.halted) == (attempt, None)


def test_use_is_charged_once() -> None:
    core, _ = cluster("plain", nodes=0)
    cut(core, NODES[:1])
    charged = core.state.usage.of("ann", 10.2)
    back(core, NODES[:1])
    core.step([Ended(ONE, 1, "exited", Exit(0, None), 1.5, 20.8)], 20.8)
    assert charged == pytest.approx(9.2, rel=1e-3)
    assert core.state.usage.of("ann", 20.8) == pytest.approx(19.2, rel=1e-3)


def test_losses_that_cost_nothing_never_fail_a_job() -> None:
    core, job = cluster("plain", nodes=0)
    for at_s in range(20, 20 + 20 * (core.config.node_losses_max + 2), 20):
        cut(core, NODES[:1], float(at_s))
        back(core, NODES[:1], at_s + 10.0)
    assert (core.state.jobs[job].state, core.state.jobs[job].attempt) == (JobState.RUNNING, 1)
