"""Curves: what is known of one kind of job on one GPU type, by number of GPUs and by how these are connected.

A profile is a point of a curve: what was seen with so many GPUs. The number is that of a placement, so a job that is
given another one learns and is judged at another point of the same curve.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from colane.model.profile import Profile, ProfileKey, Value, ValueSource
from colane.perf.factors import (
    FITTED_MIN,
    UNKNOWN_FACTOR,
    known_steps,
    of_count,
    of_distance,
    of_ratio,
    of_spread,
    times,
)
from colane.perf.rate import NEUTRAL_FACTOR, Factor, Situation
from colane.perf.scaling import fitted_step_s

Family = tuple[str, int | None]  # family and batch size


class Curve:
    """The points of one kind of job on one GPU type.

    Attributes:
        points: Profiles by number of GPUs.
        steps: Step times by number of GPUs, where known and above 0.
    """

    def __init__(self) -> None:
        self.points: dict[int, Profile] = {}
        self.steps: dict[int, Value] = {}

    def put(self, profile: Profile) -> None:
        """Take the new value of a point."""
        gpus, step_s = profile.key.gpus, known_steps(profile)
        self.points[gpus] = profile
        if step_s is None:
            self.steps.pop(gpus, None)
        else:
            self.steps[gpus] = step_s

    def near(self, gpus: int) -> Iterator[Profile]:
        """Points in order of nearness to a number of GPUs, its own first; of two as near the larger one."""
        for count in sorted(self.points, key=lambda count: (abs(count - gpus), -count)):
            yield self.points[count]

    def memory(self, gpus: int) -> tuple[Value, Value] | None:
        """P and E on each GPU; at a number of GPUs where they are unknown, the most that is known of any."""
        own = self.points.get(gpus)
        found = [own] if own is not None and own.memory_bytes is not None else list(self.points.values())
        known = [(p.persistent_bytes, p.ephemeral_bytes) for p in found]
        pairs = [(held, within) for held, within in known if held is not None and within is not None]
        return max(pairs, key=lambda pair: pair[0].value + pair[1].value, default=None)

    def with_load(self, gpus: int) -> Profile | None:
        """The nearest point of which C is known."""
        for point in self.near(gpus):
            if point.occupancy is not None:
                return point
        return None

    def step_s(self, gpus: int, distance: float | None) -> Value | None:
        """Step time alone with so many GPUs, connected like that; None while it is not known of so many.

        Of a place that was not seen it is that of those that were, by what is known of distances.
        """
        step_s = self.steps.get(gpus)
        if distance is None or gpus < 2 or step_s is None:
            return step_s
        here = next((place.step_s for place in self.points[gpus].places if place.distance == distance), None)
        if here is not None:
            return here
        return step_s._replace(value=step_s.value * self.distance(gpus, distance).slowdown)

    def place(self, gpus: int, situation: Situation) -> Factor:
        """Where its GPUs lie, against the best way that is known: on one node or several, else how far apart."""
        if situation.spans is None or gpus < 2:
            return self.distance(gpus, situation.distance)
        point = self.points.get(gpus)
        return of_spread(() if point is None else point.places, spans=situation.spans)

    def distance(self, gpus: int, distance: float | None) -> Factor:
        """GPUs connected like that, against the best way that is known."""
        if distance is None or gpus < 2:
            return NEUTRAL_FACTOR
        point = self.points.get(gpus)
        return UNKNOWN_FACTOR if point is None else of_distance(point.places, distance)


EMPTY_CURVE = Curve()  # of an unknown kind


class Curves:
    """All curves, by kind of job and GPU type."""

    def __init__(self, profiles: Iterable[Profile] = ()) -> None:
        self._types: dict[Family, dict[str, Curve]] = {}
        for profile in profiles:
            self.put(profile)

    def put(self, profile: Profile) -> None:
        """Take the new value of a point."""
        key = profile.key
        types = self._types.setdefault((key.family, key.batch_size), {})
        types.setdefault(key.gpu_type, Curve()).put(profile)

    def of(self, key: ProfileKey) -> Curve:
        """The curve that a point lies on."""
        return self._types.get((key.family, key.batch_size), {}).get(key.gpu_type, EMPTY_CURVE)

    def types(self, family: str, batch_size: int | None) -> Mapping[str, Curve]:
        """Curves of one kind of job by GPU type."""
        return self._types.get((family, batch_size), {})

    def fastest(self, family: str, batch_size: int | None, gpus: int) -> str:
        """GPU type on which so many GPUs make a step soonest, the first by name of several; empty while unknown."""
        curves = self.types(family, batch_size)
        found = [(curve.steps[gpus].value, kind) for kind, curve in curves.items() if gpus in curve.steps]
        return min(found)[1] if found else ""

    def size(self, reference: ProfileKey, key: ProfileKey) -> Factor:
        """Another GPU type or number of GPUs than the reference, both connected as well as can be."""
        if key == reference:
            return NEUTRAL_FACTOR
        factor, steps = NEUTRAL_FACTOR, self.of(key).steps
        if key.gpu_type != reference.gpu_type:
            factor = of_ratio(steps.get(reference.gpus), self.of(reference).steps.get(reference.gpus))
        if key.gpus != reference.gpus:
            factor = times(of_count(steps, reference.gpus, key.gpus), factor)
        return factor

    def alone(self, reference: ProfileKey, key: ProfileKey, distance: float | None, size: Factor) -> Value | None:
        """Step time alone at a size: as it is known, else by the reference's; None while neither tells.

        Args:
            reference: The job at the size it asked for.
            key: The same at another.
            distance: How its GPUs are connected there; None is as well as can be.
            size: Of the one against the other.
        """
        here = self.of(key).step_s(key.gpus, distance)
        if here is not None:
            return here
        asked = self.of(reference).steps.get(reference.gpus)
        if asked is None or not size.is_known:
            return self._fitted(key)
        slowdown = size.slowdown * self.of(key).distance(key.gpus, distance).slowdown
        return Value(asked.value * slowdown, ValueSource.PREDICTED, asked.samples)

    def _fitted(self, key: ProfileKey) -> Value | None:
        """Step time with so many GPUs by those that are known of the same type; None while they are too few."""
        steps = self.of(key).steps
        if len(steps) < FITTED_MIN or not key.gpus:
            return None
        fitted = fitted_step_s({gpus: step_s.value for gpus, step_s in steps.items()}, key.gpus)
        return Value(fitted, ValueSource.PREDICTED, min([step_s.samples for step_s in steps.values()]))
