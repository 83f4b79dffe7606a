"""What is kept of how a job was submitted: all of it while the job lives, no environment and no secret in its record.

It is told to the job's owner and to operators alone. Environments leave the store with the end of their jobs, and so
do secrets among the words of a command, as far as they are known as such (`model.secrets`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from colane.api.forms import UNREADABLE
from colane.api.job_request import JobRequest
from colane.api.jobs import JobRequestObject
from colane.api.nodes import LaunchSpecObject
from colane.model.job import Job, JobSpec
from colane.model.job_fields import JOB_FIELDS
from colane.model.job_spec import PromisedGpus
from colane.model.phases import Array, Hold
from colane.model.secrets import masked
from colane.server.ground.problems import RefusedError
from colane.server.store.documents import Body
from colane.server.store.store import job_key

# -- A job as it is taken in: what policies see of it, and what only the agent does.


@dataclass(frozen=True, slots=True)
class Admitted:
    """A job that may enter the queue."""

    spec: JobSpec  # what policies see
    launch: Body  # command, working directory, environment: for the store's `launch_specs` and the agent only
    model_name: str | None  # built-in model, None for a command
    holds: tuple[Hold, ...] = ()  # what keeps it from starting yet
    is_singleton: bool = False  # earlier jobs of its user and name must have ended
    array: Array | None = None  # its elements, where it is an array
    # those of them, counted from 0, that wait for something of their own, each with that
    elements: tuple[tuple[int, tuple[Hold, ...]], ...] = ()
    after: str = ""  # the jobs that the spec's `after` means, by id; empty where it waits for none
    promised: PromisedGpus | None = None  # GPUs by which its deadline is kept; None where it has none

    @property
    def ids(self) -> int:
        """How many ids it takes: of an array, one more than it has elements."""
        return 1 if self.array is None else 1 + self.array.size

    @property
    def waiting(self) -> int:
        """How many jobs of it wait, as quotas count them: of an array, its elements."""
        return 1 if self.array is None else self.array.size


ASKED: Final = "request"
"""In a launch spec: the request's fields as they were given, but for those that the launch spec has itself."""

_IN_LAUNCH: Final = frozenset({"command", "workdir", "env", "user"})
_PLACES: Final = {name: place for place, name in enumerate(JobRequest.model_fields)}
SLURMS: Final = "SLURM_JOB_PARTITION"
_OF_ONE_TIME: Final = frozenset(field.name for field in JOB_FIELDS if field.of_one_time)


def launch_key(job: Job) -> str:
    """Return under which key what is kept for a job's launch lies: elements have that of their array."""
    return job_key(job.id if job.element is None else job.element.array)


def asked(request: JobRequest) -> JobRequestObject:
    """Return what a launch spec keeps of a request besides what it launches."""
    names = sorted(request.model_fields_set - _IN_LAUNCH, key=_PLACES.__getitem__)
    said = {name: _as_json(value) for name in names if (value := getattr(request, name)) is not None}
    return cast("JobRequestObject", said)


def _as_json(value: object) -> object:
    """A field's value, which holds no others that JSON does not know; pydantic takes three times as long for it."""
    if isinstance(value, tuple):
        return [*value]
    return dict(value) if isinstance(value, dict) else value


def to_launch(launch: Mapping[str, Any], pool: str) -> LaunchSpecObject:
    """Return what of a launch spec an agent is told, with the pool it starts in, which who submits it cannot know."""
    told = {name: value for name, value in launch.items() if name != ASKED}
    if SLURMS in launch["env"]:
        told["env"] = {**launch["env"], SLURMS: pool}
    return cast("LaunchSpecObject", told)


def for_record(launch: Mapping[str, Any] | None) -> Body | None:
    """Return what a job's record keeps of its launch spec when the job has ended."""
    if launch is None:
        return None
    try:
        words, hidden = masked(launch["command"])
        return {"command": words, "hidden": list(hidden), "workdir": launch["workdir"], ASKED: launch.get(ASKED)}
    except UNREADABLE:  # a job ends, whatever was done to what is kept for its launch
        return None


def view(kept: Mapping[str, Any] | None) -> tuple[list[str] | None, str | None, str | None]:
    """Return command, working directory and file of output as the job object has them; None of what is not kept."""
    known = for_record(kept)
    if known is None:
        return None, None, None
    return known["command"], known["workdir"], (known[ASKED] or {}).get("output")


def to_submit_again(kept: Mapping[str, Any] | None) -> JobRequestObject:
    """Return the request by which a job like this one is submitted, without an environment.

    Raises RefusedError: 409, of what is needed not all was kept.
    """
    said = None if kept is None else kept.get(ASKED)
    if kept is None or said is None:
        raise RefusedError.because(409, "an older Colane took this job in and has not kept its request: submit it anew")
    if kept.get("hidden"):
        names = ", ".join(kept["hidden"])
        fix = "submit it anew, with the secret in the environment"
        raise RefusedError.because(409, f"its command held a secret ({names}), not kept beyond its end: {fix}")
    command = {} if "model_name" in said else {"command": list(kept["command"])}
    options = {name: value for name, value in said.items() if name not in _OF_ONE_TIME}
    return {**options, **command, "workdir": kept["workdir"]}
