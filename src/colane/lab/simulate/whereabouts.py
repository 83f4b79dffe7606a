"""What is where in virtual time: the living processes by job, GPU, lane and node."""

from __future__ import annotations

from collections.abc import Iterable

from colane.lab.simulate.bandwidth import NodeBandwidth
from colane.lab.simulate.lanes import LaneTurns
from colane.lab.simulate.meter import Meter
from colane.lab.simulate.process import GpuUse, Process
from colane.lab.simulate.shared_cores import SharedCores
from colane.lab.simulate.world import Scope, World
from colane.model.job import JobId


class Whereabouts:
    """Processes that are on their GPUs."""

    def __init__(
        self, world: World, meter: Meter, lanes: LaneTurns, bandwidth: NodeBandwidth | None = None,
        cores: SharedCores | None = None,
    ) -> None:  # fmt: skip
        self.world = world  # says how far neighbours are felt
        self.meter = meter
        self.lanes = lanes
        self.bandwidth = bandwidth  # None where no process uses it up
        self._cores = cores  # None where sharing them changes no speed
        self.processes: dict[JobId, Process] = {}  # by job, in order of start
        self._counts_nodes = world.scope is Scope.NODE
        self._on_node: dict[str, dict[JobId, Process]] = {}

    def has(self, process: Process) -> bool:
        """Whether this very attempt still lives on its GPUs."""
        return self.processes.get(process.id) is process

    def enter(self, process: Process) -> None:
        """A process is on its GPUs."""
        self.processes[process.id] = process
        if self.bandwidth is not None:
            self.bandwidth.enter(process)
        if self._cores is not None:
            self._cores.enter(process)
        uses = process.uses = tuple([self.meter.use(gpu) for gpu in process.running.gpus])
        for use in uses:
            use.processes[process.id] = process
        for use in uses:
            self.lanes.enter(process, use.processes)
        for node in process.running.nodes if self._counts_nodes else ():
            self._on_node.setdefault(node, {})[process.id] = process

    def leave(self, process: Process) -> None:
        """A process is off its GPUs."""
        del self.processes[process.id]
        if self.bandwidth is not None:
            self.bandwidth.leave(process)
        if self._cores is not None:
            self._cores.leave(process)
        for use in process.uses:
            del use.processes[process.id]
        for node in process.running.nodes if self._on_node else ():
            del self._on_node[node][process.id]

    def cores_changed(self, process: Process) -> None:
        """A process has other cores from now on."""
        if self.bandwidth is not None:
            self.bandwidth.enter(process)
        if self._cores is not None:
            self._cores.enter(process)

    def change_lanes(self, process: Process, lanes: tuple[int, ...]) -> None:
        """A settled process goes on in another lane of its GPU."""
        process.lanes = lanes
        self.lanes.moved(process, process.uses[0].processes)

    def concerned(self, uses: Iterable[GpuUse]) -> dict[JobId, Process]:
        """Processes whose speed may change when the jobs on these GPUs do; where jobs take turns, all lanes whole."""
        found: dict[JobId, Process] = {}
        reached = list(uses)
        for use in reached:
            found.update(use.processes)
            if self._on_node:
                found.update(self._on_node.get(use.id.node, {}))
            if self.lanes.is_used:
                more = [each for process in use.processes.values() if len(process.uses) > 1 for each in process.uses]
                reached += [each for each in dict.fromkeys(more) if each not in reached]
        return found

    def others(self, process: Process, *, stepping: bool) -> list[Process]:
        """Processes in this world's scope with it, in order of start; all, or those that work on their devices."""
        found: dict[JobId, Process] = {}
        for use in process.uses:
            if len(use.processes) > 1 or process.id not in use.processes:
                found.update(use.processes)
        if self._on_node:
            for node in process.running.nodes:
                found.update(self._on_node.get(node, {}))
        if not found:
            return []
        return [other for other in found.values() if other is not process and (other.is_busy or not stepping)]
