"""The agent's directory on disk: one directory for each attempt of a job.

    STATE/agent_id          identity of this agent, for ever
    STATE/lock              held by the one agent that uses STATE
    STATE/jobs/7-1/         attempt 1 of job 7, until the scheduler knows its end
    STATE/ended/7-1/        after that: its log and its records, for a while

In a job's directory: `launch.json` (how it was placed), `command` (what the shim runs; holds the user's environment, so
only the agent may read it), `memory_limit` (where it may use less now than that says), `own/` (the job's user's:
`steps`, what the job reports), the shim's files (see `shim`), `finished.json` (what the scheduler is told). A directory
appears complete, by rename.

Where the agent is root, others may pass through these directories to what is theirs, and read nothing else.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from itertools import islice, pairwise
from math import inf
from pathlib import Path
from typing import Any

from colane.adaptor import wire
from colane.agent.errors import AgentError
from colane.agent.files.heard import KnownHistory, as_text, from_text
from colane.agent.files.lease import Lease, since_boot_s
from colane.agent.files.logs import segments
from colane.agent.files.removals import Removals
from colane.agent.processes import ProcessId
from colane.agent.reconcile import Key
from colane.agent.supervisor import programs, shim_files
from colane.agent.supervisor.command import Command
from colane.agent.supervisor.shim import ShimCommand
from colane.agent.supervisor.shim_files import ASKED
from colane.agent.supervisor.shim_system import read_file
from colane.api.reports import FinishedObject
from colane.devices.host import boot_id

LAUNCH, OWN, STEPS, FINISHED, SHIM_ERRORS = "launch.json", "own", "steps", "finished.json", "shim.err"
TOKEN = "token"  # noqa: S105 - the name of a file
"""In `own`: by what the job calls the scheduler as its owner; it goes with the directory, at the end of the attempt."""
_NAME = re.compile(r"\d+-\d+")
NAMES_MAX = 1000  # of an attempt's directory more are not looked at: what is not ours there may be endless
_SECRET = 0o600
_PRIVATE = 0o700
_PASSABLE = 0o711


@dataclass(frozen=True, slots=True)
class LaunchFacts:
    """How an attempt is placed."""

    boot_id: str  # boot of the machine in which it was prepared
    prepared_s: float  # when
    gpus: tuple[int, ...] = ()  # indexes of its devices in rank order
    cores: tuple[int, ...] = ()  # its cores
    cpu_devices: bool = False  # whether its devices are cpu devices
    mps: bool = False  # whether it goes through an MPS daemon
    port: int = 0  # TCP port handed out to it, 0 for none
    # cores of each rank here that is a process of ours; empty where the job starts its own
    rank_cores: tuple[tuple[int, ...], ...] = ()


RANKS_MAX = 256  # processes of one job on one node
_FACTS = frozenset(field.name for field in fields(LaunchFacts))
_NUMBER, _MAYBE_INT = (int, float), (int, type(None))
_EXIT: Mapping[str, type | tuple[type, ...]] = {
    "outcome": str, "exit_code": _MAYBE_INT, "signal": _MAYBE_INT, "detail": str, "start_s": _NUMBER, "end_s": _NUMBER,
    "cpu_s": _NUMBER, "rss_bytes_max": int, "oom_kills": int, "stopped": bool, "log_bytes": int, "log_truncated": bool,
}  # fmt: skip


class JobDir:
    """One attempt on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._inside = f"{path}/"  # joined by hand: all of it is looked at for each job, again and again
        job, _, attempt = path.name.partition("-")
        self.key = Key(int(job), int(attempt))

    @property
    def steps_path(self) -> Path:
        """The steps file that the job writes."""
        return self.path / OWN / STEPS

    def facts(self) -> LaunchFacts:
        """How it is placed; where a power cut has taken that, of no boot that is known."""
        found = read_json(self._inside + LAUNCH) or asdict(LaunchFacts("", time.time()))
        facts = {name: value for name, value in found.items() if name in _FACTS}  # a newer agent may have written more
        try:
            by_rank = tuple(tuple(map(int, cores)) for cores in facts.get("rank_cores", ()))
            lists = {"gpus": tuple(map(int, facts["gpus"])), "cores": tuple(map(int, facts["cores"]))}
            return LaunchFacts(**{**facts, **lists, "rank_cores": by_rank})
        except (KeyError, TypeError, ValueError):  # the job's own user may write here where the agent is that user
            return LaunchFacts("", time.time())

    def place(self, facts: LaunchFacts) -> None:
        """Write down that it is placed otherwise now."""
        write_json(self.path / LAUNCH, asdict(facts))

    def claimed_by(self) -> ProcessId | None:
        """The process that claimed it.

        A directory that is older than this boot counts as claimed by a process of that boot: its claim may have
        been lost with the power, and nothing may run twice.
        """
        text = read_text(self._inside + shim_files.CLAIM)
        if text is None:
            prepared_in = self.facts().boot_id
            return None if prepared_in == boot_id() else ProcessId(0, 0, prepared_in)
        pid, ticks, boot = text.split() or ("0", "0", "")  # empty: as a power cut leaves it
        return ProcessId(int(pid), int(ticks), boot)

    def memory_limit_bytes(self) -> int:
        """Host memory that its processes may use now; 0 does not bound them. OSError where nothing is prepared."""
        said = read_text(self._inside + shim_files.MEMORY_LIMIT)
        return int(said) if said else self.command().memory_limit_bytes

    def limit_memory(self, limit_bytes: int) -> None:
        """Have its supervisor bound its host memory by so much from now on."""
        write_secret(self.path / shim_files.MEMORY_LIMIT, str(limit_bytes).encode())

    def halt(self, *, told: bool) -> bool:
        """Have all that runs of it stand, or go on; False where the disk does not take that.

        Each order is another one: that it stands by one of before says nothing of this.
        """
        is_told = os.path.lexists(self._inside + shim_files.HALT)  # joined by hand: it is asked for every job each time
        if is_told == told or not self.path.exists():
            return True
        path = self.path / shim_files.HALT
        try:
            if told:
                write_secret(path, f"{since_boot_s()}".encode())
            else:
                path.unlink()
        except OSError:
            return False
        return True

    def stands(self) -> bool:
        """Whether all that runs of it stands, as it was told to."""
        order = read_text(self._inside + shim_files.HALT)
        return order is not None and order == read_text(self._inside + shim_files.STANDS)

    def order_end(self, order: Mapping[str, object]) -> None:
        """Say, before its supervisor gets SIGTERM, why the job is to end and how it is asked to save its state.

        The first order stands. On a full disk there is none: it ends all the same, as if ordered from outside.
        """
        path = self.path / shim_files.STOP
        if not path.exists():
            with suppress(OSError):
                write_json(path, dict(order))

    def command(self) -> ShimCommand:
        """What its supervisor was told to run; OSError where nothing is prepared."""
        return ShimCommand(read_file(self._inside + shim_files.COMMAND))

    def started(self) -> dict[str, Any] | None:
        """Pid, start ticks and start time of its main process; None before it runs."""
        return _holding(read_json(self._inside + shim_files.STARTED), {"pid": int, "start_s": (int, float)})

    def exit_record(self) -> dict[str, Any] | None:
        """How it ended; None before."""
        return _holding(read_json(self._inside + shim_files.EXIT), _EXIT)

    def has_ended(self) -> bool:
        """Whether there is a record of its end."""
        return self.exit_record() is not None

    def finished(self) -> FinishedObject | None:
        """What the scheduler is told of its end, once that has been put together."""
        kinds = {"id": int, "attempt": int, "outcome": str, "end_s": float}
        return _holding(read_json(self._inside + FINISHED), kinds)

    def shim_errors(self) -> str:
        """The last line of what its supervisor complained about."""
        lines = (read_text(self.path / SHIM_ERRORS) or "").strip().splitlines()
        return lines[-1] if lines else ""

    def close(self, outcome: str, detail: str) -> bool:
        """Write the record of an attempt that no supervisor answers for; False when one has it after all."""
        if not self._claim():
            return False
        self.record_end(outcome, detail)
        return True

    def record_end(self, outcome: str, detail: str) -> None:
        """Write an exit record in the place of a supervisor that is gone."""
        started = self.started() or {}
        kept = segments(self.path)
        record = {
            "outcome": outcome,
            "exit_code": None,
            "signal": None,
            "detail": detail,
            "start_s": started.get("start_s", self.facts().prepared_s),
            "end_s": time.time(),
            "cpu_s": 0.0,
            "rss_bytes_max": 0,
            "oom_kills": 0,
            "stopped": True,
            "log_bytes": kept[-1].end if kept else 0,
            "log_truncated": any(a.end != b.start for a, b in pairwise(kept)),
        }
        write_json(self.path / shim_files.EXIT, record)

    def _claim(self) -> bool:
        draft = self.path / f"{shim_files.CLAIM}.agent"
        # Pid 0 of this boot: an agent that finds this claim without a record knows that no supervisor holds it.
        draft.write_text(f"0 0 {boot_id()}\n")
        try:
            (self.path / shim_files.CLAIM).hardlink_to(draft)
        except FileExistsError:
            return False
        finally:
            draft.unlink()
        return True


FORMER = "former"  # ended attempts of the cluster that this agent belonged to before
LOCK, AGENT_ID = "lock", "agent_id"
CLUSTER = "cluster"  # the file that says of which cluster the attempts are
HEARD = "events"  # the file that says what this agent has heard of that cluster, about; see `heard`
HEARD_STEP_S = 10.0
"""Of one start of the scheduler it is written no more often, but before each attempt's directory is made: what is kept
of a job is known by it."""


GRACE_S = 10.0


def mark_of(steps_path: Path) -> bytes:
    """The environment variable that a job's processes carry, and no other job's."""
    return f"{wire.STEPS_FILE_ENV}={steps_path}".encode()


def directory_of(steps_path: Path) -> Path:
    """The directory of the job whose steps file this is."""
    return steps_path.parent.parent


class StateDir:
    """All attempts on disk, and the right to touch them."""

    def __init__(self, root: Path, grace_s: float = GRACE_S) -> None:
        """Take the directory.

        Args:
            root: The directory; made when it is not there.
            grace_s: From SIGTERM to SIGKILL for jobs whose lease runs out.

        Raises:
            AgentError: Another agent has it, or it cannot be written.
        """
        self.root = root.absolute()
        self.jobs, self.ended = self.root / "jobs", self.root / "ended"
        try:
            for path in (self.root, self.jobs, self.ended):
                path.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
            for path in (self.root, self.jobs):
                path.chmod(_passable())
            self._lock = self._take_lock()
            self.agent_id = self._read_agent_id()
            self.lease = Lease(self.root, grace_s)
            self.cluster_id = (read_text(self.root / CLUSTER) or "").strip()
            self.heard = self._kept = from_text(read_text(self.root / HEARD))
        except OSError as error:
            raise AgentError(f"the state directory {root} cannot be used: {error.strerror}") from error
        self._heard_kept_s = -inf
        self.removals = Removals(lambda: programs.place(self.root) / programs.REMOVAL)
        self._drop_drafts()

    def close(self) -> None:
        """Leave it to another agent."""
        self.removals.close()
        self.lease.close()
        os.close(self._lock)

    def is_gone(self) -> bool:
        """Whether this is not the directory any more that we took: deleted, moved, or another in its place."""
        try:
            same = os.path.samestat((self.root / LOCK).stat(), os.fstat(self._lock))
        except OSError:
            return True
        return not (same and self.jobs.is_dir() and self.ended.is_dir())

    def leave_identity(self) -> None:
        """Where it was deleted, let the next agent in its place be the same one to the scheduler; a moved one has it.

        Raises OSError: it cannot be written.
        """
        known = self.root / AGENT_ID
        if os.fstat(self._lock).st_nlink == 0 and not known.exists():
            self.root.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
            write_secret(known, self.agent_id.encode())

    def live(self) -> list[JobDir]:
        """Attempts whose end the scheduler does not know yet."""
        return [JobDir(path) for path in self.jobs.iterdir() if _NAME.fullmatch(path.name)]

    def is_delivered(self, key: Key) -> bool:
        """Whether the scheduler knows the end of this attempt."""
        return (self.ended / str(key)).exists()

    def job_dir(self, key: Key) -> JobDir:
        """Give the place of an attempt that is under way."""
        return JobDir(self.jobs / str(key))

    def find(self, key: Key) -> Path | None:
        """Find the directory of an attempt, under way or ended."""
        places = (root / str(key) for root in (self.jobs, self.ended))
        return next((place for place in places if place.exists()), None)

    def prepare(self, key: Key, command: Command, facts: LaunchFacts, token: str | None = None) -> JobDir:
        """Write an attempt's directory, at once.

        Raises:
            OSError: The disk is full, or there is such an attempt.
            ValueError: No process can be given such a command.
        """
        draft, place = self.jobs / f".{key}", self.jobs / str(key)
        self._keep_heard()  # before there is a record of a job that an older store would not know
        draft.mkdir(mode=_PRIVATE)
        try:
            write_json(draft / LAUNCH, asdict(facts))
            write_secret(draft / shim_files.COMMAND, command.encode())
            (draft / OWN).mkdir(mode=_PRIVATE)
            wire.create(draft / OWN / STEPS)
            if token is not None:
                write_secret(draft / OWN / TOKEN, token.encode())
            if command.run_as:
                for path in (*(draft / OWN).iterdir(), draft / OWN):
                    os.chown(path, *command.run_as[:2])
            draft.chmod(_passable())
            draft.rename(place)
        except (OSError, ValueError):
            shutil.rmtree(draft, ignore_errors=True)
            raise
        return JobDir(place)

    def steps_path(self, key: Key) -> Path:
        """Where an attempt's steps file will be, before it is prepared."""
        return self.jobs / str(key) / OWN / STEPS

    def deliver(self, job: JobDir) -> None:
        """Move an attempt whose end the scheduler knows out of the way; secrets do not stay.

        Raises OSError: it cannot be written down what the scheduler has said, by which an older store is told.
        """
        self._keep_heard()
        (job.path / shim_files.COMMAND).unlink(missing_ok=True)
        ended = self.ended / job.path.name
        job.path.rename(ended)
        self.removals.take(ended / OWN)

    def join(self, cluster_id: str) -> None:
        """From now on attempts are of this cluster; ended ones of another are put aside, in the place of older such."""
        if self.cluster_id:
            former = self.root / FORMER
            if former.exists():
                self._drop(former)
            self.ended.rename(former)
            self.ended.mkdir(mode=_PRIVATE)
        (self.root / HEARD).unlink(missing_ok=True)  # before: what the other cluster had is not this one's
        write_secret(self.root / CLUSTER, cluster_id.encode())
        self.cluster_id, self.heard, self._kept, self._heard_kept_s = cluster_id, KnownHistory(), KnownHistory(), -inf

    def note(self, told: KnownHistory) -> None:
        """So far is the cluster by now, as its scheduler says."""
        self.heard = self.heard.with_news(told)
        is_new_start = self.heard.epoch_id != self._kept.epoch_id
        if is_new_start or self._heard_kept_s + HEARD_STEP_S <= time.monotonic():
            with suppress(OSError):  # on a full disk it is kept later
                self._keep_heard()

    def _keep_heard(self) -> None:
        if self.heard != self._kept:
            write_secret(self.root / HEARD, as_text(self.heard).encode())
            self._kept = self.heard
        self._heard_kept_s = time.monotonic()

    def trim(self, *, jobs_max: int, age_max_s: float, bytes_max: int) -> None:
        """Drop the oldest ended attempts until what is left is within the bounds."""
        oldest_s, room_bytes = time.time() - age_max_s, bytes_max
        by_age = sorted(self.ended.iterdir(), key=_ended_s, reverse=True)
        for number, path in enumerate(by_age):
            room_bytes -= _size_bytes(path)
            # What is another user's is removed as that user, before the rest.
            is_own_gone = self.removals.take(path / OWN)
            if is_own_gone and (number >= jobs_max or room_bytes < 0 or _ended_s(path) < oldest_s):
                self.removals.take(path)

    def _take_lock(self) -> int:
        lock = os.open(self.root / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _SECRET)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            pid = os.read(lock, 32).decode() or "unknown"
            os.close(lock)
            message = f"another agent (pid {pid}) uses the state directory {self.root}: give this one its own"
            raise AgentError(message) from error
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        return lock

    def _read_agent_id(self) -> str:
        path = self.root / AGENT_ID
        known = (read_text(path) or "").strip()
        if not known:
            known = uuid.uuid4().hex
            write_secret(path, known.encode())
        return known

    def _drop_drafts(self) -> None:
        for path in self.root.glob(f".{FORMER}-*"):
            self.removals.take(path)
        for path in self.jobs.glob(".*"):
            self._drop(path)

    def _drop(self, path: Path) -> None:
        """Make a name free at once; what has it is removed in its time."""
        older = self.root / f".{FORMER}-{time.time_ns()}"
        path.rename(older)
        self.removals.take(older)


def _passable() -> int:
    """Mode of a directory on the way to what is a job's user's."""
    return _PASSABLE if os.geteuid() == 0 else _PRIVATE


def read_text(path: Path | str) -> str | None:
    """Read a small file; None when it is not there."""
    try:
        return read_file(path).decode()
    except FileNotFoundError:
        return None


def read_json(path: Path | str) -> dict[str, Any] | None:
    """Read an object; None when the file is not there, or not whole after a power cut."""
    try:
        fields = json.loads(read_file(path))
    except (FileNotFoundError, ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def _holding(record: dict[str, Any] | None, kinds: Mapping[str, type | tuple[type, ...]]) -> dict[str, Any] | None:
    """A record that has these fields; None in the place of one that has not, as if it were not there."""
    if record is None or not all(isinstance(record.get(name), kind) for name, kind in kinds.items()):
        return None
    return record


def write_json(path: Path, fields: Mapping[str, object]) -> None:
    """Make an object appear whole."""
    write_secret(path, json.dumps(fields).encode())


def write_secret(path: Path, data: bytes) -> None:
    """Make a file appear whole, for its owner only."""
    draft = path.with_name(f"{path.name}.new")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _SECRET)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
    draft.rename(path)


def _ended_s(path: Path) -> float:
    try:
        return (path / FINISHED).lstat().st_mtime
    except OSError:
        return 0.0


def _size_bytes(path: Path) -> int:
    """What is seen of its size without going far: it counts what the agent keeps, not what it takes away."""
    try:
        with os.scandir(path) as entries:
            return sum(entry.stat(follow_symlinks=False).st_size for entry in islice(entries, NAMES_MAX))
    except OSError:
        return 0


def asked(job: Path) -> tuple[int, float]:
    """The number of the latest asking that a job was told of, 0 of none, and when."""
    told = read_json(job / ASKED) or {}
    return int(told.get("number", 0)), float(told.get("at_s", 0.0))
