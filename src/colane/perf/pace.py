"""How fast jobs go with their present co-runners, over windows of time."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from colane.model.job import JobId
from colane.model.progress import Progress
from colane.perf.nearby import StepMark, step_mark


@dataclass(slots=True)
class Pace:
    """One job with one set of co-runners."""

    co_runners: Hashable  # the jobs with it; a change of them begins anew
    begin: StepMark  # how far it had come at the window's begin
    at_s: float  # when the last of those steps ended
    # mean time of a step, waiting included, of this window, or of the one before while this is short
    step_s: float | None = None
    # slowdown predicted for these co-runners when they came together; what they teach changes that no more
    foreseen: float | None = None


class Paces:
    """The paces of jobs that share GPUs."""

    def __init__(self) -> None:
        self._paces: dict[JobId, Pace] = {}

    def forget(self, job: JobId) -> None:
        """It has no co-runners any more, or is not stepping."""
        self._paces.pop(job, None)

    def step_s(self, job: JobId) -> float | None:
        """Mean time of a step with its present co-runners; None while too few were seen."""
        pace = self._paces.get(job)
        return None if pace is None else pace.step_s

    def foreseen(self, job: JobId) -> float | None:
        """Slowdown predicted for its present co-runners; None while none was."""
        pace = self._paces.get(job)
        return None if pace is None else pace.foreseen

    def foresee(self, job: JobId, slowdown: float) -> None:
        """Say what is predicted for jobs that have just come together."""
        pace = self._paces.get(job)
        if pace is not None:
            pace.foreseen = slowdown

    def add(self, job: JobId, co_runners: Hashable, progress: Progress, *, steps_min: int, window_s: float) -> bool:
        """Take a sample; whether it ends a window, after which the pace of the job is to be judged.

        A window takes so many steps and so long at least.
        """
        mark = step_mark(progress)
        if mark is None or progress.last_step_s is None:
            self.forget(job)
            return False
        pace = self._paces.get(job)
        if pace is None or pace.co_runners != co_runners or mark.steps < pace.begin.steps:
            self._paces[job] = Pace(co_runners, mark, progress.last_step_s)
            return False
        steps, busy_s = mark.steps - pace.begin.steps, mark.busy_s - pace.begin.busy_s
        if steps < steps_min or busy_s <= 0:
            return False
        pace.step_s = busy_s / steps
        if progress.last_step_s - pace.at_s < window_s:
            return False
        self._paces[job] = Pace(co_runners, mark, progress.last_step_s, pace.step_s, pace.foreseen)
        return True
