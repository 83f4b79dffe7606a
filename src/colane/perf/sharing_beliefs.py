"""Jobs together on one GPU: what was measured of sets, and what is predicted of any.

The chain, each link weighed by its evidence: the very set as it was measured, drawn towards what is expected of its
pairs (`perf.interference`: family pair, effects of each job, its features), and that towards the bound by work. Until
enough was measured on a GPU type with a threshold (paper A), that goes before what was measured of others. Jobs that
share by the driver's time slicing, or whose C is no use but occupancy (`BY_GPM`), are foreseen to gain nothing until
enough is known of their like.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import exp, isfinite, log, log2, sqrt
from typing import TYPE_CHECKING, NamedTuple

from colane.model.hardware import AT_ONCE
from colane.model.profile import BY_GPM, Profile, ProfileKey, SetMeasurement
from colane.perf.config import PerfConfig
from colane.perf.encounters import ALL_OF_IT, CoRunnerTraits, Encounter, Estimate, Sighting, log_bound
from colane.perf.factors import known_steps
from colane.perf.rate import Prediction, RateSource, Slowed
from colane.perf.scatter import Scatter
from colane.perf.several import Smaller, of_several
from colane.perf.speedup import OCCUPANCY_UNITS_PER_S, delta, threshold_speedup

if TYPE_CHECKING:
    from colane.perf.interference import Interference, Scale

MEASURING_VARIANCE = 0.02**2  # of the log of a slowdown that was measured once, beside what differs from pair to pair
ANOTHER_RATIO = 1.5  # step times alone that differ so much are those of a job that has changed: sets are measured anew
MOVED_MIN = 0.02  # a set that was measured again teaches the model only when the log of a slowdown has moved so far
UNFITTED_RATIO, UNJUDGED_RATIO = 0.05, 0.25
"""The model is fitted anew once so many sets are new, as a part of those it knows; its scale once so many are."""
SIGHTINGS_MAX = 512  # slowdowns the model is fitted to at most; of more, those measured last
EVIDENCE_MIN = 0.5  # of jobs of unknown demand nothing is foreseen while less than this is known of their like
MEASUREMENTS_MAX = 50
"""Weight of earlier measurements of a set against the next, so that a belief can follow a changed script."""

PAIR = 2  # jobs; of more than these what is expected is made of pairs
DEMAND_MAX = 2.0  # kernels that overlap count each, so C may show more than all of a GPU; beyond this it shows nothing

Keys = tuple[ProfileKey, ...]


class SetBelief(NamedTuple):
    """Mean of a measured set."""

    logs: Mapping[ProfileKey, float]  # natural logs of the slowdowns, by kind
    delta: float  # speed-up (paper A, eq. 4.1)
    measurements: int  # how often
    alone_s: Mapping[ProfileKey, float]  # step times alone that the slowdowns are over, by kind


def sort_key(key: ProfileKey) -> tuple[str, int, int, str]:
    """Order of the keys of a set."""
    return (key.family, -1 if key.batch_size is None else key.batch_size, key.gpus, key.gpu_type)


def demand(profile: Profile | None) -> float | None:
    """Part of the GPU that a job keeps busy alone; None while its step time or C is unknown."""
    step_s = known_steps(profile)
    if profile is None or step_s is None or profile.occupancy is None:
        return None
    busy = profile.occupancy.value / (step_s.value * OCCUPANCY_UNITS_PER_S)
    return min(DEMAND_MAX, max(0.0, busy))


class SharingBeliefs:
    """Sets that were measured, and the model fitted to them.

    Args:
        config: How beliefs are formed.
        profiles: Of jobs alone, as they are at any time.

    Attributes:
        sets: By way of sharing and sorted keys.
    """

    def __init__(self, config: PerfConfig, profiles: Mapping[ProfileKey, Profile]) -> None:
        self.sets: dict[tuple[str, Keys], SetBelief] = {}
        self._config = config
        self._profiles = profiles
        self._scatter = Scatter(config.spreads[RateSource.MEASURED] ** 2)
        self._counts: dict[tuple[str, str], int] = {}
        self._last = ("", "")
        self._model: Interference | None = None
        self._scale: Scale | None = None
        self._fitted = 0
        self._judged = 0
        self._unfitted = 0
        self._co_runners: dict[ProfileKey, CoRunnerTraits] = {}
        self._predictions: dict[tuple[str, Keys], Prediction | None] = {}
        self._expectations: dict[tuple[str, Keys], dict[ProfileKey, Estimate]] = {}

    def _forget_answers(self) -> None:
        """What was worked out from what was known before."""
        self._predictions.clear()
        self._expectations.clear()

    def forget(self, key: ProfileKey) -> None:
        """A profile has changed."""
        self._co_runners.pop(key, None)
        self._forget_answers()

    def forget_sets(self, key: ProfileKey) -> None:
        """What its sets taught holds no more: the model is fitted without them."""
        self.forget(key)
        if any(key in keys for _, keys in self.sets):
            self._unfitted = max(1, self._fitted)

    def drop(self, family: str) -> None:
        """Forget every set with a job of a family, and fit the model to those that are left."""
        for asked in [asked for asked in self.sets if any(key.family == family for key in asked[1])]:
            del self.sets[asked]
            kind = asked[1][0].gpu_type, asked[0]
            self._counts[kind] -= 1
        self._scatter.drop(family)
        self._co_runners = {key: traits for key, traits in self._co_runners.items() if key.family != family}
        self._forget_answers()
        self._model, self._scale = None, None
        self._fitted, self._judged, self._unfitted = 0, 0, len(self.sets)

    def learn(self, measurement: SetMeasurement) -> bool:
        """Fold a measured set into the mean of its kind; False where its times say nothing."""
        if not all(isfinite(s) and s > 0 for s in (*measurement.step_alone_s, *measurement.step_together_s)):
            return False
        asked = measurement.sharing, tuple(sorted(measurement.keys, key=sort_key))
        logs, alone_s = _mean_logs(measurement), dict(zip(measurement.keys, measurement.step_alone_s, strict=True))
        old, self._last = self.sets.pop(asked, None), (asked[1][0].gpu_type, measurement.sharing)
        if old is None:
            self._counts[self._last] = self._counts.get(self._last, 0) + 1
            self._unfitted += 1
            self.sets[asked] = SetBelief(logs, measurement.delta, 1, alone_s)
        else:
            is_same = all(_is_near(alone_s[key], old.alone_s[key]) for key in logs)
            once = SetBelief(logs, measurement.delta, 1, alone_s)
            if is_same:
                for key, seen in logs.items():
                    self._scatter.seen(self._last, key.family, seen - old.logs[key], old.measurements)
            self.sets[asked] = _merged(old, once) if is_same else once
            moved = [abs(self.sets[asked].logs[key] - old.logs[key]) for key in logs]
            self._unfitted += max(moved) >= MOVED_MIN
        self._forget_answers()
        return True

    @property
    def is_telling(self) -> bool:
        """Whether what was learnt last changes what is foreseen of other sets, too."""
        return self._is_unfit or self._counts[self._last] <= self._config.sets_min

    @property
    def _is_unfit(self) -> bool:
        return self._unfitted > 0 and self._unfitted >= UNFITTED_RATIO * self._fitted

    def predict(self, keys: Keys, sharing: str) -> Prediction | None:
        """What is foreseen of a set, sorted; None when too little is known."""
        asked = sharing, keys
        if asked not in self._predictions:
            self._predictions[asked] = self._predict(keys, sharing)
        return self._predictions[asked]

    def _predict(self, keys: Keys, sharing: str) -> Prediction | None:
        measured = self.sets.get((sharing, keys))
        if measured is None or not self._holds(measured):
            by_threshold = self._by_threshold(keys, sharing)
            return by_threshold or self._foreseen(keys, sharing)
        expected = self._expected(keys, sharing)
        jobs = [self._weighed(key, measured, expected, sharing) for key in keys]
        times = f"measured {measured.measurements} time(s)"
        return self._prediction(jobs, times, RateSource.MEASURED, measured.measurements)

    def _holds(self, measured: SetBelief) -> bool:
        """Whether its jobs are alone as fast as they were when it was measured, as far as anything is known of them."""
        for key, alone_s in measured.alone_s.items():
            profile = self._profiles.get(key)
            step_s = known_steps(profile)
            if profile is not None and (step_s is None or not _is_near(step_s.value, alone_s)):
                return False
        return True

    def _weighed(
        self, key: ProfileKey, measured: SetBelief, expected: Mapping[ProfileKey, Estimate], sharing: str
    ) -> Slowed:
        """As it was measured, drawn towards what is expected as far as it usually may be off.

        Its spread is that of the next measurement, by how far measurements there were off (`perf.scatter`).
        """
        variance, count = self._config.spreads[RateSource.MEASURED] ** 2 / measured.measurements, measured.measurements
        single = self._scatter.of((key.gpu_type, sharing), key.family)
        estimate, seen = expected.get(key), measured.logs[key]
        if estimate is None:
            return _slowed(key, seen, single * (1 + 1 / count))
        share = estimate.variance / (estimate.variance + variance)
        log_slowdown = estimate.log_slowdown + share * (seen - estimate.log_slowdown)
        rest = (1.0 - share) ** 2 * estimate.variance
        return _slowed(key, log_slowdown, single * (1 + share**2 / count) + rest)

    def _usual(self, key: ProfileKey, measured: SetBelief, expected: Mapping[ProfileKey, Estimate]) -> float:
        """Variance of the log of what is believed of a measured set, by what measurements usually are off."""
        single = self._config.spreads[RateSource.MEASURED] ** 2
        variance, estimate = single / measured.measurements, expected.get(key)
        share = 1.0 if estimate is None else estimate.variance / (estimate.variance + variance)
        return single + share * variance

    def _foreseen(self, keys: Keys, sharing: str) -> Prediction | None:
        self._fit()
        found = [profile.occupancy for key in keys if (profile := self._profiles.get(key)) is not None]
        is_bound = sharing in AT_ONCE and not any(c is not None and c.by == BY_GPM for c in found)
        if self._model is None and not is_bound:  # what a bound says is no evidence
            return without_gain(keys)
        expected = self._expected(keys, sharing)
        if not is_bound and min([one.evidence for one in expected.values()], default=0.0) < EVIDENCE_MIN:
            return without_gain(keys)
        if not expected:
            return None
        width = 1.0 if self._model is None else self._width(self._model, keys, sharing)
        jobs = [_slowed(key, expected[key].log_slowdown, expected[key].variance * width**2) for key in keys]
        if self._model is None:
            return self._prediction(jobs, "bound by occupancy", RateSource.WORK_BOUND, 0)
        count = self._counts.get((keys[0].gpu_type, sharing), 0)
        where = f"{count} measured sets" if count else "sets measured elsewhere"
        return self._prediction(jobs, f"fitted to {where}", RateSource.REGRESSION, count)

    def _prediction(self, jobs: Sequence[Slowed], source: str, basis: RateSource, samples: int) -> Prediction:
        steps = [known_steps(self._profiles.get(job.key)) for job in jobs]
        alone_s = [1.0 if step_s is None or None in steps else step_s.value for step_s in steps]
        together_s = [job.slowdown * step_s for job, step_s in zip(jobs, alone_s, strict=True)]
        return Prediction(delta(alone_s, together_s), source, basis, samples, tuple(jobs))

    def _by_threshold(self, keys: Keys, sharing: str) -> Prediction | None:
        """Paper A's rule, where a GPU type has one and too few sets were measured on it (section 4.3)."""
        kind = keys[0].gpu_type
        limit = None if sharing not in AT_ONCE else self._config.occupancy_max.get(kind)
        if limit is None or self._counts.get((kind, sharing), 0) >= self._config.sets_min:
            return None
        found = [profile.occupancy for key in keys if (profile := self._profiles.get(key)) is not None]
        known = [occupancy.value for occupancy in found if occupancy is not None]
        if len(known) < len(keys):
            return None
        speedup = max(0.0, threshold_speedup(len(keys), sum(known), limit))
        return Prediction(speedup, "occupancy threshold", RateSource.THRESHOLD)

    def _expected(self, keys: Keys, sharing: str) -> dict[ProfileKey, Estimate]:
        """By kind, of all pairs in a set; empty when too little is known."""
        # Sets without one of the jobs are asked for theirs: unless kept, a set of n would be worked out n! times.
        asked = sharing, keys
        if asked not in self._expectations:
            self._expectations[asked] = self._expect(keys, sharing)
        return self._expectations[asked]

    def _expect(self, keys: Keys, sharing: str) -> dict[ProfileKey, Estimate]:
        self._fit()
        demands = [demand(self._profiles.get(key)) for key in keys]
        if self._model is None:
            known = [one for one in demands if one is not None]
            bound = Estimate(log(max(1.0, sum(known))), self._config.spreads[RateSource.WORK_BOUND] ** 2, 0.0)
            return dict.fromkeys(keys, bound) if len(known) == len(keys) else {}
        found = {key: self._beside(self._model, key, without(keys, at), sharing) for key, at in _places(keys).items()}
        is_told = None not in demands or min([one.evidence for one in found.values()]) >= EVIDENCE_MIN
        return found if is_told else {}

    def _beside(self, model: Interference, me: ProfileKey, others: Keys, sharing: str) -> Estimate:
        """Of a job beside these, by its pairs, or by measured sets of three and more without one of the others."""
        met = [self._encounter(me, other, sharing) for other in others]
        if len(met) == 1:
            return model.of(met[0])
        pairs = [_widened(model.of(one), model.width(one)) for one in met]
        smaller = self._smaller(me, others, sharing, pairs) if len(others) > PAIR else []
        return of_several(pairs, smaller, _log_work(met, pairs))

    def _smaller(self, me: ProfileKey, others: Keys, sharing: str, pairs: Sequence[Estimate]) -> list[Smaller]:
        """How a job goes in the measured sets of one of the others less."""
        found: list[Smaller] = []
        for at in _places(others).values():
            asked = tuple(sorted([me, *without(others, at)], key=sort_key))
            measured = self.sets.get((sharing, asked))
            if measured is None or not self._holds(measured) or (prediction := self.predict(asked, sharing)) is None:
                continue
            variance = self._usual(me, measured, self._expected(asked, sharing))
            slowdown = next(job.slowdown for job in prediction.jobs if job.key == me)
            there = [pair for other, pair in enumerate(pairs) if other != at]
            found.append(Smaller(slowdown, variance, there, pairs[at]))
        return found

    def _width(self, model: Interference, keys: Keys, sharing: str) -> float:
        """Factor on the spread of two jobs that were not measured together; of more, each pair has had its own."""
        return model.width(self._encounter(keys[0], keys[1], sharing)) if len(keys) == PAIR else 1.0

    def _encounter(self, me: ProfileKey, other: ProfileKey, sharing: str) -> Encounter:
        return Encounter(me.gpu_type, sharing, self._co_runner(me), self._co_runner(other))

    def _co_runner(self, key: ProfileKey) -> CoRunnerTraits:
        co_runner = self._co_runners.get(key)
        if co_runner is None:
            profile = self._profiles.get(key)
            step_s, busy = known_steps(profile), demand(profile)
            co_runner = self._co_runners[key] = CoRunnerTraits(
                key.family,
                log2(key.batch_size) if key.batch_size else None,
                None if step_s is None else round(log(step_s.value), 2),
                None if busy is None else round(busy, 3),
            )
        return co_runner

    def _fit(self) -> None:
        """Fit the model anew, if enough has been measured since."""
        if not self._is_unfit:
            return
        from colane.perf.interference import Interference  # noqa: PLC0415 - the core must import without numpy

        count = len(self.sets)
        is_judged = self._scale is not None and count <= self._judged * (1 + UNJUDGED_RATIO)
        sightings = list(self._sightings())[-SIGHTINGS_MAX:]
        self._model = Interference(sightings, self._scale if is_judged else None) if sightings else None
        if self._model is not None and not is_judged:
            self._scale, self._judged = self._model.scale, count
        self._fitted, self._unfitted = count, 0

    def _sightings(self) -> Iterator[Sighting]:
        """Pairs of all measured sets; in larger ones each of the others is taken to slow by its demand."""
        for (sharing, keys), belief in self.sets.items():
            if not self._holds(belief):
                continue
            variance = MEASURING_VARIANCE / belief.measurements * (len(keys) - 1) ** 2
            for place, me in enumerate(keys):
                others = [self._co_runner(key) for at, key in enumerate(keys) if at != place]
                if place and keys[place - 1] == me:
                    continue
                demands = [ALL_OF_IT if one.demand is None else max(one.demand, 0.01) for one in others]
                for other, one in dict(zip(others, demands, strict=True)).items():
                    slowdown = 1.0 + (exp(belief.logs[me]) - 1.0) * one / sum(demands)
                    met = Encounter(me.gpu_type, sharing, self._co_runner(me), other)
                    yield Sighting(met, log(slowdown), variance)


def without_gain(keys: Keys) -> Prediction:
    """Of jobs of whose like nothing was measured, where occupancy says nothing of a gain: as if they took turns."""
    jobs = tuple([Slowed(key, float(len(keys))) for key in keys])
    return Prediction(1.0, "nothing measured of such sharing there", RateSource.NO_EVIDENCE, 0, jobs)


def without(keys: Keys, place: int) -> Keys:
    """All but one."""
    return keys[:place] + keys[place + 1 :]


def _places(keys: Keys) -> dict[ProfileKey, int]:
    """Where each kind is, the last of alike ones."""
    return {key: at for at, key in enumerate(keys)}


def _widened(estimate: Estimate, width: float) -> Estimate:
    return estimate._replace(variance=estimate.variance * width**2)


def _log_work(met: Sequence[Encounter], pairs: Sequence[Estimate]) -> float:
    """Log of the bound by the work of a whole set, lower as its pairs lie below their own; 0 where unknown."""
    demands = [one.other.demand for one in met] + [met[0].me.demand]
    known = [one for one in demands if one is not None]
    if len(known) < len(demands):
        return 0.0
    below = [min(0.0, pair.log_slowdown - log_bound(one.me, one.other)) for one, pair in zip(met, pairs, strict=True)]
    return log(max(1.0, sum(known))) + sum(below) / len(below)


def _slowed(key: ProfileKey, log_slowdown: float, variance: float) -> Slowed:
    return Slowed(key, exp(max(0.0, log_slowdown)), sqrt(variance))


def _mean_logs(measurement: SetMeasurement) -> dict[ProfileKey, float]:
    """Of each kind, of twins their mean."""
    found: dict[ProfileKey, list[float]] = {}
    for key, slowdown in zip(measurement.keys, measurement.slowdowns, strict=True):
        found.setdefault(key, []).append(log(slowdown))
    return {key: sum(logs) / len(logs) for key, logs in found.items()}


def _merged(old: SetBelief, once: SetBelief) -> SetBelief:
    part = 1 / (min(old.measurements, MEASUREMENTS_MAX) + 1)
    means = {key: old.logs[key] + part * (seen - old.logs[key]) for key, seen in once.logs.items()}
    return SetBelief(means, old.delta + part * (once.delta - old.delta), old.measurements + 1, once.alone_s)


def _is_near(one_s: float, other_s: float) -> bool:
    """Whether two step times alone may be those of one and the same job."""
    return one_s <= ANOTHER_RATIO * other_s and other_s <= ANOTHER_RATIO * one_s
