"""The agent's side of the steps file: create it before the launch, read it at any time.

The reader trusts nothing in the file: the job's own user can write there. It uses `pread`, never a mapping,
so a job that truncates its file cannot kill the agent with SIGBUS.
"""

from __future__ import annotations

import math
import os
import stat
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from colane.adaptor.writer import (
    ANSWER_SLOTS,
    ANSWERS_KEPT,
    ANSWERS_OFFSET,
    ANSWERS_WORD,
    BETWEEN_STEPS,
    COUNT_WORD,
    FIRST_WORD,
    FLUSHED_WORD,
    FORMED_WORD,
    HAS_LOSS,
    HAS_MEMORY,
    HEARTBEAT_WORD,
    IDENTITY,
    IDLE_WORD,
    IN_STEP,
    MAGIC,
    NOISE_WORD,
    ON_GPU,
    OTHER_VERSION,
    PHASE_WORD,
    PID_WORD,
    RANKS_WORD,
    RECORD,
    RECORD_OFFSETS,
    REFORMS_WORD,
    REFUSED_WORD,
    RESTORED_WORD,
    RESTS,
    RESTS_WORD,
    RING_OFFSET,
    RING_SLOTS,
    RING_STEPS,
    SAVE_ERROR_WORD,
    SAVE_FAILED_WORD,
    SAVED_STEPS_WORD,
    SAVED_WORD,
    SAVES_WORD,
    SERVES_ENV,
    STAYS_WORD,
    STEPS_FILE_ENV,
    TOTAL_WORD,
    UNCOUNTED_WORD,
    UNTIMED_WORD,
    VERSION,
    VERSION_WORD,
    WATCHABLE,
    VersionError,
    WireError,
    Writer,
    create,
    problem,
)

__all__ = [
    "BETWEEN_STEPS",
    "IN_STEP",
    "RING_STEPS",
    "SERVES_ENV",
    "STEPS_FILE_ENV",
    "Steps",
    "VersionError",
    "WireError",
    "Writer",
    "create",
    "read",
]

READ_TRIES = 64
"""A step takes far longer than reading one page, so the second try nearly always finds the counter at rest.
After the last, what was read is used as it is: each value is whole, one may belong to the next step."""

_WORD = struct.Struct("=Q")
_HEAD_BYTES = (FLUSHED_WORD + 1) * 8


@dataclass(frozen=True)
class Steps:
    """What a process has reported so far."""

    steps: int  # steps finished; none of those before it turned out that they were an evaluation before training
    steps_total: int | None  # how many there will be, None when the job did not say
    pid: int  # the process that reports
    first_step_s: float | None  # unix time of the end of the first step, None before it
    last_step_s: float | None  # unix time of the end of the latest step, None before the first
    loss: float | None  # latest loss; may be NaN or infinite, as the job computed it. None when not reported
    persistent_bytes: int | None  # memory allocated at a step boundary (P)
    peak_bytes: int | None  # peak memory (P + E): on a GPU with the blocks the allocator could not use then
    # durations of the latest steps that are timed, oldest first, at most `RING_STEPS` of them. The first step's runs
    # from `attach`
    durations_s: tuple[float, ...]
    phase: int = 0  # `IN_STEP` or `BETWEEN_STEPS`, with `writer.TENTATIVE` before its first boundary
    heartbeat_s: float | None = None  # unix time of its latest sign of life, None before
    # what the framework's allocator holds of its GPU, used or not; None of host memory
    reserved_bytes: int | None = None
    saves: bool = False  # whether it saves its state by itself
    steps_restored: int = 0  # steps of earlier attempts it went on from
    saved_s: float | None = None  # unix time at which its state was last saved, None before
    steps_saved: int | None = None  # steps of the whole job in that state
    save_failed_s: float | None = None  # unix time at which saving last failed, None where it has not
    save_error: int = 0  # error number of that
    noise_scale: float | None = None  # of the gradient, in samples; None where it says none, or none that can be
    reforms: bool = False  # whether the ranks of its job can go on as fewer
    ranks: int = 0  # as how many they last have; 0 as they were started. Durations are those of steps since then
    untimed: int = 0  # how many of the last steps have no duration yet, since their GPU has not done them
    answers: int = 0  # how many requests it has answered, where it answers any
    # how long the last of them took, from the request on; oldest first, at most `ANSWERS_KEPT`
    latencies_s: tuple[float, ...] = ()
    idle_s: float = 0.0  # how long it has waited for requests
    may_rest: bool = False  # whether it can be parked as it stands
    stays_bytes: int = 0  # what its allocator can not give back of what it does not use, as far as that was tried
    is_flushed: bool = False  # whether it has given the rest back and waits


def rank_path(path: str | Path, rank: int) -> Path:
    """Return where the rank of this number on a node reports; rank 0 has the job's own file."""
    return Path(f"{os.fspath(path)}.{rank}" if rank else path)


def open_own(path: str | Path, access: int, is_kind: Callable[[int], bool] = stat.S_ISREG) -> int:
    """Open a file of a job's own folder, where its user may have put anything, and never wait for it.

    Raises:
        OSError: It is not there, or a link, of another kind, another user's than the folder is, or has a second name.
    """
    fd = os.open(path, access | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    found, folder = os.fstat(fd), Path(path).parent.stat()
    if is_kind(found.st_mode) and found.st_nlink == 1 and found.st_uid == folder.st_uid:
        return fd
    os.close(fd)
    raise OSError(f"{os.fspath(path)} is not what its job makes there")


def read(path: str | Path, after_step: int = 0) -> Steps | None:
    """Read what the job has reported; None while no process has attached.

    Args:
        path: the steps file.
        after_step: give only the durations of later steps than this one (a follower passes what it has seen).

    Raises:
        VersionError: the file or the adaptor that wanted to write it is of another version.
        WireError: the file is missing or holds what no writer would write.
    """
    try:
        fd = open_own(path, os.O_RDONLY)
    except OSError as error:
        raise WireError(f"{os.fspath(path)}: {error.strerror or error}") from error
    try:
        _check_version(os.pread(fd, _HEAD_BYTES, 0), os.fspath(path))
        return _read(fd, after_step)
    except (OSError, ValueError, struct.error) as error:
        raise WireError(f"{os.fspath(path)} {error}") from error
    finally:
        os.close(fd)


def _check_version(head: bytes, path: str) -> None:
    if head[: len(MAGIC)] != MAGIC or len(head) < _HEAD_BYTES:
        return  # no steps file at all; what reads it says so
    file_version, refused_by = _word(head, VERSION_WORD), _word(head, REFUSED_WORD)
    if file_version != VERSION:
        raise VersionError(f"{path} {OTHER_VERSION} {file_version}, this Colane speaks {VERSION}")
    if refused_by not in (0, VERSION) and not _word(head, COUNT_WORD):
        raise VersionError(f"{path}: the job's adaptor speaks version {refused_by}, this Colane {VERSION}")


def _read(fd: int, after_step: int) -> Steps | None:
    reason = problem(os.pread(fd, IDENTITY.size, 0), os.fstat(fd).st_size)
    if reason:
        raise ValueError(reason)
    head = _settled_head(fd)
    pid, total, written = (_word(head, index) for index in (PID_WORD, TOTAL_WORD, COUNT_WORD))
    if pid == 0:
        return None
    left_out = min(written, _word(head, UNCOUNTED_WORD))
    count = written - left_out
    untimed = min(count, _word(head, UNTIMED_WORD))
    words = (FIRST_WORD, HEARTBEAT_WORD, SAVED_WORD, SAVE_FAILED_WORD, IDLE_WORD)
    first_s, beat_s, saved_s, failed_s, idle_s = (struct.unpack_from("=d", head, word * 8)[0] for word in words)
    last_s, loss, persistent, peak, reserved, flags = RECORD.unpack_from(head, RECORD_OFFSETS[written & 1])
    if not all(map(math.isfinite, (first_s, last_s, beat_s, saved_s, failed_s, idle_s))):
        raise ValueError("holds a time that is not a number")
    return Steps(
        steps=count,
        steps_total=total or None,
        pid=pid,
        first_step_s=first_s if count else None,
        last_step_s=last_s if count else None,
        loss=loss if count and flags & HAS_LOSS else None,
        persistent_bytes=persistent if count and flags & HAS_MEMORY else None,
        peak_bytes=peak if count and flags & HAS_MEMORY else None,
        durations_s=_durations(fd, max(left_out + max(after_step, 0), _word(head, FORMED_WORD)), written - untimed),
        phase=_word(head, PHASE_WORD),
        heartbeat_s=max(last_s, beat_s) or None,
        reserved_bytes=reserved if count and flags & HAS_MEMORY and flags & ON_GPU else None,
        saves=bool(_word(head, SAVES_WORD)),
        steps_restored=_word(head, RESTORED_WORD),
        saved_s=saved_s or None,
        steps_saved=_word(head, SAVED_STEPS_WORD) if saved_s else None,
        save_failed_s=failed_s or None,
        save_error=_word(head, SAVE_ERROR_WORD),
        noise_scale=_above_zero(struct.unpack_from("=d", head, NOISE_WORD * 8)[0]),
        reforms=bool(_word(head, REFORMS_WORD)),
        ranks=_word(head, RANKS_WORD),
        untimed=untimed,
        answers=_word(head, ANSWERS_WORD),
        latencies_s=_latencies(fd, _word(head, ANSWERS_WORD)),
        idle_s=idle_s,
        may_rest=_word(head, RESTS_WORD) in (RESTS, WATCHABLE),
        stays_bytes=_word(head, STAYS_WORD),
        is_flushed=bool(_word(head, FLUSHED_WORD)),
    )


def _above_zero(value: float) -> float | None:
    return value if 0 < value < math.inf else None


def _word(head: bytes, index: int) -> int:
    return int(_WORD.unpack_from(head, index * 8)[0])


def _count(fd: int) -> int:
    return int(_WORD.unpack(os.pread(fd, 8, COUNT_WORD * 8))[0])


def _settled_head(fd: int) -> bytes:
    """Read the counters so that count and record belong together: the count stood still around the read."""
    for _ in range(READ_TRIES):
        before = _count(fd)
        head = os.pread(fd, _HEAD_BYTES, 0)
        if before == _word(head, COUNT_WORD) == _count(fd):
            break
    return head


def _durations(fd: int, after_step: int, count: int) -> tuple[float, ...]:
    start = max(after_step, count - RING_STEPS)
    values = [value for first, slots in _runs(start, count) for value in _slots(fd, first, slots)]
    # A step's slot is written anew RING_SLOTS steps later: drop what may have been while it was read.
    overwritten = min(max(_count(fd) - RING_STEPS - start, 0), len(values))
    durations = tuple(values[overwritten:])
    if durations and not (math.isfinite(sum(durations)) and min(durations) >= 0):
        raise ValueError("holds a step duration that is not a number of seconds")
    return durations


def _latencies(fd: int, count: int) -> tuple[float, ...]:
    """Of the last answers; the slot that may be written meanwhile is left out."""
    kept = min(count, ANSWERS_KEPT)
    if not kept:
        return ()
    ring = struct.unpack(f"={ANSWER_SLOTS}d", os.pread(fd, ANSWER_SLOTS * 8, ANSWERS_OFFSET))
    latencies = tuple(ring[number % ANSWER_SLOTS] for number in range(count - kept, count))
    if not (math.isfinite(sum(latencies)) and min(latencies) >= 0):
        raise ValueError("holds the time of an answer that is not a number of seconds")
    return latencies


def _runs(start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Split the steps after `start` up to `stop` into (first slot, number of slots), once around the ring."""
    while start < stop:
        slot = start % RING_SLOTS
        slots = min(stop - start, RING_SLOTS - slot)
        yield slot, slots
        start += slots


def _slots(fd: int, first: int, slots: int) -> tuple[float, ...]:
    return struct.unpack(f"={slots}d", os.pread(fd, slots * 8, RING_OFFSET + first * 8))
