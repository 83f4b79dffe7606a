"""How long jobs have run, are believed to run, and have left. Times are alone on their GPUs; None is unknown."""

from __future__ import annotations

from math import inf
from typing import Final, NamedTuple

from colane.core.cluster.draft import Draft
from colane.core.cluster.situations import situation_in
from colane.core.cluster.view import ClusterView
from colane.facts.ran import attained_s, earlier_s, had_s, present_s, steps_told, worked_s
from colane.model.job import Job, JobId, JobSpec, JobState, NeedClass
from colane.model.progress import PAST_END_MIN_S
from colane.perf.rate import Situation
from colane.scheduling.engine.live import LiveJobs, once


def attained_gpu_s(job: Job, now_s: float) -> float:
    """Attained service (Tiresias, section 3): GPUs times the time it has had them."""
    return job.gpu_count * attained_s(job, now_s)


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
        return max(0.0, self.before_s - self.pace * worked_s(job, now_s))


StepTimes = dict[tuple[NeedClass, str | None, int | None], float | None]
"""By class of need, GPU type and number; None stands for any type, as many as asked for, an unknown step time."""


class RunTimes:
    """Believed run times, remembered by class of need: for one pass, or in `known` while beliefs and nodes stay."""

    def __init__(self, draft: Draft, known: StepTimes | None = None) -> None:
        self._draft = draft
        self._step_s: StepTimes = {} if known is None else known

    def step_s(self, spec: JobSpec, gpu_type: str | None = None, gpus: int | None = None) -> float | None:
        """Step time on a GPU type; where none is given, on the fastest the job may use; with so many, else as asked."""
        asked = (spec.need, gpu_type, None if gpus == spec.gpus else gpus)
        if asked not in self._step_s:
            types = self._draft.view.gpu_types(spec.pool, gpu_type or spec.gpu_type)
            steps = [self._draft.beliefs.rate(spec, Situation(kind, gpus)).step_s for kind in types]
            self._step_s[asked] = min([step_s for step_s in steps if step_s is not None], default=None)
        return self._step_s[asked]

    def predicted_s(self, spec: JobSpec, gpu_type: str | None = None, gpus: int | None = None) -> float | None:
        """Steps times believed step time; the time itself where that is known."""
        view, beliefs = self._draft.view, self._draft.beliefs
        known_s = beliefs.run_s(spec, view.gpu_types(spec.pool, gpu_type or spec.gpu_type))
        if known_s is not None:
            return known_s * self._size_slowdown(spec, gpu_type, gpus)
        steps = min(spec.steps_total or inf, spec.steps_limit or inf)
        step_s = self.step_s(spec, gpu_type, gpus) if steps < inf else None
        return None if step_s is None else steps * step_s

    def run_s(self, spec: JobSpec, gpu_type: str | None = None, gpus: int | None = None) -> float | None:
        """Best guess: predicted, never above the time limit; else the time limit."""
        predicted_s, limit_s = self.predicted_s(spec, gpu_type, gpus), spec.time_limit_s
        if predicted_s is None or limit_s is None:
            return limit_s if predicted_s is None else predicted_s
        return min(predicted_s, limit_s)

    def _size_slowdown(self, spec: JobSpec, gpu_type: str | None, gpus: int | None) -> float:
        """Time with so many GPUs over time with as many as asked for."""
        if gpus is None or gpus == spec.gpus:
            return 1.0
        beliefs, kind = self._draft.beliefs, gpu_type or ""
        return beliefs.rate(spec, Situation(kind, gpus)).slowdown / beliefs.rate(spec, Situation(kind)).slowdown

    def left(self, view: ClusterView, job: Job) -> Left | None:
        """What is left of a job, as if it went on where it is fastest, with as many GPUs as it asks for.

        So those that wait and those that run, on whatever GPUs, are compared by the same measure. A preemptible job
        goes on from where it was, any other starts anew. What an attempt has done is a part of the whole by the run
        time on the GPUs it had. None where its length is unknown.
        """
        spec, total_s = job.effective, self.run_s(job.effective)
        if total_s is None:
            return None
        left_s, here = total_s, gpu_type_of(view, job)
        for gpu_type, run_s, gpus, idle_s in job.totals.served if spec.preemptible else ():
            left_s -= (run_s - idle_s) * self._pace(spec, total_s, gpu_type, gpus or spec.gpus)
        return Left(max(0.0, left_s), 1.0 if here is None else self._pace(spec, total_s, here, job.gpu_count))

    def _pace(self, spec: JobSpec, total_s: float, gpu_type: str, gpus: int) -> float:
        """Speed on so many GPUs of a type over that on the fastest, with as many as it asks for."""
        there_s = self.run_s(spec, gpu_type, gpus)
        return total_s / there_s if there_s else 1.0

    def bound_s(self, spec: JobSpec, gpu_type: str | None = None, gpus: int | None = None) -> float | None:
        """What others can plan with: the time limit, which holds for sure; else predicted; else most of its family."""
        bound_s = spec.time_limit_s if spec.time_limit_s is not None else self.predicted_s(spec, gpu_type, gpus)
        lengths = self._draft.beliefs.lengths
        return lengths.rest(spec.family, 0.0).p90_s if bound_s is None and lengths.tells(spec.family) else bound_s


def kept_times(draft: Draft, pool: str) -> RunTimes:
    """Run times that are remembered while beliefs and nodes stay as they are."""
    return RunTimes(draft, draft.view.derived(LiveJobs).kept(draft.view, pool).steps)


# -- what is left by steps

GOING = frozenset({JobState.RUNNING_PROTECTED, JobState.RUNNING})


class _Length(NamedTuple):
    """What was left of a job when its attempt began, all its steps alone where it is fastest, and their number."""

    left: Left
    total_s: float
    steps: float


class Course(NamedTuple):
    """What is left of a job at any time, while it goes on as it does: `before_s`, less `pace` for each second it runs.

    It started at `start_s`, infinite before that, and was paused for `paused_s` of the time since.
    """

    before_s: float  # see above, as the others
    pace: float  # likewise
    start_s: float  # likewise
    paused_s: float  # likewise
    counts_steps: bool = False  # it holds only until the job tells of steps
    # where given, this is what the job has had, which grows, and what is left follows from it by how long those of this
    # family ran (`perf.lengths`)
    untold_family: str | None = None


PAST_END_RATIO: Final = 0.1  # believed run times are not more exact


class Expected:
    """What is left of jobs, in seconds alone on the fastest GPUs they may use; remembered for one plan.

    A sample says how many steps a job had made; since then it is taken to have gone on as fast as it is believed to go
    with its present co-runners.
    """

    def __init__(self, draft: Draft, pool: str) -> None:
        self._draft = draft
        self._times = kept_times(draft, pool)
        self._kept = draft.view.derived(LiveJobs).kept(draft.view, pool)
        self._left_s: dict[JobId, float | None] = {}
        self._rest_s: dict[JobId, float] = {}

    def left_s(self, job: Job) -> float | None:
        """None where neither its steps and their time nor a limit is known."""
        if job.id not in self._left_s:
            self._left_s[job.id] = self._work_out(job)
        return self._left_s[job.id]

    def course(self, job: Job) -> Course | None:
        """How that falls, to the same figures; None where it has to be asked anew.

        So it has where steps are counted, and while it pauses. It holds as long as the job stays as it is, and the same
        is believed.
        """
        run, length = job.run, once(self._kept.lengths, job, self._length)
        if job.home or run.paused_since_s is not None:
            return None
        since_s = run.start_s if length is None else job.began_s
        start_s = inf if job.placement is None or since_s is None else since_s
        if length is None:
            before_s = earlier_s(job) if job.effective.preemptible else 0.0
            return Course(before_s, -1.0, start_s, run.paused_before_s, untold_family=job.effective.family)
        if length.steps < inf and job.totals.steps_kept:
            return None
        return Course(length.left.before_s, length.left.pace, start_s, run.paused_before_s, length.steps < inf)

    def rest_s(self, job: Job) -> float:
        """The same; of a job of unknown length by how long those ran that have ended (`perf.lengths`)."""
        known_s = self._rest_s.get(job.id)
        if known_s is None:
            known_s = self.left_s(job)
            if known_s is None:
                known_s = self._draft.beliefs.lengths.left_s(job.effective.family, had_s(job, self._draft.now_s))
            self._rest_s[job.id] = known_s
        return known_s

    def is_learnt(self, job: Job) -> bool:
        """Whether it is that, not told."""
        return self.left_s(job) is None

    def is_past_end(self, job: Job) -> bool:
        """Whether a job of known length has run for long beyond it; steps that it may have counted are left out."""
        length = once(self._kept.lengths, job, self._length)
        if length is None:
            return False
        over_s = length.left.pace * worked_s(job, self._draft.now_s) - length.left.before_s
        return over_s >= max(PAST_END_MIN_S, PAST_END_RATIO * length.left.before_s)

    def _work_out(self, job: Job) -> float | None:
        length = once(self._kept.lengths, job, self._length)
        if length is None:
            return None
        done = None if length.steps == inf else self._part_done(job, length.steps)
        if done is None:
            return length.left.at(job, self._draft.now_s)
        left_s, limit_s = max(0.0, 1.0 - done) * length.total_s, job.effective.time_limit_s
        return left_s if limit_s is None else min(left_s, max(0.0, limit_s - present_s(job, self._draft.now_s)))

    def _length(self, job: Job) -> _Length | None:
        """What holds of a job as long as it stays as it is and nothing is learnt."""
        total_s = self._times.run_s(job.effective)
        left = None if total_s is None else self._times.left(self._draft.view, job)
        if left is None or total_s is None:
            return None
        return _Length(left, self._times.predicted_s(job.effective) or total_s, steps_told(job) or inf)

    def _part_done(self, job: Job, steps: float) -> float | None:
        """Part of its steps it has made by now; None where they were not counted."""
        sample, done = self._draft.view.progress(job.id), job.totals.steps_kept
        if sample is not None and sample.steps:
            done = max(done, sample.steps)
        if not done:
            return None
        return (done + self._steps_since(job, 0.0 if sample is None else sample.at_s)) / steps

    def _steps_since(self, job: Job, sampled_s: float) -> float:
        """Steps made since a sample: alone until its last co-runner came, and next to all of them from then on."""
        gpus, now_s, jobs = job.gpus_held, self._draft.now_s, self._draft.view.jobs
        if not gpus or job.start_s is None or job.state not in GOING:
            return 0.0
        since_s = max(now_s - present_s(job, now_s), sampled_s)
        if job.run.paused_before_s and job.since_s is not None:
            since_s = max(since_s, job.since_s)
        load = self._draft.view.gpu(gpus[0])
        came_s = max([jobs[b.job].start_s or now_s for b in load.bookings if b.job != job.id], default=since_s)
        came_s = min(now_s, max(since_s, came_s))
        together_s = self._step_s(job, situation_in(load, job.id, jobs))
        alone_s = self._step_s(job, Situation(load.gpu.type, len(gpus), sharing=load.gpu.way))
        return max(0.0, came_s - since_s) / alone_s + max(0.0, now_s - came_s) / together_s

    def _step_s(self, job: Job, situation: Situation) -> float:
        return self._draft.beliefs.rate(job.effective, situation).step_s or inf
