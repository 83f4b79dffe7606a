"""Parked jobs in virtual time: what moving their GPU memory costs, and what they have done so far."""

from __future__ import annotations

from colane.core import Core
from colane.core.cluster.to_host import bytes_to_move
from colane.lab.simulate.config import DriverConfig
from colane.lab.simulate.process import Process
from colane.model.job import Job, JobId


class ParkedProcesses:
    """Processes off their GPUs, until they come back or are stopped.

    Args:
        core: Knows what is believed of their memory.
        config: What moving memory costs on each node.
    """

    def __init__(self, core: Core, config: DriverConfig) -> None:
        self._core = core
        self._config = config
        self._away: dict[JobId, Process] = {}

    def __contains__(self, job: JobId) -> bool:
        return job in self._away

    def bytes_of(self, job: Job) -> int:
        """Memory it has on its GPU, as it is believed: the truth has none of its own."""
        return bytes_to_move(self._core.state, job)

    def move_s(self, process: Process, size_bytes: int) -> float:
        """How long moving so much memory off its GPUs or back onto them takes."""
        return self._config.of(process.running).move_s(size_bytes)

    def put(self, process: Process) -> None:
        """It is off its GPUs."""
        self._away[process.id] = process

    def take(self, job: JobId) -> Process:
        """It comes back, or is to end: the process as it was."""
        return self._away.pop(job)
