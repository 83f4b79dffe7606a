"""How much slower one kind of job makes another on its GPU, from all that was measured of any (a Gaussian process).

The log of a slowdown is the log of the bound by work plus a deviation. Deviations are alike where the jobs are, so that
each measurement counts for another pair as much as both have in common, and nothing beyond that is believed:

| term | two pairs have it in common when |
| --- | --- |
| level | always: the mean of the GPU type |
| sensitivity | the slowed jobs are of one family, batch sizes near |
| pressure | the slowing jobs are |
| family pair | both are |
| features | both are alike in step time alone and demand |
| bound | it is off by the same part in both |

What a measured pair, its family pair, the effects of each job and their features weigh follows from the evidence: the
size of all terms and of what is left to the single pair are those that make the measurements likeliest (Rasmussen and
Williams, Gaussian Processes for Machine Learning, sections 2.2 and 5.4.1). Another GPU type or way of
sharing counts less. Of jobs that were not seen as much of the deviation is believed as would have foreseen those best
that were, each left out (`PairTrust`): where families are unlike each other the bound by work alone says more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from colane.model.hardware import BESIDE_OTHERS
from colane.perf.calibration import Judged, Places, believed, folds, left_out, pairs, slowed_is_hidden, width
from colane.perf.encounters import ALL_OF_IT, CoRunnerTraits, Encounter, Estimate, Sighting, log_bound

Floats = NDArray[np.float64]
World = tuple[str, str]  # a GPU type and a way of sharing

LEVEL, SENSITIVITY, PRESSURE, FAMILY_PAIR, FEATURES, BOUND = 0.3, 0.12, 0.06, 0.15, 0.15, 0.3
"""Variances of the terms before any evidence, in squared logs; chosen on Gavel's V100, P100 and K80 tables."""
BATCH_LENGTH, DEMAND_LENGTH, STEP_LENGTH = 10.0, 1.5, 3.0
"""How far apart jobs of one family may lie (doublings of the batch), and jobs alike (demand, log of the step time)."""
ELSEWHERE = 0.5  # part of a deviation that is expected on another GPU type, and as much again in another way of sharing
NO_BATCH, NO_STEP = -4.0, 0.0
AMPLITUDES: Floats = np.exp(np.linspace(log(0.03), log(30.0), 16))
NOISES: Floats = np.exp(np.linspace(log(3e-4), log(0.3), 16))
AMPLITUDE_WIDTH, NOISE_WIDTH, NOISE_USUAL = 1.0, 2.0, 0.01
JUDGED_MAX = 256  # sightings that size and noise are estimated from at most
FOLDS = 5  # jobs, and families, are hidden by so many parts, to see how far others are foreseen


class _Columns:
    """Encounters as columns of numbers, one row each; names count by their place in `codes`."""

    def __init__(self, encounters: Sequence[Encounter], codes: dict[str, int]) -> None:
        self.gpu_type = _coded([m.gpu_type for m in encounters], codes)
        self.sharing = _coded([m.sharing for m in encounters], codes)
        self.disturbed = np.array([m.sharing.endswith(BESIDE_OTHERS) for m in encounters], dtype=bool)
        self.bound = np.array([log_bound(m.me, m.other) for m in encounters], dtype=float)
        self.me = _Side([m.me for m in encounters], codes)
        self.other = _Side([m.other for m in encounters], codes)


class _Side:
    def __init__(self, kinds: Sequence[CoRunnerTraits], codes: dict[str, int]) -> None:
        self.family = _coded([k.family for k in kinds], codes)
        self.batch = np.array([NO_BATCH if k.batch is None else k.batch for k in kinds], dtype=float)
        self.step = np.array([NO_STEP if k.step is None else k.step for k in kinds], dtype=float)
        self.demand = np.array([ALL_OF_IT if k.demand is None else k.demand for k in kinds], dtype=float)
        self.known = np.array([k.step is not None and k.demand is not None for k in kinds], dtype=bool)

    def of_family(self, to: _Side) -> Floats:
        """How alike as members of a family: 1 the same, 0 of another."""
        near = np.exp(-np.abs(self.batch[:, None] - to.batch) / BATCH_LENGTH)
        return np.where(self.family[:, None] == to.family, near, 0.0)

    def alike(self, to: _Side, of_family: Floats) -> Floats:
        """How alike by features; where those are unknown, as members of a family."""
        demand = (self.demand[:, None] - to.demand) / DEMAND_LENGTH
        step = (self.step[:, None] - to.step) / STEP_LENGTH
        return np.where(self.known[:, None] & to.known, np.exp(-0.5 * (demand**2 + step**2)), of_family)


def _coded(names: Sequence[str], codes: dict[str, int]) -> NDArray[np.int64]:
    return np.array([codes.setdefault(name, len(codes)) for name in names], dtype=np.int64)


def _covariance(one: _Columns, other: _Columns) -> Floats:
    """Of the deviations of encounters, before any evidence."""
    mine, theirs = one.me.of_family(other.me), one.other.of_family(other.other)
    alike = one.me.alike(other.me, mine) * one.other.alike(other.other, theirs)
    terms = LEVEL + SENSITIVITY * mine + PRESSURE * theirs + FAMILY_PAIR * mine * theirs + FEATURES * alike
    terms += BOUND * one.bound[:, None] * other.bound
    types = np.where(one.gpu_type[:, None] == other.gpu_type, 1.0, ELSEWHERE)
    ways = np.where(one.sharing[:, None] == other.sharing, 1.0, ELSEWHERE)
    ways = np.where(one.disturbed[:, None] == other.disturbed, ways, 0.0)  # there what is left is shared
    found: Floats = terms * types * ways
    return found


def _variance(encounter: Encounter) -> float:
    """Of a deviation, before any evidence."""
    bound = log_bound(encounter.me, encounter.other)
    return LEVEL + SENSITIVITY + PRESSURE + FAMILY_PAIR + FEATURES + BOUND * bound * bound


class PairTrust(NamedTuple):
    """How far what is expected of pairs that were not measured holds, by what was left out (`perf.calibration`)."""

    width: float = 1.0  # factor on spreads by which intervals hold what they promise
    part: float = 1.0  # of the expected deviation from the bound by work that is believed


class PairTrusts(NamedTuple):
    """The same by what was seen of a pair's jobs."""

    of_pairs: PairTrust = PairTrust()  # both, though not beside each other
    of_jobs: PairTrust = PairTrust()  # not one of the jobs, but others of its family
    of_families: PairTrust = PairTrust()  # nothing of the family of the job that is slowed
    beside_families: PairTrust = PairTrust()  # nothing of that of the one that slows it


class Scale(NamedTuple):
    """How much slowdowns deviate from the bound by work, and how far what is expected was off."""

    amplitude: float = 1.0  # factor on the terms' variances
    noise: float = NOISE_USUAL  # variance of one pair
    trusts: PairTrusts = PairTrusts()  # where nothing was measured
    by_world: Mapping[World, PairTrusts] = MappingProxyType({})  # the same by GPU type and way of sharing


def likeliest(covariance: Floats, deviations: Floats) -> Scale:
    """The scale under which these deviations are likeliest, each weighed by what is usual."""
    values, vectors = np.linalg.eigh(covariance)
    along = (vectors.T @ deviations) ** 2
    spread = AMPLITUDES[:, None, None] * np.maximum(values, 0.0) + NOISES[None, :, None]
    score = -0.5 * (along / spread + np.log(spread)).sum(axis=-1)
    score -= 0.5 * (np.log(AMPLITUDES)[:, None] / AMPLITUDE_WIDTH) ** 2
    score -= 0.5 * (np.log(NOISES / NOISE_USUAL)[None, :] / NOISE_WIDTH) ** 2
    place = int(score.argmax())
    return Scale(float(AMPLITUDES[place // len(NOISES)]), float(NOISES[place % len(NOISES)]))


def _trust(judged: Judged, bound: Floats, blocks: Places, usual: PairTrust) -> PairTrust:
    part = believed(judged, bound, blocks, usual.part)
    shrunk = judged._replace(expected=bound + part * (judged.expected - bound))
    return PairTrust(width(shrunk, usual.width), part)


class Interference:
    """Slowdowns expected of any pair, given what was measured.

    Args:
        sightings: What was measured, at least one.
        scale: As it was estimated before, to be kept; None has it estimated.

    Attributes:
        scale: Size of the deviations.
        sightings: How many there are.
    """

    def __init__(self, sightings: Sequence[Sighting], scale: Scale | None = None) -> None:
        self.sightings = len(sightings)
        self._codes: dict[str, int] = {}
        self._seen = _Columns([s.encounter for s in sightings], self._codes)
        covariance = _covariance(self._seen, self._seen)
        deviations = np.array([s.log_slowdown for s in sightings], dtype=float) - self._seen.bound
        step = -(-len(sightings) // JUDGED_MAX)
        self.scale = scale or likeliest(covariance[::step, ::step], deviations[::step])
        measuring = np.array([s.variance for s in sightings], dtype=float)
        total = self.scale.amplitude * covariance + np.diag(measuring + self.scale.noise)
        self._precision: Floats = np.asarray(np.linalg.inv(total), dtype=np.float64)
        self._weights: Floats = self._precision @ deviations
        self._kinds: dict[tuple[str, float | None], int] = {}
        self._families = {side.family for s in sightings for side in (s.encounter.me, s.encounter.other)}
        self._known: dict[Encounter, Estimate] = {}
        members = [(self._kind(s.encounter.me), self._kind(s.encounter.other)) for s in sightings]
        if scale is None:
            worlds = [(s.encounter.gpu_type, s.encounter.sharing) for s in sightings]
            families = list(zip(self._seen.me.family.tolist(), self._seen.other.family.tolist(), strict=True))
            self.scale = self._calibrated(members, families, worlds, deviations + self._seen.bound, measuring)

    def _kind(self, co_runner: CoRunnerTraits) -> int:
        return self._kinds.setdefault((co_runner.family, co_runner.batch), len(self._kinds))

    def _calibrated(
        self,
        members: Sequence[tuple[int, int]],
        families: Sequence[tuple[int, int]],
        worlds: Sequence[World],
        truth: Floats,
        measuring: Floats,
    ) -> Scale:
        """The scale with what it shows of how far others are foreseen, on the whole and in each world."""
        kinds = {world: place for place, world in enumerate(dict.fromkeys(worlds))}
        world_at = np.array([kinds[world] for world in worlds], dtype=np.int64)
        by_jobs, by_families = folds(members, FOLDS), folds(families, FOLDS)
        is_new = np.concatenate([np.zeros(0, dtype=np.bool_), *[slowed_is_hidden(families, b) for b in by_families]])
        whole, each = list[PairTrust](), list[list[PairTrust]]()
        for blocks, chosen in ((pairs(members), None), (by_jobs, None), (by_families, is_new), (by_families, ~is_new)):
            judged = left_out(self._precision, self._weights, truth, blocks, measuring)
            places = np.concatenate([np.zeros(0, dtype=np.int64), *blocks])
            numbers = np.repeat(np.arange(len(blocks)), [len(block) for block in blocks])
            if chosen is not None:
                judged, places, numbers = judged.only(chosen), places[chosen], numbers[chosen]
            bound = self._seen.bound[places] if each else judged.expected  # of pairs seen all is believed
            usual = _trust(judged, bound, numbers, PairTrust())
            whole.append(usual)
            here = [world_at[places] == place for place in kinds.values()]
            each.append([_trust(judged.only(one), bound[one], numbers[one], usual) for one in here])
        by_world = {world: PairTrusts(*[one[place] for one in each]) for world, place in kinds.items()}
        return self.scale._replace(trusts=PairTrusts(*whole), by_world=by_world)

    def _trust(self, encounter: Encounter) -> PairTrust:
        """By how far such as it were off when left out."""
        known = [(one.family, one.batch) in self._kinds for one in (encounter.me, encounter.other)]
        trusts = self.scale.by_world.get((encounter.gpu_type, encounter.sharing), self.scale.trusts)
        if all(known):
            return trusts.of_pairs
        if encounter.me.family not in self._families:
            return trusts.of_families
        return trusts.of_jobs if encounter.other.family in self._families else trusts.beside_families

    def width(self, encounter: Encounter) -> float:
        """Factor on the spread of what is expected of an encounter."""
        return self._trust(encounter).width

    def of(self, encounter: Encounter) -> Estimate:
        """What is expected of one job beside another; remembered."""
        estimate = self._known.get(encounter)
        if estimate is None:
            estimate = self._known[encounter] = self._estimate(encounter)
        return estimate

    def _estimate(self, encounter: Encounter) -> Estimate:
        here = _Columns([encounter], self._codes)
        shared = self.scale.amplitude * _covariance(here, self._seen)[0]
        before = self.scale.amplitude * _variance(encounter)
        left = min(before, max(0.0, before - float(shared @ self._precision @ shared)))
        expected = float(here.bound[0]) + self._trust(encounter).part * float(shared @ self._weights)
        return Estimate(expected, left + self.scale.noise, 1.0 - left / before)
