"""The world of paper C: the execution times of the authors' simulator, and its ticks (SC 2017, section 5.3).

A job takes its measured time alone, on one socket or across both; once a neighbour runs on one of its sockets, the
time measured next to the worst of them, if that is longer. A time never falls again. Time goes in ticks: arrivals are
rounded up to one, an end is seen at the first tick that reaches it, and what it frees is given away a tick later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import nan
from typing import NamedTuple

from colane.core import ClusterState, Core
from colane.core.config import CoreConfig
from colane.core.events import Ended, Event, Launched, NodeRegistered, Outcome, Submitted
from colane.core.policy import Policy
from colane.lab.traces import clusters
from colane.lab.traces.clusters import Cluster
from colane.lab.traces.tables.topology import TopologyJob, TopologyTable
from colane.lab.traces.workload import TraceJob
from colane.model.hardware import GpuId, Node
from colane.model.job import Exit, Job, JobId, JobSpec, JobState
from colane.model.profile import ProfileKey
from colane.perf.beliefs import Beliefs
from colane.perf.neighbours import Beside, NeighbourBeliefs
from colane.perf.topology import comm_of, excess, shape_of_node
from colane.perf.utility import NEUTRAL, Measure, harm_beside, job_utility
from colane.scheduling.registry import create, preset

NAME = "the authors' simulator: SC 2017 solo and collocated times, the worst neighbour of a socket, times never fall"
TICK_S = 1.1
FCFS = create("fcfs", as_published=True)
BF = create("best-fit", as_published=True)
TOPO_AWARE = preset("topo-aware", weights=NEUTRAL, max_wait_s=None)
TOPO_AWARE_P = preset("topo-aware", name="topo-aware-p", weights=NEUTRAL, postpones=True, max_wait_s=None)
"""The paper's policies: all three terms weigh the same, and no job is served out of turn for having waited long."""

POLICIES: tuple[Policy, ...] = (FCFS, BF, TOPO_AWARE, TOPO_AWARE_P)


def minskys(machines: int) -> Cluster:
    """Machines as the paper's."""
    node: Node = clusters.load("minsky").nodes[0]
    digits = len(str(machines - 1))
    nodes = tuple(replace(node, name=f"minsky-{number:0{digits}}") for number in range(machines))
    return Cluster(f"minsky x {machines}", nodes)


def kind_of(spec: JobSpec) -> TopologyJob:
    """A job's key in the measured table."""
    return TopologyJob(spec.family, spec.batch_size or 0, spec.gpus)


def neighbour_beliefs(table: TopologyTable, gpu_type: str) -> NeighbourBeliefs:
    """What the authors' profile says of neighbours: time next to another / time alone on one socket."""
    measured: dict[Beside, float] = {}
    for (job, other), beside_s in table.collocated_s.items():
        alone_s = table.solo(job) or table.solo(job, one_socket=False)
        if alone_s is not None:
            measured[Beside(_key(job, gpu_type), _key(other, gpu_type))] = beside_s / alone_s
    return NeighbourBeliefs(measured)


def _key(job: TopologyJob, gpu_type: str) -> ProfileKey:
    return ProfileKey(job.model, job.batch_size, job.gpus, gpu_type)


@dataclass(slots=True, eq=False)
class _Process:
    job: Job
    kind: TopologyJob
    sockets: frozenset[tuple[str, int]]
    start_s: float
    needs_s: float
    utilities: dict[Measure, float] = field(default_factory=lambda: dict.fromkeys(Measure, 1.0))


class TickedJob(NamedTuple):
    """What became of a job; seconds."""

    job: JobId
    spec: JobSpec
    submit_s: float  # its arrival, rounded up to a tick
    start_s: float
    end_s: float
    gpus: tuple[GpuId, ...]
    ideal_s: float  # its time alone on one socket
    utilities: Mapping[Measure, float]  # least utility it had while it ran, by how neighbours count

    @property
    def exec_s(self) -> float:
        """From start to end."""
        return self.end_s - self.start_s

    @property
    def wait_s(self) -> float:
        """From submission to start."""
        return self.start_s - self.submit_s


@dataclass(slots=True)
class TickedRun:
    """Runs jobs to their ends, tick by tick, through the core.

    A policy starts from the beliefs given; None: from the neighbours of the table.
    """

    policy: Policy
    nodes: Sequence[Node]
    jobs: Sequence[TraceJob]
    table: TopologyTable
    tick_s: float = TICK_S
    beliefs: Beliefs | None = None
    served: list[TickedJob] = field(default_factory=list)  # jobs in order of their end
    core: Core = field(init=False)
    _running: dict[JobId, _Process] = field(default_factory=dict)
    _submitted: dict[JobId, float] = field(default_factory=dict)
    _now_s: float = 0.0

    def __post_init__(self) -> None:
        """Register the nodes."""
        beliefs = self.beliefs or Beliefs(neighbours=neighbour_beliefs(self.table, self.nodes[0].gpus[0].type))
        self.core = Core(self.policy, ClusterState(beliefs), CoreConfig(opaque_after_s=0.0, guard=False))
        self._step([NodeRegistered(node) for node in self.nodes])

    def run(self) -> list[TickedJob]:
        """Run to the end; jobs by number."""
        waiting = list(reversed(self.jobs))
        ended: list[Event] = []
        while waiting or self._running or ended or self.core.state.jobs:
            self._now_s += self.tick_s
            ended = self._tick([*ended, *self._arrivals(waiting)])
        return sorted(self.served, key=lambda row: row.job)

    def _arrivals(self, waiting: list[TraceJob]) -> Iterable[Event]:
        while waiting and waiting[-1].submit_s <= self._now_s:
            job = waiting.pop()
            self._submitted[job.id] = self._now_s
            yield Submitted(job.id, job.spec)

    def _tick(self, events: list[Event]) -> list[Event]:
        """Decide, let neighbours slow each other, see which jobs ended; the core learns of that at the next tick."""
        self._step(events)
        for process in self._running.values():
            process.needs_s = max([process.needs_s, *self._beside_s(process)])
            self._note_utility(process)
        over = [process for process in self._running.values() if self._now_s - process.start_s >= process.needs_s]
        return [self._end(process) for process in over]

    def _step(self, events: list[Event]) -> None:
        while events:
            outcome = self.core.step(events, self._now_s, whole=True)
            events = list(self._react(outcome))

    def _react(self, outcome: Outcome) -> Iterable[Event]:
        for job in outcome.jobs:
            if job.state is JobState.ASSIGNED and job.id not in self._running:
                self._running[job.id] = self._start(job)
                yield Launched(job.id, job.attempt, 0, self._now_s)

    def _start(self, job: Job) -> _Process:
        gpus = job.placement.gpus if job.placement is not None else ()
        loads = self.core.state.gpus
        sockets = frozenset((gpu.node, loads[gpu].gpu.socket) for gpu in gpus)
        kind = kind_of(job.spec)
        one_socket = len(sockets) == 1
        alone_s = self.table.solo(kind, one_socket=one_socket) or self.table.solo(kind, one_socket=not one_socket)
        return _Process(job, kind, sockets, self._now_s, nan if alone_s is None else alone_s)

    def _note_utility(self, process: _Process) -> None:
        """Keep the least utility it has had."""
        placement, spec = process.job.placement, process.job.spec
        if placement is None:
            return
        node = self.core.state.nodes[placement.node].node
        comm = excess(shape_of_node(node), tuple(sorted(gpu.number for gpu in placement.gpus)), comm_of(spec))
        beliefs, gpu_type = self.core.state.beliefs, node.gpus[0].type
        near = [
            other.kind for other in self._running.values() if other is not process and other.sockets & process.sockets
        ]
        mine = _key(process.kind, gpu_type)
        for measure in Measure:
            suffered = max((harm_beside(beliefs, mine, _key(kind, gpu_type), measure) for kind in near), default=0.0)
            process.utilities[measure] = min(process.utilities[measure], job_utility(comm, suffered))

    def _beside_s(self, process: _Process) -> Iterable[float]:
        for other in self._running.values():
            if other is not process and other.sockets & process.sockets:
                beside_s = self.table.next_to(process.kind, other.kind)
                if beside_s is not None:
                    yield beside_s

    def _end(self, process: _Process) -> Event:
        job = process.job
        del self._running[job.id]
        gpus = job.placement.gpus if job.placement is not None else ()
        ideal_s = self.table.solo(process.kind) or nan
        submit_s = self._submitted[job.id]
        self.served.append(
            TickedJob(job.id, job.spec, submit_s, process.start_s, self._now_s, gpus, ideal_s, process.utilities)
        )
        return Ended(job.id, job.attempt, "exited", Exit(0, None), process.start_s, self._now_s)
