"""What may be done to a job that has been submitted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, Final

from colane.api.job_request import ChangeBody, ResumeBody, SuspendBody
from colane.api.jobs import JobIdAnswer
from colane.core.events import LimitsChanged
from colane.core.reducers.changing import is_held_whole
from colane.model.job import Job, JobId, JobState, SuspendVia
from colane.model.job_spec import NewLimit
from colane.server.board.arrays import element_ordinals
from colane.server.board.submission import ASKED, launch_key
from colane.server.board.turn import Turn
from colane.server.ground.access import Caller
from colane.server.ground.pools import USUAL, PoolRules
from colane.server.ground.problems import RefusedError
from colane.server.handlers import ownership
from colane.server.parts import Parts
from colane.server.store.store import LAUNCH_SPECS
from colane.server.submitting.admission import begin_hold
from colane.server.submitting.asked_conditions import time_text
from colane.server.writer import changes
from colane.verbs.of_jobs import Deed, JobVerb

# -- Other limits for a job that has been submitted: judged as at its submission.


def change(turn: Turn, job_id: JobId, by: str, body: ChangeBody, pools: PoolRules) -> None:
    """Ask for other limits of a live job; the caller has made sure that it has not ended.

    Raises RefusedError: 404, there is no such live job; 422, nothing is to be changed, or not to that.
    """
    job = turn.read_model.jobs.get(job_id)
    owner = job or turn.read_model.array_with(job_id)
    if owner is None:
        raise RefusedError.because(404, f"there is no live job {job_id}")
    if job is None and is_held_whole(owner):
        raise RefusedError.because(409, f"array {owner.id} is held, and its elements with it: change {owner.id}")
    given = body.model_fields_set
    if not given:
        raise RefusedError.because(422, "give time_limit, or at_once for an array", "time_limit")
    if {"time_limit", "time_limit_s"} <= given:
        raise RefusedError.because(422, "give time_limit or time_limit_s, not both", "time_limit")
    if "at_once" in given and (job is None or job.array is None):
        raise RefusedError.because(422, f"is of arrays, and job {job_id} is none", "at_once")
    limit_s = body.time_limit if "time_limit" in given else body.time_limit_s
    is_timed = bool(given & {"time_limit", "time_limit_s"})
    if is_timed:
        _demand_allowed(turn, owner, limit_s, pools)
    limit = NewLimit(limit_s) if is_timed else None
    at_once = NewLimit(body.at_once) if "at_once" in given else None
    turn.events.append(LimitsChanged(job_id, by, limit, at_once))


def _demand_allowed(turn: Turn, job: Job, limit_s: float | None, pools: PoolRules) -> None:
    """What it was served for at its submission bounds it still."""
    kept = turn.reads.get(LAUNCH_SPECS, launch_key(job)) or {}
    qos = str((kept.get(ASKED) or {}).get("qos", USUAL))
    may_be_in = [way.pool for way in job.spec.pools if job.placement is None] or [job.spec.pool]
    if problems := [problem for pool in may_be_in for problem in pools.too_long(pool, limit_s, qos)]:
        raise RefusedError(422, problems)
    was_s = job.effective.time_limit_s
    if job.placement is None or was_s is None or (limit_s is not None and limit_s <= was_s):
        return
    end_s = inf if limit_s is None else (turn.now_s if job.start_s is None else job.start_s) + limit_s
    for node in job.placement.nodes:
        for one in turn.reservations_of(turn.read_model.nodes[node].node):
            if job.spec.user not in one.users and one.from_s < end_s and one.to_s > turn.now_s:
                text = f"must end before {time_text(one.from_s)}, from when {node} is kept for {one.told}"
                raise RefusedError.because(422, text, "time_limit")


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

        Raises RefusedError: 503, it cannot be written.
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
    Deed.CHANGE: lambda parts, turn, job_id, _caller, by, body: change(turn, job_id, by, body, parts.config.pools),
}
"""What each adds to a turn; cancelling judges ended jobs in its own way."""
