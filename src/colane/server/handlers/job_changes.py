"""What may be done to a job that has been submitted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from colane.api.job_request import ChangeBody
from colane.api.jobs import JobIdAnswer
from colane.model.job import JobId, JobState, SuspendVia
from colane.server.board.arrays import element_ordinals
from colane.server.board.turn import Turn
from colane.server.ground.access import Caller
from colane.server.ground.problems import RefusedError
from colane.server.handlers import ownership
from colane.server.parts import Parts
from colane.server.submitting import changed_limits
from colane.server.submitting.admission import begin_hold
from colane.server.writer import changes


@dataclass(slots=True)
class JobChanges:
    """Makes changes of jobs; each judges its caller in its turn.

    Attributes:
        parts: What the scheduler consists of.
    """

    parts: Parts

    def cancel(
        self, job_id: JobId, caller: Caller, by: str, elements: str | None = None
    ) -> Callable[[Turn], JobIdAnswer]:
        """Return the change that cancels a job, or elements of an array; a cancelled one stays so."""

        def prepare(turn: Turn) -> JobIdAnswer:
            ended = ownership.judge(turn, job_id, self.parts.sight(caller), "cancel")
            if ended is None:
                changes.cancel(turn, job_id, by, element_ordinals(turn.read_model, job_id, elements))
            elif ended["job"]["state"] != JobState.CANCELLED:
                raise RefusedError.because(409, f"job {job_id} has already ended: {ended['job']['state']}")
            return {"id": job_id}

        return prepare

    async def cancel_many(self, queued: Sequence[JobId], by: str) -> Sequence[JobId]:
        """Cancel jobs that wait, some in each turn, and return the last of them, which are left for one more turn.

        Raises:
            RefusedError: 503, it cannot be written.
        """
        left = queued
        while not changes.fits_one_turn(self.parts.read_model, left):
            left = left[await self.parts.driver.change(partial(changes.cancel_queued, queued=left, by=by)) :]
        return left

    def requeue(self, job_id: JobId, caller: Caller, by: str) -> Callable[[Turn], JobIdAnswer]:
        """Return the change that takes a running job off its GPUs, to wait anew."""

        def prepare(turn: Turn) -> JobIdAnswer:
            ownership.demand_live(turn, job_id, self.parts.sight(caller), "requeue")
            changes.requeue(turn, job_id, by, is_own=caller.job == job_id)
            return {"id": job_id}

        return prepare

    def change_limits(self, job_id: JobId, caller: Caller, by: str, body: ChangeBody) -> Callable[[Turn], JobIdAnswer]:
        """Return the change that gives a live job other limits."""

        def prepare(turn: Turn) -> JobIdAnswer:
            ownership.demand_live(turn, job_id, self.parts.sight(caller), "change")
            changed_limits.change(turn, job_id, by, body)
            return {"id": job_id}

        return prepare

    def suspend(self, job_id: JobId, caller: Caller, by: str, via: SuspendVia) -> Callable[[Turn], JobIdAnswer]:
        """Return the change that suspends a live job."""

        def prepare(turn: Turn) -> JobIdAnswer:
            ownership.demand_live(turn, job_id, self.parts.sight(caller), "suspend")
            changes.suspend(turn, self.parts.driver.core.state, job_id, by, via)
            return {"id": job_id}

        return prepare

    def resume(self, job_id: JobId, caller: Caller, by: str, at: str | None = None) -> Callable[[Turn], JobIdAnswer]:
        """Return the change that lets a live job go on; one that waits not before a time, where one is given."""

        def prepare(turn: Turn) -> JobIdAnswer:
            ownership.demand_live(turn, job_id, self.parts.sight(caller), "resume")
            begin = None if at is None else begin_hold(at, turn.now_s, "at")
            self.parts.driver.keeper.resume(turn, job_id, by, begin)
            return {"id": job_id}

        return prepare
