"""The verbs on jobs that were submitted. Whether one may be done now, and by which user, is told by `facts.may`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final


class Deed(StrEnum):
    """What users do to jobs."""

    CANCEL = "cancel"
    SUSPEND = "suspend"  # or hold, while it waits
    RESUME = "resume"  # or release, while it waits
    REQUEUE = "requeue"
    CHANGE = "change"
    AGAIN = "again"  # submit one like it: it runs as its user, so no other user may


@dataclass(frozen=True, slots=True)
class JobVerb:
    """One verb."""

    deed: Deed  # it; refusals name it so, and the story says by which user
    does: str  # what the route does, as its reference says
    method: str = "POST"  # of the request
    in_query: frozenset[str] = frozenset()  # names of arguments that stand in the query; all others are the body's
    label: str = ""  # on its button; empty where the page has none
    past: str = ""  # what is said of jobs to which it was done
    waiting_label: str = ""  # on its button where all its jobs wait
    loses: str = ""  # what becomes of run time since the last save, as the page asks before; empty where none is lost
    would: str = ""  # what an assistant is told of it before it asks for it; empty where it may not
    slurm: tuple[str, ...] = ()  # what `scontrol` calls it
    help: str = field(default="", repr=False)  # of its command, where the command takes jobs alone

    @property
    def suffix(self) -> str:
        """Of its path, behind the job's."""
        return "" if self.method == "DELETE" else f"/{self.deed}"

    def path_of(self, of: object) -> str:
        """Return the path for a job."""
        return f"/job/{of}{self.suffix}"


CANCEL: Final = JobVerb(
    Deed.CANCEL,
    "Cancel a job: a queued one ends now, a running one when its process is gone; of an array, all or some.",
    method="DELETE",
    in_query=frozenset({"elements"}),
    label="Cancel",
    past="cancelled",
    loses="is lost",
    would="end the job for good; what it has not saved is lost",
)
SUSPEND: Final = JobVerb(
    Deed.SUSPEND,
    """Suspend a job: a queued one does not start, a running one waits at a step boundary and keeps its memory.

With `to_host` its GPU memory is moved to the host besides; its GPU is free for others until it is resumed.""",
    label="Suspend",
    past="suspended",
    waiting_label="Hold",
    would="keep it from going on until it is resumed",
    slurm=("hold", "uhold", "suspend"),
)
RESUME: Final = JobVerb(
    Deed.RESUME,
    "Let a suspended job go on, one that waits not before `at`; any other stays as it is.",
    label="Resume",
    past="let go on",
    waiting_label="Release",
    would="let it go on, or start though it is held",
    slurm=("release", "resume"),
    help="Let suspended jobs go on; others stay as they are.",
)
REQUEUE: Final = JobVerb(
    Deed.REQUEUE,
    "Take a running job off its GPUs, once it has saved its state if it has said how; it is queued again.",
    label="Requeue",
    past="queued again",
    loses="has to be made again, unless the state is saved now",
    would="take it off its GPUs, once it has saved its state if it has said how; it waits anew",
    slurm=("requeue",),
    help="""Take running jobs off their GPUs and queue them again; they keep their ids and their place in line.

A job that was submitted with --checkpoint saves its state first and goes on from there; any other begins anew, and
at a terminal that is asked first. It counts as no failure. colane again submits a job once more as a new one.""",
)
CHANGE: Final = JobVerb(
    Deed.CHANGE,
    "Give a live job another time limit, or an array another number of elements that run at once; null for none.",
)
JOB_VERBS: Final[Mapping[Deed, JobVerb]] = {row.deed: row for row in (CANCEL, REQUEUE, CHANGE, SUSPEND, RESUME)}
