"""When agents would report of jobs that share a GPU: once each has made a step, and once there is enough to learn."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from colane.core import Core
from colane.core.events import Progressed
from colane.core.planners.tuning import SLACK_STEPS
from colane.lab.simulate.process import GpuUse, Process
from colane.lab.simulate.sampling import SAMPLE_AFTER_STEPS, Sampler


class SampleDue(NamedTuple):
    """The jobs on a GPU are to be sampled if its epoch is still this one."""

    after_s: float
    use: GpuUse
    epoch: int


class CoRunnerSampling:
    """Says when to sample which set of jobs.

    Args:
        core: Knows which jobs' first steps are awaited.
        sampler: Takes the samples.
    """

    def __init__(self, core: Core, sampler: Sampler) -> None:
        self._core = core
        self._sampler = sampler
        self._awaits_steps = not core.config.runs_at_once

    def dues(self, concerned: Iterable[Process]) -> Iterator[SampleDue]:
        """Yield when to sample every new set of these processes, in seconds from now."""
        for use in dict.fromkeys([process.uses[0] for process in concerned]):
            co_runners = use.processes.values()
            waits_s = list(self._sampler.waits_s(co_runners, self._after_steps(co_runners)))
            for after_s in (*waits_s, *self._guard_waits_s(co_runners)):
                yield SampleDue(after_s, use, use.epoch)
            for process in co_runners if self._core.config.tuning is not None else ():
                for after_s in self._tuning_waits_s(process):
                    yield SampleDue(after_s, use, use.epoch)

    def _guard_waits_s(self, co_runners: Collection[Process]) -> Iterator[float]:
        """When the guard wants to see a set: at its first steps, and after as long together as it asks."""
        config = self._core.config
        if config.guard and len(co_runners) > 1:
            for first_s in self._sampler.waits_s(co_runners, (1 + SLACK_STEPS,)):
                yield first_s
                yield first_s * 2 + config.guard_after_s

    def _tuning_waits_s(self, process: Process) -> Iterator[float]:
        """When the search for a process's cores wants to see it: some steps after each of its moments."""
        if process.steps_per_s > 0:
            step_s, tuning = 1 / process.steps_per_s, self._core.config.tuning
            least_s = step_s * (0 if tuning is None else tuning.steps_min)
            for place, wait_s in enumerate(self._core.tuning_waits_s(process.id)):
                yield wait_s + SLACK_STEPS * (place + 1) * step_s + (least_s if place > 1 else 0.0)

    def reports_of(self, use: GpuUse, epoch: int, now_s: float) -> list[Progressed]:
        """What is reported of the jobs on a GPU, if they are still together."""
        return self.reports(use.processes.values(), now_s) if use.epoch == epoch else []

    def reports(self, processes: Iterable[Process], now_s: float) -> list[Progressed]:
        """What is reported of those of these processes that step."""
        found: list[Progressed] = []
        for process in processes:
            if process.is_stepping:
                process.settle(now_s)
                found.append(Progressed(process.id, process.attempt, self._sampler.sample(process, now_s)))
        return found

    def _after_steps(self, co_runners: Collection[Process]) -> tuple[int, ...]:
        """After which steps to sample a set: where nothing can be learnt, its first if something waits for it."""
        is_sampled = len(co_runners) > 1 or any(map(self._sampler.teaches, co_runners))
        for process in co_runners:
            process.is_sampled = is_sampled
        if is_sampled:
            return SAMPLE_AFTER_STEPS
        jobs = self._core.state.jobs
        is_awaited = self._awaits_steps and any(jobs[process.id].first_step_s is None for process in co_runners)
        return SAMPLE_AFTER_STEPS[:1] if is_awaited else ()
