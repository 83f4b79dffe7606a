"""Memory bandwidth by job, measured and bounded by the processor (Linux resctrl: Intel RDT, AMD QoS).

A job that is only measured is a monitoring group of the root group; one that is bounded is a control group, which has
counters of its own. Files are those of the kernel (Documentation/filesystems/resctrl.rst): `mon_data/mon_L3_*/
mbm_total_bytes` counts bytes by cache, `schemata` has a line `MB:0=100;1=100`, `tasks` takes one thread a write.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

ROOT = Path("/sys/fs/resctrl")
PREFIX = "colane-"  # of our groups; those of others are not touched

WHOLE_PERCENT = 100
TOTAL_BYTES = "mbm_total_bytes"


class Folders(NamedTuple):
    """How groups are made and removed; tests play the kernel, which fills a new group with its files."""

    make: Callable[[Path], None] = Path.mkdir
    remove: Callable[[Path], None] = Path.rmdir


class ResctrlError(Exception):
    """Bandwidth cannot be measured by the processor; the message says why."""


class Resctrl:
    """The groups of this node's jobs.

    Args:
        root: Where it is mounted.
        folders: See there.

    Attributes:
        limit_problem: Why bandwidth cannot be bounded; empty where it can.

    Raises:
        ResctrlError: It is not mounted, counts no bandwidth, or may not be written.
    """

    def __init__(self, root: Path = ROOT, folders: Folders | None = None) -> None:
        self._root = root
        self._folders = folders or Folders()
        self._tasks: dict[str, frozenset[int]] = {}
        if not (root / "tasks").exists():
            raise ResctrlError(f"resctrl is not mounted at {root}")
        features = _words(root / "info" / "L3_MON" / "mon_features")
        if TOTAL_BYTES not in features:
            raise ResctrlError("the processor counts no memory bandwidth (resctrl has no mbm_total_bytes)")
        try:
            for group in [*(self._root / "mon_groups").glob(f"{PREFIX}*"), *self._root.glob(f"{PREFIX}*")]:
                self._folders.remove(group)
            trial = self._measured(f"{PREFIX}trial")
            self._folders.make(trial)
            self._folders.remove(trial)
        except OSError as error:
            raise ResctrlError(f"{self._root} is mounted, but may not be written ({error.strerror})") from error
        self.limit_problem = _limit_problem(root)
        least, grain = _words(root / "info" / "MB" / "min_bandwidth"), _words(root / "info" / "MB" / "bandwidth_gran")
        self._least, self._grain = (int(least[0]) if least else 10, max(1, int(grain[0])) if grain else 10)

    def follow(self, jobs: Mapping[str, Iterable[int]], limits: Mapping[str, float]) -> list[str]:
        """Have each job's threads in a group of its own.

        Args:
            jobs: By name, their processes.
            limits: Part of the bandwidth that a job may use, for those that are bounded.

        Returns:
            What could not be done.
        """
        problems: list[str] = []
        for name in self._tasks.keys() - jobs.keys():
            self._forget(name)
        for name, pids in jobs.items():
            limit = limits.get(name, 1.0) if not self.limit_problem else 1.0
            try:
                self._put(name, frozenset(tid for pid in pids for tid in _threads(pid)), limit)
            except OSError as error:
                problems.append(f"{name}: {error.strerror}")
        return problems

    def read(self) -> tuple[int, dict[str, int]]:
        """Bytes so far: of all processes, and of each job. A group the processor lost count of is left out."""
        there = self._root.iterdir()
        groups = [self._root, *(path for path in there if (path / "schemata").exists() and path.name != "info")]
        total = sum(filter(None, map(_counted, groups)))
        own = {name: _counted(self._group(name)) for name in self._tasks}
        return total, {name: count for name, count in own.items() if count is not None}

    def close(self) -> None:
        """Remove all groups: their threads go on unbounded."""
        for name in list(self._tasks):
            self._forget(name)

    def _put(self, name: str, tids: frozenset[int], limit: float) -> None:
        group = self._bounded(name) if limit < 1 else self._measured(name)
        other = self._measured(name) if limit < 1 else self._bounded(name)
        if not group.exists():
            self._folders.make(group)
            self._tasks[name] = frozenset()
        if limit < 1:
            percent = max(self._least, -(-round(WHOLE_PERCENT * limit) // self._grain) * self._grain)
            line = "MB:" + ";".join(f"{cache}={percent}" for cache in _bounds(group))
            if line.split(":")[1] != ";".join(f"{cache}={value}" for cache, value in _bounds(group).items()):
                (group / "schemata").write_text(line + "\n")
        known = self._tasks.setdefault(name, frozenset())
        for tid in tids - known:
            with suppress(ProcessLookupError), (group / "tasks").open("a") as file:
                file.write(f"{tid}\n")
        self._tasks[name] = tids
        if other.exists():
            self._folders.remove(other)

    def _forget(self, name: str) -> None:
        self._tasks.pop(name, None)
        for group in (self._measured(name), self._bounded(name)):
            if group.exists():
                with suppress(OSError):
                    self._folders.remove(group)

    def _group(self, name: str) -> Path:
        bounded = self._bounded(name)
        return bounded if bounded.exists() else self._measured(name)

    def _measured(self, name: str) -> Path:
        return self._root / "mon_groups" / f"{PREFIX}{name.removeprefix(PREFIX)}"

    def _bounded(self, name: str) -> Path:
        return self._root / f"{PREFIX}{name}"


def _limit_problem(root: Path) -> str:
    bounds = _bounds(root)
    if not bounds:
        return "the processor bounds no memory bandwidth (resctrl has no line MB)"
    if set(bounds.values()) != {WHOLE_PERCENT}:
        return "bandwidth is not bounded in per cent here (resctrl is mounted with mba_MBps, or counts in GB/s)"
    return ""


def _bounds(group: Path) -> dict[str, int]:
    """The bound behind each cache."""
    with suppress(OSError):
        for line in (group / "schemata").read_text().splitlines():
            kind, _, parts = line.strip().partition(":")
            if kind == "MB":
                return {cache: int(value) for cache, _, value in (part.partition("=") for part in parts.split(";"))}
    return {}


def _counted(group: Path) -> int | None:
    """Bytes of a group over all caches; None where one says `Unavailable` or `Error`."""
    total = 0
    for path in (group / "mon_data").glob(f"mon_L3_*/{TOTAL_BYTES}"):
        try:
            total += int(path.read_text())
        except (OSError, ValueError):
            return None
    return total


def _words(path: Path) -> list[str]:
    with suppress(OSError):
        return path.read_text().split()
    return []


def _threads(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208 - names are enough
    return []
