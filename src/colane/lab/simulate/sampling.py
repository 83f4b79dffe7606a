"""What an agent would report of a job: whole steps, when the last one ended, memory, occupancy."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from colane.core import Core
from colane.core.events import Progressed
from colane.core.planners.tuning import SLACK_STEPS
from colane.lab.simulate.process import GpuUse, Process
from colane.lab.simulate.world import Scope, World
from colane.model.job_spec import JobKind
from colane.model.profile import Profile, ProfileKey, Value, ValueSource
from colane.model.progress import Progress
from colane.perf.estimates import Estimates, profile_key
from colane.perf.speedup import OCCUPANCY_UNITS_PER_S


class SampleDue(NamedTuple):
    """The jobs on a GPU are to be sampled if its epoch is still this one."""

    after_s: float
    use: GpuUse
    epoch: int


class CoRunnerSampling:
    """Says when to sample which set of jobs."""

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


SAMPLE_AFTER_STEPS = (1, 12)
"""Jobs that share a GPU are sampled when the slowest has made so many steps: the first lets it count as running, the
second is enough to learn from (paper A samples ten). Speeds do not change within an epoch: more would say the
same."""

ROUNDING_STEPS = 1e-6  # less work than this is rounding, not work


KNOWN_WITHIN_RATIO = 1e-6
"""A belief that is as near to the truth as this has nothing to learn: what differs is rounding."""


class Sampler:
    """Takes samples of processes."""

    def __init__(self, world: World, beliefs: Estimates) -> None:
        self._world = world
        self._beliefs = beliefs
        self._learns = beliefs.learns
        self._true: dict[ProfileKey, tuple[Profile, float, float | None, int | None]] = {}

    def waits_s(self, co_runners: Iterable[Process], after_steps: Iterable[int]) -> Iterator[float]:
        """When to sample a set, in seconds from now: when its slowest job has made so many steps."""
        speeds = [process.steps_per_s for process in co_runners if process.is_stepping and process.lane_share > 0]
        if speeds and min(speeds) > 0:
            slowest_s = 1 / min(speeds)
            yield from (steps * slowest_s for steps in after_steps)

    def teaches(self, process: Process) -> bool:
        """Whether samples of a job alone on its GPUs would say anything that is not known already.

        Speeds do not change, so a kind of job that was measured once is measured for good: of 300 alike one is sampled.
        Where neighbours on other GPUs disturb, it goes at another speed beside each.
        """
        if not self._learns or self._world.scope is Scope.NODE:
            return self._learns
        running = process.running
        key = profile_key(running.job.spec, running.gpu_type)
        known = self._beliefs.profiles.get(key)
        if known is None:
            return True
        seen = known, process.alone_steps_per_s, process.occupancy_ratio, running.job.spec.gpu_memory_bytes
        if self._true.get(key) == seen:
            return False
        if not self._is_true(known, process):
            return True
        self._true[key] = seen
        return False

    def _is_true(self, known: Profile, process: Process) -> bool:
        """Whether a measured profile is what a measurement of this job would give."""
        running, speed = process.running, process.alone_steps_per_s
        paces = (pace.step_s for pace in known.core_paces if pace.cores == running.cores)
        if (
            speed <= 0
            or not _is(next(paces, None) if running.cores else known.step_s, 1 / speed)
            or running.job.spec.steps_limit is not None
        ):
            return False
        ratio = process.occupancy_ratio
        if ratio is not None and not _is(known.occupancy, ratio / speed * OCCUPANCY_UNITS_PER_S):
            return False
        memory = self._world.memory(running.job, running.gpu_type)
        return memory is None or (
            _is(known.persistent_bytes, memory.persistent_bytes) and _is(known.ephemeral_bytes, memory.ephemeral_bytes)
        )

    def whole_steps(self, process: Process) -> int:
        """Steps of the job made so far, those of earlier attempts that were kept included."""
        return int(process.done_steps + ROUNDING_STEPS)

    def sample(self, process: Process, now_s: float) -> Progress:
        """A sample of a settled process; its step counter goes on where the attempt before saved it."""
        whole = self.whole_steps(process)
        running = process.running
        beyond = max(0.0, process.done_steps - whole)
        last_s = now_s - beyond / process.steps_per_s if process.steps_per_s > 0 else now_s
        memory = self._world.memory(running.job, running.gpu_type) if self._learns else None
        answers: int | None = None
        answer_s: float | None = None
        if running.job.spec.kind is JobKind.INFERENCE and whole and process.steps_per_s > 0:
            answers, answer_s = whole, 1.0 / process.steps_per_s  # its requests wait for it: it is never idle
        return Progress(
            at_s=now_s,
            steps=whole,
            steps_total=running.job.spec.steps_total,
            first_step_s=process.first_step_s,
            last_step_s=last_s if whole else None,
            persistent_bytes=memory.persistent_bytes if memory else None,
            peak_bytes=sum(memory) if memory else None,
            occupancy_ratio=process.occupancy_ratio,
            occupancy_by="world",
            answers=answers,
            idle_s=None if answers is None else 0.0,
            latency_p50_s=answer_s,
            latency_p95_s=answer_s,
            latency_p99_s=answer_s,
        )


def _is(known: Value | None, truth: float) -> bool:
    """Whether a value was measured, and is the truth."""
    return (
        known is not None
        and known.source is ValueSource.MEASURED
        and abs(known.value - truth) <= KNOWN_WITHIN_RATIO * abs(truth)
    )
