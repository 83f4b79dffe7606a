"""How long jobs have run and are believed to run. Times are alone on their GPUs; None is unknown."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from colane.core.draft import Draft
from colane.core.view import ClusterView
from colane.model.job import Job, JobSpec, NeedClass
from colane.perf.situation import Situation


def present_s(job: Job, now_s: float) -> float:
    """How long the present attempt has run, pauses left out."""
    if job.placement is None or job.start_s is None:
        return 0.0
    return max(0.0, now_s - job.start_s - job.paused_s(now_s))


def earlier_s(job: Job) -> float:
    """How long the attempts before the present one have run."""
    return sum(served.run_s for served in job.served)


def attained_s(job: Job, now_s: float) -> float:
    """How long a job has run over all its attempts."""
    return earlier_s(job) + present_s(job, now_s)


def attained_gpu_s(job: Job, now_s: float) -> float:
    """Attained service (Tiresias, section 3): GPUs times the time it has had them."""
    return job.spec.gpus * attained_s(job, now_s)


def gpu_type_of(view: ClusterView, job: Job) -> str | None:
    """Type of the GPUs a job holds, or has left parked."""
    if job.home and job.placement is not None:
        return view.gpu(job.placement.gpus[0]).gpu.type
    return view.gpu(job.gpus_held[0]).gpu.type if job.gpus_held else None


class Left(NamedTuple):
    """What was left of a job when its present attempt began, and how much of that it does in a second."""

    before_s: float
    pace: float

    def at(self, job: Job, now_s: float) -> float:
        """What is left now."""
        return max(0.0, self.before_s - self.pace * present_s(job, now_s))


StepTimes = dict[tuple[NeedClass, str | None], float | None]
"""By class of need and GPU type; None stands for any type, and for an unknown step time."""


class RunTimes:
    """Believed run times, remembered by class of need: for one pass, or in `known` while beliefs and nodes stay."""

    def __init__(self, draft: Draft, known: StepTimes | None = None) -> None:
        self._draft = draft
        self._step_s: StepTimes = {} if known is None else known

    def step_s(self, spec: JobSpec, gpu_type: str | None = None) -> float | None:
        """Step time on a GPU type; where none is given, on the fastest the job may use."""
        asked = (spec.need, gpu_type)
        if asked not in self._step_s:
            types = self._draft.view.gpu_types(spec.pool, gpu_type or spec.gpu_type)
            steps = [self._draft.beliefs.rate(spec, Situation(kind)).step_s for kind in types]
            self._step_s[asked] = min([step_s for step_s in steps if step_s is not None], default=None)
        return self._step_s[asked]

    def predicted_s(self, spec: JobSpec, gpu_type: str | None = None) -> float | None:
        """Steps times believed step time; the time itself where that is known."""
        view, beliefs = self._draft.view, self._draft.beliefs
        known_s = beliefs.run_s(spec, view.gpu_types(spec.pool, gpu_type or spec.gpu_type))
        if known_s is not None:
            return known_s
        steps = min(spec.steps_total or inf, spec.steps_limit or inf)
        step_s = self.step_s(spec, gpu_type) if steps < inf else None
        return None if step_s is None else steps * step_s

    def run_s(self, spec: JobSpec, gpu_type: str | None = None) -> float | None:
        """Best guess: predicted, never above the time limit; else the time limit."""
        predicted_s, limit_s = self.predicted_s(spec, gpu_type), spec.time_limit_s
        if predicted_s is None or limit_s is None:
            return limit_s if predicted_s is None else predicted_s
        return min(predicted_s, limit_s)

    def left(self, view: ClusterView, job: Job) -> Left | None:
        """What is left of a job, as if it went on where it is fastest; None where its length is unknown.

        So those that wait and those that run, on whatever GPU type, are compared by the same measure. A preemptible job
        goes on from where it was, any other starts anew. What an attempt has done is a part of the whole by the run
        time on the GPU type it had.
        """
        spec, total_s, here = job.spec, self.run_s(job.spec), gpu_type_of(view, job)
        if total_s is None:
            return None
        left_s = total_s
        for gpu_type, run_s in job.served if spec.preemptible else ():
            left_s -= run_s * self._pace(spec, total_s, gpu_type)
        return Left(max(0.0, left_s), 1.0 if here is None else self._pace(spec, total_s, here))

    def _pace(self, spec: JobSpec, total_s: float, gpu_type: str) -> float:
        """Speed on a GPU type over that on the fastest."""
        there_s = self.run_s(spec, gpu_type)
        return total_s / there_s if there_s else 1.0

    def bound_s(self, spec: JobSpec, gpu_type: str | None = None) -> float | None:
        """What others can plan with: the time limit, which holds for sure; else predicted."""
        return spec.time_limit_s if spec.time_limit_s is not None else self.predicted_s(spec, gpu_type)
