"""Memory bandwidth of nodes in virtual time: what each job uses, what that slows, and what agents would report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from colane.core import ClusterState
from colane.core.events import BandwidthObserved
from colane.cpu.contention import ContentionConfig
from colane.lab.simulate.agenda import Agenda
from colane.lab.simulate.meter import Meter
from colane.lab.simulate.process import GpuUse, Process
from colane.lab.simulate.world import BandwidthTruth, Running
from colane.model.job import JobId
from colane.model.progress import BY_WORLD, BandwidthSample

Due = Callable[[str, int], None]  # what is called with a node when an interval of it is over


@dataclass(slots=True, eq=False)
class NodeBandwidth:
    """Keeps what is used of each node's bandwidth. A job is slowed as on the node of its where most is used."""

    _truth: BandwidthTruth  # says how much
    _state: ClusterState  # knows the nodes and the jobs held back
    _config: ContentionConfig | None  # how often agents measure
    _agenda: Agenda  # where the ends of intervals stand
    _used: dict[str, dict[JobId, float]] = field(default_factory=dict)
    _changed: dict[str, None] = field(default_factory=dict)
    _watched: set[str] = field(default_factory=set)

    def enter(self, process: Process) -> None:
        """A process is on its node, or has other cores there."""
        node = process.running.host
        used = self._truth.used_ratio(process.running) if node else 0.0
        if used != self._used.get(node, {}).get(process.id, 0.0):
            self._used.setdefault(node, {})[process.id] = used
            self._changed[node] = None

    def leave(self, process: Process) -> None:
        """A process is gone."""
        node = process.running.host
        if self._used.get(node, {}).pop(process.id, 0.0):
            self._changed[node] = None

    def slowdown(self, running: Running) -> float:
        """Of a job with GPUs, as it feels the others; 1 where nothing is used."""
        if not self._used:
            return 1.0
        return max([self._truth.slowdown(running.job, self._used_ratio(node)) for node in running.nodes], default=1.0)

    def touched(self, meter: Meter, now_s: float, due: Due) -> dict[GpuUse, None]:
        """GPUs of the nodes where use has changed since this was asked last; agents look at these nodes from now on."""
        if not self._changed:
            return {}
        nodes = [node for node in self._changed if node in self._state.nodes]
        self._changed.clear()
        for node in nodes:
            self._watch(node, now_s, due)
        return {meter.use(gpu): None for node in nodes for gpu in self._state.nodes[node].ids.values()}

    def is_there(self, node: str) -> bool:
        """Whether a node is still there; nothing is measured on one that is lost."""
        if node not in self._state.nodes:
            self._watched.discard(node)
        return node in self._state.nodes

    def observed(self, node: str, now_s: float, due: Due) -> BandwidthObserved:
        """What an agent says at the end of an interval."""
        self._watched.discard(node)
        self._watch(node, now_s, due)
        by_job = tuple([(int(job), used) for job, used in self._used.get(node, {}).items()])
        return BandwidthObserved(node, BandwidthSample(now_s, self._used_ratio(node), by_job, BY_WORLD))

    def trains(self, node: str, processes: Mapping[JobId, Process]) -> list[Process]:
        """Processes on GPUs of a node."""
        jobs = self._state.nodes[node].jobs
        return [processes[job] for job in jobs if job in processes and processes[job].uses]

    def _watch(self, node: str, now_s: float, due: Due) -> None:
        """Measure in an interval, if a job may have to be held back or let go then: all else would change nothing."""
        is_there = node in self._state.nodes
        if self._config is not None and is_there and node not in self._watched and self._may_change(node):
            self._watched.add(node)
            self._agenda.at(now_s + self._config.interval_s, due, node)

    def _may_change(self, node: str) -> bool:
        jobs = self._state.jobs
        is_short = self._config is not None and self._used_ratio(node) >= self._config.threshold_ratio
        return is_short or any(jobs[job].throttle is not None for job in self._state.nodes[node].jobs)

    def _used_ratio(self, node: str) -> float:
        """Part of a node's bandwidth in use: no more than there is."""
        return min(1.0, sum(self._used.get(node, {}).values()))
