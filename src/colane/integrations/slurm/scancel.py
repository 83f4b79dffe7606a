"""`scancel`: cancel jobs, or send them a signal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from colane.client.errors import Refused
from colane.integrations.slurm import contact, getopt
from colane.integrations.slurm.errors import SlurmError
from colane.integrations.slurm.rows import LIVE_MAX, named_jobs, names, rows_of
from colane.integrations.slurm.signalling import send, signal_named
from colane.integrations.slurm.squeue import filter_of

if TYPE_CHECKING:
    from colane.client.client import Client

VALUED: Final = (
    "-u,--user -n,--name,--jobname -t,--state -p,--partition -s,--signal -A,--account -q,--qos -w,--nodelist"
)
FLAGS: Final = "--me -b,--batch -f,--full -Q,--quiet -v,--verbose -H,--hurry -c,--ctld --wckey"
REFUSED: Final = {
    "-i": "leave it out: it does not ask",
    "--interactive": "leave it out: it does not ask",
    "-M": "there is one cluster, that of COLANE_URL",
    "--clusters": "there is one cluster, that of COLANE_URL",
}
KILL: Final = 9


def run(words: Sequence[str], shims: str) -> int:
    """Cancel jobs, or signal those that run; return the exit code.

    Raises:
        SlurmError: Nothing is named, or something that is not there.
    """
    del shims
    asked = getopt.read(words, VALUED, FLAGS, refused=REFUSED)
    number = signal_named(asked.last("signal"))
    filters = any(asked.has(name) for name in ("user", "me", "jobname", "state", "partition", "account", "nodelist"))
    if not asked.rest and not filters:
        raise SlurmError("No job identification provided: scancel JOB..., or --me, --user, --name, --state")
    code = 0
    with contact.client() as scheduler:
        if (user := _whose_queued(asked)) is not None:
            scheduler.cancel_queued(user=user)
        wanted = _found(scheduler, asked) if filters else names(asked.rest)
        for job_id, elements in wanted:
            said = _end(scheduler, job_id, elements, number)
            if said and not asked.has("quiet"):
                contact.note("scancel", f"error: {said}")
            code |= bool(said)
    return code


def _whose_queued(asked: getopt.VerbWords) -> str | None:
    """Return the user of which all that waits is meant: that is one request, however many jobs these are."""
    taken = filter_of(asked, states="state", name="jobname")
    others = taken.jobs or taken.pools or taken.accounts or taken.nodes
    is_all = not (asked.rest or others or asked.has("signal") or asked.has("qos"))
    return next(iter(taken.users)) if is_all and len(taken.users) == 1 and taken.states == {"PENDING"} else None


def _found(scheduler: Client, asked: getopt.VerbWords) -> list[tuple[int, set[int] | None]]:
    """What filters take of all jobs, or of those that are named: jobs, whole arrays, or some elements of an array."""
    taken = filter_of(asked, states="state", name="jobname")
    missing: list[int] = []
    if asked.rest:
        jobs = named_jobs(scheduler, names(asked.rest), missing=missing)
    else:
        jobs = scheduler.listing(LIVE_MAX, elements=True)["jobs"]
    is_by_element = bool(asked.rest) or asked.has("state") or asked.has("nodelist")
    found: dict[int, set[int] | None] = dict.fromkeys(missing)  # what is not there is complained of
    for row in rows_of(jobs, expand=True):
        if not taken.takes(row):
            continue
        if not row.index.isdecimal() or not is_by_element:
            found[row.array] = None
        elif (some := found.setdefault(row.array, set())) is not None:
            some.add(int(row.index))
    return list(found.items())


def _end(scheduler: Client, job_id: int, elements: set[int] | None, number: int | None) -> str:
    """Cancel or signal; return what to complain of."""
    try:
        if number is not None and number != KILL:
            return send(scheduler, job_id, elements, number)
        if elements is None:
            scheduler.cancel(job_id)
        else:
            scheduler.cancel(job_id, elements=",".join(map(str, sorted(elements))))
    except Refused as refused:
        if refused.status == 404:
            return f"Kill job error on job id {job_id}: Invalid job id specified"
        if refused.status == 403:
            return f"Kill job error on job id {job_id}: Access/permission denied"
        if refused.status != 409:  # one that has ended is as it should be
            raise
    return ""
