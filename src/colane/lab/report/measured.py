"""Sets of jobs that were measured together: for which of them sharing a GPU pays.

Delta is eq. 4.1 of paper A: sum of the step times alone / longest step time together; sharing pays from 1 on.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from colane.model.profile import Profile, ProfileKey, SetMeasurement

DELTA_PAYS = 1.0
"""From this speed-up on, running the set together beats running its jobs one after another (paper A, 4.1)."""

SETS_NAMED_MAX = 5  # a verdict names at most this many sets of each kind; the table has them all


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSet:
    """All measurements of one set under one way of sharing."""

    keys: tuple[ProfileKey, ...]  # sorted keys of the set
    sharing: str  # `mps`, `time-slice` or `cpu`
    times: int  # how often it was measured
    delta: float  # mean of the measurements' deltas (eq. 4.1)
    delta_min: float  # smallest of them
    delta_max: float  # largest of them
    delta_general: float  # mean of the general form, for the steps the jobs really made
    slowdowns: tuple[float, ...]  # mean step time together / alone, in the order of `keys`
    step_alone_s: tuple[float, ...]  # mean step time alone, in the order of `keys`
    step_together_s: tuple[float, ...]  # mean step time together, in the order of `keys`

    @property
    def pays(self) -> bool:
        """Whether the mean delta is at least 1."""
        return self.delta >= DELTA_PAYS

    @property
    def name(self) -> str:
        """Families with batch sizes, joined by +; equal ones are counted."""
        return " + ".join(
            shown if count == 1 else f"{count}x {shown}"
            for shown, count in [(name, len(list(same))) for name, same in groupby(map(short_name, self.keys))]
        )


class SetPoint(NamedTuple):
    """One measured set in the plane of paper A, Figs 4.11 to 4.13; the bandwidth is None if not profiled."""

    name: str
    sharing: str
    occupancy_sum: float
    bandwidth_sum: float | None
    delta: float


class Boundary(NamedTuple):
    """Fitted speed-up = intercept + per_occupancy * sum of C + per_bandwidth * sum of M; drawn where it is 1."""

    intercept: float
    per_occupancy: float
    per_bandwidth: float = 0.0


class ThroughputCurve(NamedTuple):
    """f(n): steps per second by number of GPUs, where it was measured and as it is believed elsewhere."""

    measured: dict[int, float]
    believed: dict[int, float]

    @classmethod
    def of(cls, measured_s: Mapping[int, float], fitted_s: Mapping[int, float]) -> ThroughputCurve:
        """Of step times by number of GPUs."""
        measured, fitted = ({gpus: 1 / step_s for gpus, step_s in sorted(s.items())} for s in (measured_s, fitted_s))
        return cls(measured, fitted)


def summarise_sets(measurements: Iterable[SetMeasurement]) -> tuple[MeasuredSet, ...]:
    """Measurements of the same set and way of sharing taken together, best delta first."""
    found: dict[tuple[tuple[ProfileKey, ...], str], list[SetMeasurement]] = defaultdict(list)
    for measurement in measurements:
        found[measurement.keys, measurement.sharing].append(measurement)
    sets = (_together(keys, sharing, taken) for (keys, sharing), taken in found.items())
    return tuple(sorted(sets, key=lambda measured: (-measured.delta, measured.name, measured.sharing)))


def verdict(sets: Sequence[MeasuredSet]) -> str:
    """For how many and which sets sharing pays, and for which it does not; best and worst are named first."""
    if not sets:
        return "No set of jobs was measured together, so nothing is said about which sets sharing pays for."
    good = [measured for measured in sets if measured.pays]
    bad = [measured for measured in reversed(sets) if not measured.pays]
    noun = "set" if len(sets) == 1 else "sets"
    said = f"Sharing pays (delta >= 1) for {len(good)} of {len(sets)} {noun} measured"
    said += f": {_named(good)}." if good else "."
    return said + (f" It does not pay for {_named(bad)}." if bad else "")


def mps_gains(sets: Sequence[MeasuredSet]) -> tuple[tuple[str, float], ...]:
    """Delta with MPS - delta without, of each set measured both ways (paper A, Fig. 4.14)."""
    without = {measured.keys: measured for measured in sets if measured.sharing == "time-slice"}
    return tuple(
        (measured.name, measured.delta - without[measured.keys].delta)
        for measured in sets
        if measured.sharing == "mps" and measured.keys in without
    )


def set_points(sets: Sequence[MeasuredSet], profiles: Iterable[Profile]) -> tuple[SetPoint, ...]:
    """Sum of C and of M of each set whose jobs' C are all profiled (paper A, eqs 4.2 and 4.3)."""
    by_key = {profile.key: profile for profile in profiles}
    found = ((measured, [by_key.get(key) for key in measured.keys]) for measured in sets)
    points = (_point(measured, [p for p in known if p]) for measured, known in found if all(known))
    return tuple(point for point in points if point is not None)


def throughput_by_batch(profiles: Iterable[Profile]) -> dict[str, list[tuple[int, float]]]:
    """Samples per second at each profiled batch size, by family and GPU type (paper A, Fig. 3.1)."""
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for profile in profiles:
        family, batch_size, gpus, gpu_type = profile.key
        if batch_size is not None and profile.step_s is not None and profile.step_s.value > 0:
            name = str(ProfileKey(family, None, gpus, gpu_type))
            found[name][batch_size] = batch_size * gpus / profile.step_s.value
    return {name: sorted(points.items()) for name, points in sorted(found.items())}


def short_name(key: ProfileKey) -> str:
    """Family and batch size, and the GPU count beyond one."""
    batch = "" if key.batch_size is None else f" b{key.batch_size}"
    return f"{plain_family(key.family)}{batch}" + ("" if key.gpus == 1 else f" x{key.gpus}")


def plain_family(family: str) -> str:
    """A family without the digits that tell directories of one name apart."""
    script, _, options = family.partition(" ")
    return " ".join(filter(None, [_DIRECTORY.sub("", script), options]))


_DIRECTORY = re.compile(r"@[0-9a-f]{8}$")


def _together(keys: tuple[ProfileKey, ...], sharing: str, taken: Sequence[SetMeasurement]) -> MeasuredSet:
    deltas = [measurement.delta for measurement in taken]
    return MeasuredSet(
        keys=keys,
        sharing=sharing,
        times=len(taken),
        delta=sum(deltas) / len(taken),
        delta_min=min(deltas),
        delta_max=max(deltas),
        delta_general=sum(measurement.delta_general for measurement in taken) / len(taken),
        slowdowns=_means([measurement.slowdowns for measurement in taken]),
        step_alone_s=_means([measurement.step_alone_s for measurement in taken]),
        step_together_s=_means([measurement.step_together_s for measurement in taken]),
    )


def _means(rows: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(sum(column) / len(rows) for column in zip(*rows, strict=True))


def _point(measured: MeasuredSet, known: Sequence[Profile]) -> SetPoint | None:
    occupancies = [profile.occupancy.value for profile in known if profile.occupancy]
    bandwidths = [profile.bandwidth.value for profile in known if profile.bandwidth]
    if len(occupancies) < len(measured.keys):
        return None
    bandwidth_sum = sum(bandwidths) if len(bandwidths) == len(measured.keys) else None
    return SetPoint(measured.name, measured.sharing, sum(occupancies), bandwidth_sum, measured.delta)


def _named(sets: Sequence[MeasuredSet]) -> str:
    shown = [f"{measured.name} ({measured.delta:.2f}, {measured.sharing})" for measured in sets]
    more = len(shown) - SETS_NAMED_MAX
    return ", ".join(shown[:SETS_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
