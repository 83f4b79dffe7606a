"""Keeps a job's processes on its cores: every thread of all of them, those born later too.

Linux keeps cores by thread, and a new thread or process has those of the one that makes it. So cores are changed in
looks: each gives them to all threads that it has not seen, until one finds none. A later look catches threads that were
born meanwhile, and those that have given themselves other cores since.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from colane.agent import processes
from colane.agent.processes import ProcessId

LOOKS_MAX = 16  # a job that makes threads without end is left to later looks after so many

_RANK = b"LOCAL_RANK="


class CoreGrant(NamedTuple):
    """The cores of one job."""

    cores: frozenset[int]  # of all its processes
    # of each rank that the agent started, by its number here; empty where the job starts its own
    by_rank: tuple[frozenset[int], ...] = ()

    def of(self, pid: int) -> frozenset[int]:
        """Give the cores of one process."""
        rank = rank_of(pid) if self.by_rank else None
        return self.cores if rank is None or rank >= len(self.by_rank) else self.by_rank[rank]


def give(supervisor_pid: int, grant: CoreGrant) -> str:
    """Put all threads below a supervisor on their cores, at once.

    Returns:
        Why one of them could not be; empty when all are there.
    """
    problem, given = "", set[int]()
    for _ in range(LOOKS_MAX):
        below = processes.read_tree(supervisor_pid).processes[1:]
        fresh = [(process.pid, tid) for process in below for tid in _threads(process.pid) if tid not in given]
        if not fresh:
            break
        for pid, tid in fresh:
            problem = _put(tid, grant.of(pid)) or problem
            given.add(tid)
    return problem


class Confined(NamedTuple):
    """What came of bringing threads back."""

    problem: str = ""  # why one of them could not be; empty when all are there
    escaped: int = 0  # how many had given themselves other cores than the job has


def confine(below: Iterable[ProcessId], grant: CoreGrant, before: CoreGrant | None = None) -> Confined:
    """Put those threads on their cores that may run elsewhere; one that keeps to a part of them is left alone.

    Args:
        below: The job's processes without its supervisor, as they were seen.
        grant: Their cores.
        before: Cores they have just had: a thread that still has exactly these was born while they changed.

    """
    problem, escaped = "", 0
    for process in below:
        cores, old = grant.of(process.pid), None if before is None else before.of(process.pid)
        strays = [tid for tid in _threads(process.pid) if _is_stray(tid, cores, old)]
        if strays and processes.identify(process.pid) == process:
            problem = next(filter(None, [_put(tid, cores) for tid in strays]), problem)
            escaped += len(strays) if before is None else 0
    return Confined(problem, escaped)


def _is_stray(tid: int, cores: frozenset[int], old: frozenset[int] | None) -> bool:
    with suppress(OSError):
        has = frozenset(os.sched_getaffinity(tid))
        return not has <= cores or (has == old and has != cores)
    return False


def _put(tid: int, cores: frozenset[int]) -> str:
    try:
        os.sched_setaffinity(tid, cores)
    except ProcessLookupError:
        return ""
    except OSError as error:
        return f"thread {tid} cannot run on {','.join(map(str, sorted(cores)))}: {error.strerror}"
    return ""


def _threads(pid: int) -> Iterator[int]:
    with suppress(OSError):
        yield from map(int, os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208 - names are enough


def rank_of(pid: int) -> int | None:
    """Number of the rank that a process is or belongs to; None for the one that starts them."""
    with suppress(OSError, ValueError):
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return next((int(word.removeprefix(_RANK)) for word in variables if word.startswith(_RANK)), None)
    return None
