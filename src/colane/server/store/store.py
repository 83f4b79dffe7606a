"""What the service asks of a store: collections of JSON documents and an audit log, changed by transactions.

Rules every store keeps (`tests/server/test_store_contract.py` runs them against each):

* `commit` returns only when all of the transaction is durable; a crash leaves all of it or nothing.
* Within a transaction, clears go first, then deletes, then puts, so one that does all three to a key puts it.
* Keys are text and come back in ascending order of their UTF-8 bytes. Keys of jobs are padded
  (`job_key`), so that this is the order of ids.
* There is one writer: the one that drew the newest epoch. A commit that names another is refused.
* A commit that names the store's version adds one to it. Whether a commit whose connection broke was made, and whether
  it is still to be, is not known: if it is made later, the next one names a version that is not the store's any more.
* Reading is allowed from any thread and sees whole transactions only.
* A record that is not as it was written is never given for one that is: reads of several leave it out, `get` raises,
  and `unreadable` names it. Each commit counts what it leaves in its collections, so that records that are gone are
  told from ones that never were (`note_missing`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from colane.model.words import count

Document = Mapping[str, Any]  # a JSON object

SUBMITTED_JOBS: Final = "submitted_jobs"  # queued jobs, by `job_key`
ASSIGNED_JOBS: Final = "assigned_jobs"
"""Jobs that hold GPUs, by `job_key`; with `nodes` they are the desired state of the cluster."""
NODES: Final = "nodes"  # nodes by name
FINISHED_JOBS: Final = "finished_jobs"  # ended jobs, by `job_key`
LAUNCH_SPECS: Final = "launch_specs"
"""Commands and environments of live jobs, by `job_key`: the only place that may hold a secret, but for `META`."""
PROFILES: Final = "profiles"  # profiles by the JSON text of their key
MEASUREMENTS: Final = "measurements"  # sets of jobs that ran together, by state version and position
LENGTHS: Final = "lengths"  # what schedulers before 0.4 kept of kinds of jobs: nothing reads it
RUN_TIMES: Final = "run_times"  # how long jobs ran until they ended, by family
USED: Final = "used"  # what users have used of late, by their names
TOKENS: Final = "tokens"  # the callers tokens stand for, by their digests
IDEMPOTENCY: Final = "idempotency"  # first answers by idempotency key
META: Final = "meta"  # counters of the service itself, and batches of jobs that enter the queue (`board.slices`)
EPOCHS: Final = "epochs"  # starts of schedulers on the store, by `job_key` of their numbers

COPIED_KEY: Final = "copied"
"""In `META` of a copy: the ids of the stores over the network that it is a copy of, in whose place it may stand."""
COPYING_KEY: Final = "copying"  # in `META` of a store that is being copied into: half a copy is no store to start on

AUDIT_LINES_MAX: Final = 1_000_000
"""Lines kept when a store is opened, about 300 MB; older ones go. Job records hold the stories as well."""
AUDIT: Final = "audit"
"""Named like a collection where a line of the audit log cannot be read; its key is the line's number."""
UNREADABLE_LINE: Final = "unreadable"
"""Kind of the line that stands in the place of one that cannot be read, so that numbers have no gaps."""

COLLECTIONS: Final = (
    SUBMITTED_JOBS,
    ASSIGNED_JOBS,
    NODES,
    FINISHED_JOBS,
    LAUNCH_SPECS,
    PROFILES,
    MEASUREMENTS,
    LENGTHS,
    RUN_TIMES,
    USED,
    TOKENS,
    IDEMPOTENCY,
    META,
    EPOCHS,
)

JOB_KEY_DIGITS: Final = 16  # 2^53, the largest id JSON carries exactly, has 16 digits


class StoreError(Exception):
    """The store could not be opened, read or written; the message says which file and why."""


class ConflictError(StoreError):
    """The store is not as its writer takes it to be: it is to be read anew."""


class SupersededError(Exception):
    """A newer scheduler writes to the store: the older one must end."""


class Unreadable(NamedTuple):
    """A record that cannot be read, and why. It stays where it is.

    Of records that are gone the key is empty, as nothing tells it any more.
    """

    collection: str
    key: str
    problem: str

    @classmethod
    def missing(cls, collection: str, counted: int, found: int) -> Unreadable:
        """Return what is said of a collection that holds fewer records than were counted with its last commit."""
        return cls(collection, "", f"lacks {count(counted - found, 'record')} of {counted}")

    def __str__(self) -> str:
        """As a person is told."""
        flaw = f"{self.key} cannot be read: {self.problem}" if self.key else self.problem
        return f"{self.collection} {flaw}"


class UnreadableError(StoreError):
    """One record cannot be read; the store goes on."""


class Durability(NamedTuple):
    """Whether a store keeps what it has acknowledged."""

    kind: str  # of the store
    risks: tuple[str, ...] = ()  # what may be lost, each with what is to be set; empty where nothing is
    unchecked: tuple[str, ...] = ()  # settings of its server that could not be looked at

    def __str__(self) -> str:
        """As an operator is told; empty where there is nothing to say."""
        risks = f"the store may lose what it has acknowledged: {'; '.join(self.risks)}" if self.risks else ""
        unchecked = f"the store's server does not tell {', '.join(self.unchecked)}" if self.unchecked else ""
        return "; ".join(filter(None, [risks, unchecked]))


class Put(NamedTuple):
    """Write one document, replacing what the key held."""

    collection: str
    key: str
    document: Document


class Delete(NamedTuple):
    """Remove one document; nothing happens when it is not there."""

    collection: str
    key: str


class AuditEntry(NamedTuple):
    """What happened, when: one line of the append-only log before the store numbered it."""

    at_s: float
    kind: str
    body: Document


class AuditLine(NamedTuple):
    """An audit entry with its number; numbers ascend without gaps inside one transaction."""

    number: int
    at_s: float
    kind: str
    body: Document


@dataclass(frozen=True, slots=True)
class Transaction:
    """Changes that become durable together or not at all."""

    puts: Sequence[Put] = ()  # documents to write
    deletes: Sequence[Delete] = ()  # documents to remove
    audit: Sequence[AuditEntry] = ()  # lines to append to the audit log
    clears: Sequence[str] = field(default=())  # collections to empty first

    def __bool__(self) -> bool:
        """Whether it changes anything."""
        return bool(self.puts or self.deletes or self.audit or self.clears)


class Snapshot(NamedTuple):
    """What a store held at one moment."""

    events: int  # number of its newest event then: the log is only ever added to, so what it had can be read later
    documents: Mapping[str, Sequence[tuple[str, Document]]]  # all documents by collection, in order of key


class StoreWriter(NamedTuple):
    """Who commits, and what the store is taken to be."""

    epoch: int  # the epoch that the writer drew; 0 before any was
    # number of the newest audit line that it knows; None where the commit does not depend on it
    events: int | None = None
    # the store's version as the writer knows it, to which the commit adds one; None where the commit neither depends on
    # it nor changes what others depend on
    version: int | None = None


class Readable(Protocol):
    """What is read of a store by its records. Every method may raise `StoreError`."""

    def get(self, collection: str, key: str) -> Document | None:
        """Return one document, None when it is not there.

        Raises:
            StoreError: Also where the store is no more the one that was opened: what is not there then is not lost.
            UnreadableError: It is there, and cannot be read.
        """

    def read_all(self, collection: str) -> Iterator[tuple[str, Document]]:
        """Return all documents of a collection as they are now, in order of key."""

    def page(self, collection: str, after: str, limit: int) -> list[tuple[str, Document]]:
        """Return at most `limit` documents with keys greater than `after` ("" for the first page)."""

    def page_back(
        self, collection: str, before: str | None, limit: int, containing: Sequence[str] = ()
    ) -> list[tuple[str, Document]]:
        """Return at most `limit` documents with keys less than `before` (None for the last), the greatest key first.

        Only documents whose JSON text, as `json.dumps` writes it, holds all texts of `containing`: a first sieve that
        decodes nothing. The documents of `FINISHED_JOBS` alone are written so.
        """

    def note_unreadable(self, record: Unreadable) -> bool:
        """Take note of a record that is as it was written and means nothing to its reader; whether that is news."""


class Store(Readable, Protocol):
    """Collections of documents and an audit log. Every method may raise `StoreError`."""

    def commit(self, transaction: Transaction, writer: StoreWriter | None = None) -> int:
        """Make the transaction durable.

        Args:
            transaction: What is to be changed.
            writer: The scheduler that commits; None for other writers.

        Returns:
            Number of the newest audit line (0 when there is none yet).

        Raises:
            SupersededError: The store's newest epoch is not the writer's. Nothing was changed.
            ConflictError: Its newest audit line or its version is not the one that the writer knows. Nothing was
                changed.
            StoreError: It was not made; over a network also where that is not known.
        """

    def remember(self, *collections: str) -> None:
        """Keep what `read_all` returns of these, and forget all others.

        What lies there as it did is returned as the same object, where that takes less than to decode it anew.
        """

    def count(self, collection: str) -> int:
        """Return the number of documents in a collection."""

    def audit(self, after: int, limit: int) -> list[AuditLine]:
        """Return at most `limit` audit lines with numbers greater than `after`, oldest first."""

    def last_audit_number(self) -> int:
        """Return the number of the newest audit line, 0 when there is none."""

    def take_lines(self, lines: Sequence[AuditLine]) -> None:
        """Append lines of another store's audit log with their numbers, greater than all that are here: for a copy."""

    def version(self) -> int:
        """Return how many commits have named a version.

        Raises StoreError: it cannot be read, or is no more the store that was opened.
        """

    def unreadable(self) -> Sequence[Unreadable]:
        """Return the records that were found not to be as they were written, in the order in which they were found."""

    def note_missing(self) -> None:
        """Take note of each collection that holds fewer records than the commits to it have left there."""

    def check(self) -> None:
        """Raise `StoreError` when what is written would be lost: the store was deleted, moved or replaced meanwhile."""

    def durability(self) -> Durability:
        """Return what was found of that when the store was opened."""

    def scrub(self) -> None:
        """Let nothing that was deleted be readable any more in files that are left, commands and environments first.

        A server over the network keeps files of its own, which are not ours to rewrite.
        """

    def close(self) -> None:
        """Release files and connections. No other method may be called afterwards."""


def judge_writer(writer: StoreWriter, newest_epoch: int, events: int, version: int) -> None:
    """Refuse a writer that is not, or does not know, the newest.

    Raises:
        SupersededError: See `Store.commit`.
        ConflictError: See `Store.commit`.
    """
    if writer.epoch != newest_epoch:
        raise SupersededError(
            f"another scheduler has started on this store (epoch {newest_epoch}, this one has {writer.epoch}), so this "
            "one ends: two that write would give GPUs and job ids twice"
        )
    if writer.events not in {None, events}:
        raise ConflictError(f"the store is at event {events}, not {writer.events}: it is read anew")
    if writer.version not in {None, version}:
        raise ConflictError(
            f"the store is at version {version}, not {writer.version}, as a commit taken for lost was made: it is read "
            "anew"
        )


def job_key(job_id: int) -> str:
    """Return the key of a job in a store, ordered as ids are."""
    return f"{job_id:0{JOB_KEY_DIGITS}d}"
