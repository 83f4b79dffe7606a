"""What jobs go on from: the steps that those which save their state have kept."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from colane.lab.simulate.accounts import JobAccounts
from colane.lab.simulate.process import Process
from colane.lab.simulate.sampling import Sampler
from colane.model.job import JobId


class SavedSteps:
    """Steps kept between attempts, by job.

    Args:
        sampler: Counts whole steps; None where jobs are measured in time.
        accounts: Told of steps that have to be made again.
        lost_s: When nodes were lost last.
    """

    def __init__(self, sampler: Sampler | None, accounts: JobAccounts, lost_s: Mapping[str, float]) -> None:
        self._sampler = sampler
        self._accounts = accounts
        self._lost_s = lost_s
        self._steps: dict[JobId, float] = {}

    def of(self, job: JobId) -> float:
        """What its next attempt starts from."""
        return self._steps.get(job, 0.0)

    def put(self, job: JobId, steps: float) -> None:
        """It has kept so many."""
        self._steps[job] = steps

    def forget(self, job: JobId) -> None:
        """It has ended."""
        self._steps.pop(job, None)

    def leave(self, process: Process) -> None:
        """It has left its GPUs; for the host, and nothing is lost by that, where its memory was moved there."""
        self._steps[process.id] = self._kept(process)
        if process.out_bytes is None:
            self._accounts.lose(process, self._steps[process.id])

    def end_away(self, process: Process) -> None:
        """It has ended on the host, where it was parked."""
        self._steps[process.id] = self._kept(process)
        self._accounts.lose(process, self._steps[process.id])

    def _kept(self, process: Process) -> float:
        """Only a job that saves its state keeps anything; with its node it loses what it has not saved yet."""
        if not process.running.job.spec.preemptible:
            return 0.0
        if any(self._lost_s.get(node, -inf) > process.start_s for node in process.running.nodes):
            return process.durable_steps
        return process.done_steps if self._sampler is None else self._sampler.whole_steps(process)
