"""Jobs as Slurm tells them: its states, its numbers, its words for why one waits."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from colane.client.told import facts_of, in_force
from colane.integrations.slurm.contact import SlurmError
from colane.integrations.slurm.request import LABEL, QOS, REQUEUE, TASKS
from colane.model.arrays import Indexes, element_id, known_indexes, parse_name
from colane.model.phases import ENDED

if TYPE_CHECKING:
    from colane.api.jobs import JobObject
    from colane.client.client import Client

STATES: Final = {
    "queued": ("PENDING", "PD"),
    "assigned": ("CONFIGURING", "CF"),
    "launching": ("RUNNING", "R"),
    "running-protected": ("RUNNING", "R"),
    "running": ("RUNNING", "R"),
    "paused": ("SUSPENDED", "S"),
    "checkpointing": ("COMPLETING", "CG"),
    "stopping": ("COMPLETING", "CG"),
    "succeeded": ("COMPLETED", "CD"),
    "failed": ("FAILED", "F"),
    "out-of-memory": ("OUT_OF_MEMORY", "OOM"),
    "timed-out": ("TIMEOUT", "TO"),
    "cancelled": ("CANCELLED", "CA"),
}
"""Colane's states, and Slurm's word and letters for each."""

LIVE_MAX: Final = 10_000
ENDED_MAX: Final = 10_000

HELD: Final = {
    "user": "JobHeldUser", "begin": "BeginTime", "after": "Dependency", "limit": "QOSMaxJobsPerUserLimit",
    "array": "JobArrayTaskLimit",
}  # fmt: skip
"""Slurm's word for each hold, the weightiest first."""

NONE: Final = "N/A"


class SlurmRow:
    """One line of a list: a job, or the elements of an array that are no jobs yet.

    Attributes:
        job: The job, or the array.
        waiting: Indexes of those elements with their limit, as `4-7%2`; empty of a job.
        expected_s: When it would start as far as can be guessed, Unix time; None where that was not asked.
        expected: What is foreseen of its start; None where that is not.
        used: What it has used, as `colane eff` tells it: by `what`; empty where that was not asked.
    """

    def __init__(self, job: JobObject, waiting: str = "") -> None:
        self.job = job
        self.waiting = waiting
        self.expected_s: float | None = None
        self.expected = facts_of(job).get("expected_start")
        self.used: Mapping[str, float] = {}

    def starts(self, bound: Literal["p10_s", "p50_s", "p90_s"]) -> float | None:
        """When it starts as foreseen, Unix time; None where that is not known."""
        in_s = None if self.expected is None else self.expected[bound]
        return None if in_s is None else time.time() + in_s

    @property
    def array(self) -> int:
        """Id of its array, else its own."""
        return int(self.job.get("array_id") or self.job["id"])

    @property
    def name(self) -> str:
        """As Slurm names it: `12`, `12_3` or `12_[4-7%2]`."""
        if self.waiting:
            return f"{self.job['id']}_[{self.waiting}]"
        index = self.job.get("array_index")
        return str(self.job["id"]) if index is None else f"{self.array}_{index}"

    @property
    def index(self) -> str:
        """Which element it is."""
        index = self.job.get("array_index")
        return self.waiting or (NONE if index is None else str(index))

    @property
    def state(self) -> str:
        """Slurm's word."""
        return "PENDING" if self.waiting else STATES[self.job["state"]][0]

    @property
    def letters(self) -> str:
        """Slurm's letters for the state."""
        return "PD" if self.waiting else STATES[self.job["state"]][1]

    @property
    def elapsed_s(self) -> float:
        """How long its latest attempt has run, pauses left out, as with Slurm."""
        return 0.0 if self.state == "PENDING" else facts_of(self.job)["ran_s"]

    @property
    def start_s(self) -> float | None:
        """When its latest attempt started; None while it waits."""
        return None if self.state == "PENDING" else self.job.get("start_s")

    @property
    def nodes(self) -> str:
        """Names of its machines."""
        return "" if self.waiting else ",".join(self.job.get("nodes") or [])

    @property
    def cores(self) -> int:
        """Cores that are its own, or that it asks for; 1 of one that shares them."""
        booked = [] if self.waiting else self.job.get("booked_cores") or []
        return len(booked) or self.need("cores") or 1

    @property
    def node_count(self) -> int:
        """Machines that it is on, or asks for."""
        each = self.need("gpus_per_node")
        asked = self.need("gpus") // each if each else 1
        return (0 if self.waiting else len(self.job.get("nodes") or [])) or asked

    @property
    def qos(self) -> str:
        """How it is served, as was said at submission by whatever client."""
        return self.job["labels"].get(QOS, "normal")

    @property
    def tasks(self) -> str:
        """Tasks that its steps have room for, as was said at submission by Slurm's verbs."""
        return self.job["labels"].get(TASKS, "1")

    @property
    def may_be_requeued(self) -> bool:
        """Whether it was submitted without `--no-requeue` of Slurm's verbs."""
        return self.job["labels"].get(REQUEUE) != "no"

    @property
    def reason(self) -> str:
        """Slurm's word for why it waits."""
        if self.state != "PENDING":
            return "None"
        kinds = {hold["kind"] for hold in self.job.get("holds") or []}
        array = self.job.get("elements")
        if array is not None and array["throttle"] is None:
            kinds.discard("array")  # an array stands for its elements
        if any("'s budget of " in hold["by"] for hold in self.job.get("holds") or [] if hold["kind"] == "limit"):
            return "AssocGrpGRESMinutes"
        word = next((word for kind, word in HELD.items() if kind in kinds), "")
        if word:
            return word
        said = str(self.job.get("reason") or "").partition(":")[0]
        return said if said.isalnum() and said[:1].isupper() else "Resources"

    @property
    def exit(self) -> str:
        """`CODE:SIGNAL`."""
        return f"{self.job.get('exit_code') or 0}:{self.job.get('signal') or 0}"

    @property
    def account(self) -> str:
        """What was said of it at submission."""
        return self.job["labels"].get(LABEL, "")

    def need(self, name: str) -> Any:  # noqa: ANN401 - JSON
        """Return what it asked for."""
        needs: Any = self.job["needs"]
        return needs[name]

    def in_force(self, name: str) -> Any:  # noqa: ANN401 - JSON
        """Return one of its needs as it holds now."""
        return in_force(self.job, name)

    @property
    def tres(self) -> str:
        """What it takes, as Slurm counts it."""
        words = [f"cpu={self.cores}"]
        words += [f"mem={self.need('host_memory_bytes') // 2**20}M"] * bool(self.need("host_memory_bytes"))
        return ",".join(
            [*words, f"node={self.node_count}", *([f"gres/gpu={self.need('gpus')}"] * bool(self.need("gpus")))]
        )


def duration(seconds: float | None) -> str:
    """Return a time as `squeue` writes it: `M:SS`, `H:MM:SS` or `D-HH:MM:SS`."""
    if seconds is None:
        return "UNLIMITED"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}-{hours:02}:{minutes:02}:{rest:02}"
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def long_duration(seconds: float | None) -> str:
    """Return a time as `sacct` writes it: `HH:MM:SS` or `D-HH:MM:SS`."""
    if seconds is None:
        return "UNLIMITED"
    days, rest = divmod(int(seconds), 86_400)
    text = f"{rest // 3600:02}:{rest % 3600 // 60:02}:{rest % 60:02}"
    return f"{days}-{text}" if days else text


def moment(at_s: float | None, otherwise: str = NONE) -> str:
    """Return a time of the day in this machine's zone."""
    return otherwise if at_s is None else datetime.fromtimestamp(at_s).astimezone().strftime("%Y-%m-%dT%H:%M:%S")


def rows_of(jobs: Iterable[JobObject], *, expand: bool = False) -> Iterator[SlurmRow]:
    """Yield the lines of jobs: of an array, one for its elements that are no jobs yet, or one for each of them."""
    for job in jobs:
        array = job.get("elements")
        if array is None:
            yield SlurmRow(job)
            continue
        known = known_indexes(array["indexes"])
        limit = "" if array["throttle"] is None else f"%{array['throttle']}"
        pending = [_each(known, first, last) for first, last in array["pending"]]
        if expand:
            yield from (SlurmRow(job, str(index)) for indexes in pending for index in indexes)
        elif pending:
            yield SlurmRow(job, ",".join(map(_span, pending)) + limit)
        for first, last in array["cut"]:
            for index in _each(known, first, last):
                yield SlurmRow({**job, "elements": None, "array_id": job["id"], "array_index": index,
                           "state": "cancelled"})  # fmt: skip


class Filter(NamedTuple):
    """What options ask for of a list; what is empty takes all."""

    states: frozenset[str]  # Slurm's words
    users: frozenset[str] = frozenset()  # who submitted
    jobs: frozenset[str] = frozenset()  # names of jobs
    pools: frozenset[str] = frozenset()  # partitions
    accounts: frozenset[str] = frozenset()  # what was said at submission
    nodes: frozenset[str] = frozenset()  # where they run

    def takes(self, row: SlurmRow) -> bool:
        """Whether a line is asked for."""
        told = (
            (self.users, row.job["user"]), (self.jobs, str(row.job["name"])),
            (self.accounts, row.account), (self.nodes, row.nodes),
        )  # fmt: skip
        is_there = not self.pools or not self.pools.isdisjoint(str(row.job["pool"]).split(","))
        return is_there and row.state in self.states and all(not some or value in some for some, value in told)


def _each(known: Indexes, first: int, last: int) -> list[int]:
    """Return the indexes of an array from one of them to another."""
    low, high = known.ordinal_of(first), known.ordinal_of(last)
    return [] if low is None or high is None else [known.index_of(one) for one in range(low, high + 1)]


def _span(indexes: list[int]) -> str:
    """Write indexes as `squeue` does where they have no gap."""
    low, high = indexes[0], indexes[-1]
    if high - low == len(indexes) - 1:
        return str(low) if low == high else f"{low}-{high}"
    return ",".join(map(str, indexes))


def names(words: Iterable[str]) -> list[tuple[int, set[int] | None]]:
    """Return jobs, and which elements of them, that words name: `12`, `12_3`, `12_[3,7-9]`, several with commas.

    Raises SlurmError: one names none.
    """
    return [_name(text) for word in words for text in _apart(word) if text]


def _apart(word: str) -> list[str]:
    """Part at commas that stand in no brackets."""
    found, depth = [""], 0
    for letter in word:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and not depth:
            found.append("")
        else:
            found[-1] += letter
    return found


def _name(text: str) -> tuple[int, set[int] | None]:
    plain = text.strip().partition(".")[0].partition("+")[0].removesuffix("_*").replace("_[", "[").partition("%")[0]
    plain += "]" * (plain.count("[") - plain.count("]"))
    try:
        job, indexes = parse_name(plain)
    except ValueError as error:
        raise SlurmError(f"Invalid job id specified: {text}: it must be as 12, 12_3 or 12_[3,7-9]") from error
    if indexes is None:
        return job, None
    return job, {index for one in indexes.ranges for index in range(one.first, one.last + 1, one.step)}


def named_jobs(scheduler: Client, wanted: list[tuple[int, set[int] | None]], *, missing: list[int]) -> list[JobObject]:
    """Return jobs by their names: of an array, itself and those of its elements that are jobs, live or ended.

    Args:
        scheduler: Where they are.
        wanted: Their names.
        missing: Takes the ids of those that are not there.
    """
    from colane.client.errors import Refused  # noqa: PLC0415

    found: dict[int, JobObject] = {}
    for job_id, indexes in wanted:
        try:
            job = scheduler.job(job_id)
        except Refused as refused:
            if refused.status != 404:
                raise
            missing.append(job_id)
            continue
        if (array := job.get("elements")) is None:
            found[job_id] = job
            continue
        known = known_indexes(array["indexes"])
        if indexes is not None:
            ordinals = [ordinal for index in sorted(indexes) if (ordinal := known.ordinal_of(index)) is not None]
            found.update((one, scheduler.job(one)) for one in (element_id(job_id, each) for each in ordinals))
            continue
        found[job_id] = job
        found.update((each["id"], each) for each in elements(scheduler, job))
    return list(found.values())


def elements(scheduler: Client, job: JobObject) -> Iterator[JobObject]:
    """Yield the elements of an array that are jobs: those that have ended, and those that have not."""
    array, job_id = job["elements"], job["id"]
    assert array is not None  # noqa: S101 - of an array
    live = scheduler.listing(LIVE_MAX, elements=True)["jobs"] if job["state"] not in ENDED else []
    yield from (each for each in live if each.get("array_id") == job_id and each.get("elements") is None)
    for each in scheduler.finished_jobs(job_id):
        if each["id"] > job_id + array["count"]:
            return
        if each.get("array_id") == job_id:
            yield each
