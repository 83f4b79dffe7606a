"""What may be done to a job that has been submitted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from colane.api.job_request import ResumeBody, SuspendBody
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
from colane.verbs.of_jobs import Deed, JobVerb


@dataclass(slots=True)
class JobChanges:
    """Makes changes of jobs; each judges its caller in its turn."""

    parts: Parts  # what the scheduler consists of

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

    def of(
        self,
        verb: JobVerb,
        job_id: JobId,
        caller: Caller,
        by: str,
        body: Any = None,  # noqa: ANN401 - of the verb
    ) -> Callable[[Turn], JobIdAnswer]:
        """Return the change that does to a live job what a verb says, with the arguments that it has."""

        def prepare(turn: Turn) -> JobIdAnswer:
            ownership.demand_live(turn, job_id, self.parts.sight(caller), verb.deed)
            _ADDING[verb.deed](self.parts, turn, job_id, caller, by, body)
            return {"id": job_id}

        return prepare


def _suspend(parts: Parts, turn: Turn, job_id: JobId, _caller: Caller, by: str, body: SuspendBody | None) -> None:
    via = SuspendVia.HOST if body is not None and body.to_host else SuspendVia.LANE
    changes.suspend(turn, parts.driver.core.state, job_id, by, via)


def _resume(parts: Parts, turn: Turn, job_id: JobId, _caller: Caller, by: str, body: ResumeBody | None) -> None:
    begin = None if body is None or body.at is None else begin_hold(body.at, turn.now_s, "at")
    parts.driver.keeper.resume(turn, job_id, by, begin)


_ADDING: Final[Mapping[Deed, Callable[[Parts, Turn, JobId, Caller, str, Any], None]]] = {
    Deed.SUSPEND: _suspend,
    Deed.RESUME: _resume,
    Deed.REQUEUE: lambda _parts, turn, job, caller, by, _: changes.requeue(turn, job, by, is_own=caller.job == job),
    Deed.CHANGE: lambda parts, turn, job_id, _caller, by, body: changed_limits.change(
        turn, job_id, by, body, parts.config.pools
    ),
}
"""What each adds to a turn; cancelling judges ended jobs in its own way."""
