"""What live jobs are expected to have left to do: by their steps where these are known, else by their time limit."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from colane.core.cluster.draft import Draft
from colane.core.cluster.situations import situation_in
from colane.model.job import Job, JobId, JobState
from colane.perf.rate import Situation
from colane.scheduling.engine.live import LiveJobs
from colane.scheduling.engine.times import Left, attained_s, earlier_s, kept_times, present_s

GOING = frozenset({JobState.RUNNING_PROTECTED, JobState.RUNNING})


class _Length(NamedTuple):
    """What was left of a job when its present attempt began, all of it alone where it is fastest, and its steps."""

    left: Left
    total_s: float
    steps: float


class Course(NamedTuple):
    """What is left of a job at any time, while it goes on as it does: `before_s`, less `pace` for each second it runs.

    It started at `start_s`, infinite before that, and was paused for `paused_s` of the time since.

    Attributes:
        before_s: See above, as the others.
        pace: Likewise.
        start_s: Likewise.
        paused_s: Likewise.
        counts_steps: It holds only until the job tells of steps.
        untold_family: Where given, this is what the job has had, which grows, and what is left follows from it by how
            long those of this family ran (`perf.lengths`).
    """

    before_s: float
    pace: float
    start_s: float
    paused_s: float
    counts_steps: bool = False
    untold_family: str | None = None


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
        run, length = job.run, self._kept.of(job, self._length)
        if job.home or run.paused_since_s is not None:
            return None
        start_s = inf if job.placement is None or run.start_s is None else run.start_s
        if length is None:
            had_s = earlier_s(job) if job.effective.preemptible else 0.0
            family = job.effective.family if self._draft.beliefs.lengths.tells else None
            return Course(had_s, -1.0, start_s, run.paused_before_s, untold_family=family)
        if length.steps < inf and job.totals.steps_kept:
            return None
        return Course(length.left.before_s, length.left.pace, start_s, run.paused_before_s, length.steps < inf)

    def rest_s(self, job: Job) -> float:
        """The same; of a job of unknown length by how long those ran that have ended (`perf.lengths`)."""
        known_s = self.left_s(job)
        if known_s is None:
            known_s = self._draft.beliefs.lengths.left_s(job.effective.family, had_s(job, self._draft.now_s))
        return known_s

    def _work_out(self, job: Job) -> float | None:
        length = self._kept.of(job, self._length)
        if length is None:
            return None
        done = None if length.steps == inf else self._part_done(job, length.steps)
        return length.left.at(job, self._draft.now_s) if done is None else max(0.0, 1.0 - done) * length.total_s

    def _length(self, job: Job) -> _Length | None:
        """What holds of a job as long as it stays as it is and nothing is learnt."""
        total_s = self._times.run_s(job.effective)
        left = None if total_s is None else self._times.left(self._draft.view, job)
        if left is None or total_s is None:
            return None
        return _Length(left, total_s, min(job.effective.steps_total or inf, job.spec.steps_limit or inf))

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
        alone_s = self._step_s(job, Situation(load.gpu.type, len(gpus), sharing=load.gpu.sharing))
        return max(0.0, came_s - since_s) / alone_s + max(0.0, now_s - came_s) / together_s

    def _step_s(self, job: Job, situation: Situation) -> float:
        return self._draft.beliefs.rate(job.effective, situation).step_s or inf


def had_s(job: Job, now_s: float) -> float:
    """What service a job has had that counts: all, or of one that starts anew each time, that of its attempt."""
    return (attained_s if job.effective.preemptible else present_s)(job, now_s)
