"""What a live cluster has measured of its jobs, as `colane export` writes it: `measured.json`.

Speeds alone and together by kind of job, memory, the part of a device a job keeps busy, and what a run takes besides
its steps. It is what `colane simulate --measured` moves jobs by.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from colane.lab.traces.readers.assemble import load_json
from colane.model.profile import Memory, Profile, ProfileKey, SetMeasurement
from colane.settings.input_file import InputFileError, read_text

RAN_ON = "ran_on"  # label of an exported job: the GPU type its duration holds for
OVERHEAD = "overhead_s"  # label of an exported job: seconds its run took besides its steps
STARTED_S, ENDED_S = "started_s", "ended_s"
"""Labels of an exported job that came after the beginning: when it first started and ended, on the trace's clock."""

HAD_S = "had_s"
"""Label of an exported job that has not ended, and of which nothing tells how long it takes: how long it had run."""

DONE_S = "done_s"  # label of an exported job that runs: how much of its duration it has done
UNITS_PER_S = 2e8
"""C counts percent x us over two steps: a step of 1 s at full occupancy counts this much (paper A, eq. 4.3)."""


@dataclass(frozen=True, slots=True)
class MeasuredJob:
    """One kind of job alone."""

    step_s: float  # mean step time
    memory: Memory | None = None  # P and E on each GPU; None was not measured
    occupancy_ratio: float | None = None  # part of a GPU it keeps busy; None was not measured


class Overhead(NamedTuple):
    """What a run takes besides its steps: launch before the first and leaving after the last, mean of all."""

    alone_s: float = 0.0  # without co-runners
    work_ratio: float = 1.0  # part of it, 0..1, that is work of a cpu device: co-runners slow it as they slow steps


NO_OVERHEAD = Overhead()  # where nothing is known of it


@dataclass(frozen=True)
class MeasuredTable:
    """Everything that was measured."""

    jobs: Mapping[ProfileKey, MeasuredJob]  # by kind
    # step time together / alone of the first kind beside the others, which are sorted
    slowdowns: Mapping[tuple[ProfileKey, tuple[ProfileKey, ...]], float] = field(default_factory=dict)
    overhead: Overhead = NO_OVERHEAD  # what a run takes besides its steps

    def slowdown(self, key: ProfileKey, others: Iterable[ProfileKey]) -> float | None:
        """Of a kind beside others on one GPU; None where this set was not measured."""
        return self.slowdowns.get((key, tuple(sorted(others, key=str))))

    def estimate(self, key: ProfileKey, others: Sequence[ProfileKey]) -> float | None:
        """Slowdown in a set that was not measured; None where no set of its size was, or a demand is unknown.

        What the work of all allows, times how much slower than that measured sets of this size were in the mean.
        """
        bound, excess = self._bound(key, others), self._excess.get(len(others))
        return None if bound is None or excess is None else bound * excess

    @cached_property
    def _excess(self) -> dict[int, float]:
        """Slowdown over its bound by work, mean of the measured sets, by the number of others."""
        found: dict[int, list[float]] = {}
        for (key, others), slowdown in self.slowdowns.items():
            bound = self._bound(key, others)
            if bound is not None:
                found.setdefault(len(others), []).append(slowdown / bound)
        return {size: sum(ratios) / len(ratios) for size, ratios in found.items()}

    def _bound(self, key: ProfileKey, others: Iterable[ProfileKey]) -> float | None:
        """A GPU cannot give more than one second of work in a second."""
        total = 0.0
        for kind in (key, *others):
            job = self.jobs.get(kind)
            if job is None or job.occupancy_ratio is None:
                return None
            total += job.occupancy_ratio
        return max(1.0, total)


def from_profiles(
    profiles: Iterable[Profile], measurements: Iterable[SetMeasurement], overhead: Overhead = NO_OVERHEAD
) -> MeasuredTable:
    """The table of what a scheduler has learnt; of sets measured several times every step counts alike.

    A job is slowed from the time alone that its kind has in the table: what was believed of that when the set ran may
    have been another.
    """
    jobs = {p.key: _job(p, p.step_s.value) for p in profiles if p.step_s is not None and p.step_s.value > 0}
    found: dict[tuple[ProfileKey, tuple[ProfileKey, ...]], list[tuple[int, float, float]]] = {}
    for measured in measurements:
        seen = zip(measured.keys, measured.steps, measured.step_together_s, measured.step_alone_s, strict=True)
        for place, (key, steps, together_s, alone_s) in enumerate(seen):
            others = (*measured.keys[:place], *measured.keys[place + 1 :])
            found.setdefault((key, tuple(sorted(others, key=str))), []).append((max(1, steps), together_s, alone_s))
    slowdowns = {co_runners: _slowdown(jobs, co_runners[0], seen) for co_runners, seen in found.items()}
    return MeasuredTable(jobs, slowdowns, overhead)


def _slowdown(
    jobs: Mapping[ProfileKey, MeasuredJob], key: ProfileKey, seen: Sequence[tuple[int, float, float]]
) -> float:
    """Mean time of a step together over that alone, from steps and their times together and alone."""
    known = jobs.get(key)
    together_s = sum(steps * together_s for steps, together_s, _ in seen)
    return together_s / sum(steps * (known.step_s if known else alone_s) for steps, _, alone_s in seen)


def _job(profile: Profile, step_s: float) -> MeasuredJob:
    memory = None
    if profile.persistent_bytes is not None and profile.ephemeral_bytes is not None:
        memory = Memory(round(profile.persistent_bytes.value), round(profile.ephemeral_bytes.value))
    occupancy = profile.occupancy
    ratio = None if occupancy is None else min(1.0, occupancy.value / (step_s * UNITS_PER_S))
    return MeasuredJob(step_s, memory, ratio)


def write(table: MeasuredTable, path: Path) -> None:
    """Write `measured.json`; `read` reads it back. Raises OSError: the file cannot be written."""
    jobs = [
        {
            **key._asdict(),
            "step_s": job.step_s,
            "memory": None if job.memory is None else job.memory._asdict(),
            "occupancy_ratio": job.occupancy_ratio,
        }
        for key, job in table.jobs.items()
    ]
    sets = [
        {"job": key._asdict(), "others": [other._asdict() for other in others], "slowdown": slowdown}
        for (key, others), slowdown in table.slowdowns.items()
    ]
    overhead = {"overhead_s": table.overhead.alone_s, "overhead_work_ratio": table.overhead.work_ratio}
    whole = {**overhead, "jobs": jobs, "companies": sets}
    path.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


def read(path: Path) -> MeasuredTable:
    """Read `measured.json`. Raises InputFileError: it is not of that form."""
    document = load_json(path, read_text(path))
    try:
        jobs = {_key(raw): _read_job(raw) for raw in document["jobs"]}
        slowdowns = {
            (_key(raw["job"]), tuple(sorted(map(_key, raw["others"]), key=str))): _positive(raw["slowdown"])
            for raw in document["companies"]
        }
        return MeasuredTable(jobs, slowdowns, _overhead(document))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputFileError(path, f"is not what `colane export` writes: {error!r}") from error


def _key(raw: Mapping[str, Any]) -> ProfileKey:
    return ProfileKey(raw["family"], raw["batch_size"], int(raw["gpus"]), raw["gpu_type"])


def _read_job(raw: Mapping[str, Any]) -> MeasuredJob:
    memory = raw["memory"]
    ratio = raw["occupancy_ratio"]
    return MeasuredJob(
        _positive(raw["step_s"]),
        None if memory is None else Memory(int(memory["persistent_bytes"]), int(memory["ephemeral_bytes"])),
        None if ratio is None else float(ratio),
    )


def _overhead(document: Mapping[str, Any]) -> Overhead:
    """All of it was taken for work before files told the part."""
    alone_s, work_ratio = float(document["overhead_s"]), float(document.get("overhead_work_ratio", 1.0))
    if not (0 <= alone_s < inf and 0 <= work_ratio <= 1):
        raise ValueError(f"overhead_s is {alone_s:g} and overhead_work_ratio {work_ratio:g}: >= 0 and 0..1 expected")
    return Overhead(alone_s, work_ratio)


def _positive(value: object) -> float:
    if not isinstance(value, int | float) or not 0 < value < inf:
        raise ValueError(f"expected a number above 0, got {value!r}")
    return float(value)
