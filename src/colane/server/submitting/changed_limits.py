"""Other limits for a job that has been submitted: judged as at its submission."""

from __future__ import annotations

from colane.api.job_request import ChangeBody
from colane.core.events import LimitsChanged
from colane.core.reducers.changing import is_held_whole
from colane.model.job import Job, JobId
from colane.model.job_spec import NewLimit
from colane.model.problem import Problem
from colane.server.board.submission import ASKED, launch_key
from colane.server.board.turn import Turn
from colane.server.ground.pools import PoolRules
from colane.server.ground.problems import RefusedError
from colane.server.store.store import LAUNCH_SPECS
from colane.server.submitting.qos import longest_s


def change(turn: Turn, job_id: JobId, by: str, body: ChangeBody, pools: PoolRules) -> None:
    """Ask for other limits of a live job; the caller has made sure that it has not ended.

    Raises:
        RefusedError: 404, there is no such live job; 422, nothing is to be changed, or not to that.
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
    qos = str((kept.get(ASKED) or {}).get("qos", ""))
    most_s = longest_s(qos)
    if most_s is not None and (limit_s is None or limit_s > most_s):
        raise RefusedError(422, [Problem("time_limit", f"must be at most {most_s / 60:g}m of qos {qos}")])
    if problems := [*pools.too_long(job.spec.pool, limit_s)]:
        raise RefusedError(422, problems)
