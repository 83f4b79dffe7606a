"""`scancel`: cancel jobs, or send them a signal."""

from __future__ import annotations

from collections.abc import Sequence
from getpass import getuser
from typing import TYPE_CHECKING, Final

from colane.client.errors import Refused
from colane.integrations.slurm import contact, getopt
from colane.integrations.slurm.errors import SlurmError
from colane.integrations.slurm.rows import LIVE_MAX, SlurmRow, names
from colane.integrations.slurm.signalling import send, signal_named
from colane.integrations.slurm.squeue import wanted_states

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
        wanted = names(asked.rest) if asked.rest else [(job_id, None) for job_id in _found(scheduler, asked)]
        for job_id, elements in wanted:
            said = _end(scheduler, job_id, elements, number)
            if said and not asked.has("quiet"):
                contact.note("scancel", f"error: {said}")
            code |= bool(said)
    return code


def _found(scheduler: Client, asked: getopt.VerbWords) -> list[int]:
    users = {*asked.all("user"), *([getuser()] if asked.has("me") else [])}
    states = wanted_states(asked.all("state"))
    told = (("jobname", "name"), ("partition", "pool"), ("nodelist", "node"))
    return [
        job["id"]
        for job in scheduler.listing(LIVE_MAX)["jobs"]
        if SlurmRow(job).state in states
        and (not users or job["user"] in users)
        and (not asked.all("account") or SlurmRow(job).account in asked.all("account"))
        and all(not (some := asked.all(option)) or job[field] in some for option, field in told)  # type: ignore[literal-required]
    ]


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
