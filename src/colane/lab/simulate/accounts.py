"""What each job has had, attempt by attempt, and the row it leaves in the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf

from colane.core import Core
from colane.lab.simulate.gangs import running_at
from colane.lab.simulate.ledger import Ledger
from colane.lab.simulate.process import Process
from colane.lab.simulate.sampling import Sampler
from colane.lab.simulate.world import Running, World
from colane.lab.traces.workload import TraceJob
from colane.model.job import Job, JobId, JobKind


@dataclass(slots=True, eq=False)
class SavedSteps:
    """Steps kept between attempts, by job."""

    _sampler: Sampler | None  # counts whole steps; None where jobs are measured in time
    _accounts: JobAccounts  # told of steps that have to be made again
    _lost_s: Mapping[str, float]  # when nodes were lost last
    _steps: dict[JobId, float] = field(default_factory=dict)

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
        if process.has_failed or not process.running.job.spec.preemptible:
            return 0.0
        if any(self._lost_s.get(node, -inf) > process.start_s for node in process.running.nodes):
            return process.durable_steps
        return process.done_steps if self._sampler is None else self._sampler.whole_steps(process)


@dataclass(slots=True, eq=False)
class JobAccounts:
    """Writes a ledger's rows."""

    _ledger: Ledger  # written into
    _core: Core  # knows the jobs and the GPUs
    _world: World  # knows how fast jobs go alone
    _traced: Mapping[JobId, TraceJob]  # the workload by job
    _gpu_s: dict[JobId, float] = field(default_factory=dict)

    def where(self, job: Job) -> Running:
        """A job that has a placement, and where that is."""
        if job.placement is None:
            raise AssertionError(f"job {job.id} is {job.state} without a placement")
        return running_at(self._traced[job.id], job.placement, self._core.state.gpus)

    def book(self, process: Process, now_s: float) -> None:
        """Write down what a settled process has had."""
        self._ledger.stay(process.id, process.attempt, process.running.gpus, process.start_s, now_s)
        self._gpu_s[process.id] = self._gpu_s.get(process.id, 0.0) + process.gpu_s
        self._ledger.pause(process.id, process.paused_s)
        self._ledger.idle_s += process.idle_s

    def launched(self, process: Process) -> None:
        """Write down how long a settled process took until it steps, where its story says that it ran at once."""
        if self._core.config.runs_at_once:
            self._ledger.launch(process.id, process.since_s - process.start_s)

    def lose(self, process: Process, kept_steps: float) -> None:
        """Write down steps it made that its next attempt makes anew; a server is not asked again what it answered."""
        if process.alone_steps_per_s > 0 and process.running.job.spec.kind is not JobKind.INFERENCE:
            self._ledger.lose(process.id, (process.done_steps - kept_steps) / process.alone_steps_per_s)

    def record_ended(self, job: Job, last: Process | None) -> None:
        """A job has ended; `last` was its process, where it had one until now."""
        alone_s = self._alone_s(job) if last is None else _alone_s(last.work_steps, last.alone_steps_per_s)
        self._ledger.rows.add(job, self._gpu_s.pop(job.id, 0.0), alone_s)
        self._ledger.account(job, job.end_s or 0.0)

    def record_living(self, processes: Iterable[Process], now_s: float) -> None:
        """Jobs that have not ended when the run stops, as they stand."""
        for process in processes:
            process.settle(now_s)
            self.book(process, now_s)
        for job in sorted(self._core.state.jobs.values(), key=lambda job: job.id):
            self._ledger.rows.add(job, self._gpu_s.get(job.id, 0.0), self._alone_s(job))
            self._ledger.account(job, now_s)

    def _alone_s(self, job: Job) -> float:
        traced = self._traced[job.id]
        if job.placement is None:
            return traced.duration_s if traced.duration_s is not None else float("nan")
        return _alone_s(self._world.work_steps(traced), self._world.steps_per_s(self.where(job), ()))


def _alone_s(work_steps: float, steps_per_s: float) -> float:
    return work_steps / steps_per_s if steps_per_s > 0 else inf
