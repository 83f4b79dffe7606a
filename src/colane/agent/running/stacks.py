"""Asks the processes of a job for their Python stacks, through the adaptor in them.

The pipes and the answers lie where the job's own user writes, who may put anything there: nothing is followed, nothing
is waited for beyond a few seconds, and only so many printable characters of an answer are passed on.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from colane.adaptor import wire
from colane.adaptor.stacks import ANSWER, ASKED_BYTES, RANK_NAMES
from colane.agent.files.jobdir import OWN, JobDir
from colane.agent.gate.pipes import Pipe, pipes_in, put
from colane.agent.processes import read_tree, variables
from colane.api.stacks import RawStacksObject

WAIT_MAX_S: Final = 3.0  # a process that can answer does so within milliseconds of getting a core
LOOK_EVERY_S: Final = 0.01
STACKS_BYTES_MAX: Final = 64 * 1024  # of one process

SILENT: Final = "does not answer: it is stopped, or a call outside Python keeps Python's lock"
NONE_HERE: Final = "has neither made a step nor joined a group with Colane's adaptor"

RANK_DIGITS: Final = 10  # a rank has fewer


def ask(job: JobDir) -> list[RawStacksObject]:
    """Return what the processes of a job on this node say, by rank; of each that says nothing, why."""
    word = os.urandom(ASKED_BYTES // 2).hex().encode()
    asked = [pipe for pipe in pipes_in(job.path / OWN) if _put(pipe.path, word)]
    found = [*_answers(asked, word)]
    return sorted([*found, *_without(job, found)], key=lambda one: (one["rank"] is None, one["rank"] or 0, one["pid"]))


def _put(path: Path, question: bytes) -> bool:
    """Ask one process; whether there is one. It may be between two questions."""
    asked = put(path, question)
    if asked is None:
        time.sleep(LOOK_EVERY_S)
        asked = put(path, question)
    return bool(asked)


def _answers(asked: Sequence[Pipe], word: bytes) -> Iterator[RawStacksObject]:
    """Yield each answer as it comes, and at the end those that have not."""
    until_s, left = time.monotonic() + WAIT_MAX_S, list(asked)
    while left:
        for pipe in list(left):
            answer = _read(pipe, word)
            if answer is not None:
                left.remove(pipe)
                yield answer
        if time.monotonic() >= until_s:
            break
        if left:
            time.sleep(LOOK_EVERY_S)
    yield from (_silent(pipe.rank, pipe.pid, SILENT) for pipe in left)


def _read(pipe: Pipe, word: bytes) -> RawStacksObject | None:
    """Return an answer to this question, None while there is none."""
    data = _content(Path(f"{pipe.path}{ANSWER}"))
    head, _, text = data.partition(b"\n")
    words = head.split(b" ")
    if words[0] != word or len(words) != 2:
        return None
    rank = int(words[1]) if words[1].isdigit() and len(words[1]) < RANK_DIGITS else pipe.rank
    shown = "".join(one if one.isprintable() or one == "\n" else "?" for one in text.decode(errors="replace"))
    return {"rank": rank, "pid": pipe.pid, "text": shown, "problem": ""}


def _content(path: Path) -> bytes:
    try:
        fd = wire.open_own(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.read(fd, STACKS_BYTES_MAX)
    except OSError:
        return b""
    finally:
        os.close(fd)


def _silent(rank: int | None, pid: int, problem: str) -> RawStacksObject:
    return {"rank": rank, "pid": pid, "text": "", "problem": problem}


def _without(job: JobDir, found: Sequence[RawStacksObject]) -> Iterator[RawStacksObject]:
    """Yield the ranks among the job's processes that cannot be asked: of each its first process."""
    supervisor = job.claimed_by()
    seen = {one["rank"] for one in found}
    for process in read_tree(supervisor.pid).processes if supervisor is not None and supervisor.pid else ():
        held = variables(process.pid)
        said = next((held[name] for name in map(str.encode, RANK_NAMES) if name in held), b"")
        rank = int(said) if said.isdigit() and len(said) < RANK_DIGITS else None
        if rank is not None and rank not in seen:
            seen.add(rank)
            yield _silent(rank, process.pid, NONE_HERE)
