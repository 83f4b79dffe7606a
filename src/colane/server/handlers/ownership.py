"""The owner of a job, checked before the job is touched."""

from __future__ import annotations

from collections.abc import Iterable

from colane.api.job_request import JobRequest
from colane.model.job import Job, JobId
from colane.server.board.read_model import ReadModel
from colane.server.board.turn import Turn
from colane.server.ground.access import Caller, Role
from colane.server.ground.problems import RefusedError
from colane.server.ground.sight import Sight
from colane.server.store.store import FINISHED_JOBS, Document, job_key
from colane.server.store.unreadable import read_one


def owned(request: JobRequest, caller: Caller) -> JobRequest:
    """Return a request that names its user: the caller where it names none.

    Raises RefusedError: 403, the caller may not submit as the user it names.
    """
    user = caller.submits_as(request.user)
    if request.priority > 0 and not caller.may_all:
        text = "must be at most 0: only an operator raises it; qos debug puts short jobs first"
        raise RefusedError.because(403, text, "priority")
    return request if request.user == user else request.model_copy(update={"user": user})


def demand_runnable(requests: Iterable[JobRequest], read_model: ReadModel) -> None:
    """Refuse jobs that a node of their pool could not run as their users.

    Raises RefusedError: 403, with the node and the fix.
    """
    for user, pool in dict.fromkeys((request.user, request.pool) for request in requests):
        for record in read_model.nodes.values():
            if record.node.pool == pool and not record.lost and record.runs_as not in {"", user}:
                only = f"node {record.node.name} runs jobs of {record.runs_as} only"
                fix = "an agent that root runs serves all users (docs/how-to/security.md)"
                raise RefusedError.because(403, f"{user} may not submit here: {only}; {fix}", "user")


def judge(turn: Turn, job_id: JobId, sight: Sight, deed: str) -> Document | None:
    """Refuse a caller that does not own a job.

    Returns:
        Its record where it has ended, None for a live one and for an unknown one.

    Raises:
        RefusedError: 403; 404, the caller may not see it.
    """
    live = turn.read_model.jobs.get(job_id)
    ended = read_one(turn.reads, FINISHED_JOBS, job_key(job_id), _with_owner) if live is None else None
    if live is not None:
        sight.demand_owner(job_id, live.spec.user, deed)
    elif ended is not None:
        sight.demand_owner(job_id, str(ended["job"]["spec"].get("user", "")), deed)
    elif (owner := turn.read_model.array_with(job_id)) is not None:
        sight.demand_owner(job_id, owner.spec.user, deed)
    return ended


def _with_owner(ended: Document) -> Document:
    """A record that tells whose job it was, and how it ended."""
    if not (isinstance(ended["job"]["spec"].get("user", ""), str) and ended["job"]["state"]):
        raise ValueError("it does not say whose job it was, or how that ended")
    return ended


def demand_live(turn: Turn, job_id: JobId, sight: Sight, deed: str) -> None:
    """Refuse another user's job, and one that has ended, by its end; an unknown one is refused by the change.

    Raises RefusedError: 403; 404; 409.
    """
    ended = judge(turn, job_id, sight, deed)
    if ended is not None:
        raise RefusedError.because(409, f"job {job_id} has already ended: {ended['job']['state']}")


def demand_launch(job: Job, sight: Sight) -> None:
    """Refuse callers that may not see a job's command and environment: only its owner and its agents may.

    Raises RefusedError: 403; 404, the caller may not see it.
    """
    nodes = () if job.placement is None else job.placement.nodes
    if sight.caller.role is not Role.AGENT or sight.caller.name not in nodes:
        sight.demand_owner(job.id, job.spec.user, "read the environment of")
