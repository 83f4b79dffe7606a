"""Each factor of a rate: from this very situation measured, else from a model, else from a documented default.

| factor | measured | model | default |
| --- | --- | --- | --- |
| type | step times on both types | | no difference |
| number of GPUs | step times at both | fitted to known counts, two at least | fewer: in proportion; more: no gain |
| locality | step times there and at the nearest | on a line between known ones | beyond: as the farthest; else none |
| one node or several | step times both ways | | `SPREAD_SLOWDOWN` |
| cores | step times with so many | speed on a line between known numbers | beyond: as the last; fewer: in proportion |
| turns | shares of the fair rule; of `rr` by step times | | equal shares |
| bus | slowdown beside the worst neighbour | | no difference; bandwidth beyond what there is: in proportion |
| same GPU | slowdown in this very set | fitted to measured sets, threshold, bound by work | as slow as taking turns |
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Final

from colane.model.placement import TurnRule
from colane.model.profile import CorePace, PlacePace, Profile, ProfileKey, Value
from colane.perf.composing import OF_VALUE, weakest
from colane.perf.neighbours import NeighbourBeliefs
from colane.perf.rate import NEUTRAL_FACTOR, Factor, LaneMate, Prediction, RateSource
from colane.perf.scaling import fitted_step_s
from colane.perf.topology import ACROSS_MACHINES

PROMISING = frozenset({TurnRule.FAIR, TurnRule.RR})  # rules under which every job's turn comes soon

FITTED_MIN = 2  # numbers of GPUs that must be known before others are told by them

SPREAD_SLOWDOWN: Final = 1.5
"""Step time over several nodes, over that on one, where it was not seen.

Measured, of as many GPUs: 1.0, 1.5 and 2.0 in the median (Gavel's models on K80, P100 and V100), and 1.2 to 2.4
(Pollux's six applications on T4), which are no slower on three or four nodes than on two.
"""

UNKNOWN_FACTOR = Factor(1.0, RateSource.DEFAULT)  # taken to change nothing, as nothing is known


def times(one: Factor, other: Factor) -> Factor:
    """Two factors as one: slowdowns multiply, the weaker source counts."""
    if other is NEUTRAL_FACTOR:
        return one
    link = weakest((one, other))
    return Factor(one.slowdown * other.slowdown, link.source, link.samples)


def known_steps(profile: Profile | None) -> Value | None:
    """Step time of a profile, None while it has none above 0."""
    step_s = None if profile is None else profile.step_s
    return step_s if step_s is not None and step_s.value > 0 else None


def of_ratio(here: Value | None, there: Value | None) -> Factor:
    """Step time here over step time there, by two known values; unknown ones are taken to be alike."""
    if here is None or there is None:
        return UNKNOWN_FACTOR
    return Factor(here.value / there.value, _weaker(here, there), min(here.samples, there.samples))


def _weaker(here: Value, there: Value) -> RateSource:
    return weakest((Factor(1.0, OF_VALUE[here.source]), Factor(1.0, OF_VALUE[there.source]))).source


def of_count(counts: Mapping[int, Value], asked: int, given: int) -> Factor:
    """Another number of GPUs than the job asked for.

    Args:
        counts: Step time by number of GPUs, where known.
        asked: How many it asked for.
        given: How many it has.
    """
    here, there = counts.get(given), counts.get(asked)
    if here is not None and there is not None:
        return of_ratio(here, there)
    if len(counts) < FITTED_MIN or not given or not asked:
        return Factor(max(1.0, asked / max(1, given)), RateSource.DEFAULT)
    steps_s = {count: value.value for count, value in counts.items()}
    given_s = here.value if here is not None else fitted_step_s(steps_s, given)
    asked_s = there.value if there is not None else fitted_step_s(steps_s, asked)
    return Factor(given_s / asked_s, RateSource.FITTED, min([value.samples for value in counts.values()]))


def of_distance(places: Sequence[PlacePace], distance: float) -> Factor:
    """GPUs connected in this way against the best way that is known; never faster than that.

    Args:
        places: Step times by distance, ascending.
        distance: Sum of the shortest paths between the job's GPUs.
    """
    if not places:
        return UNKNOWN_FACTOR
    best = places[0]
    exact = next((place for place in places if place.distance == distance), None)
    if exact is not None:
        factor = of_ratio(exact.step_s, best.step_s)
        return factor._replace(slowdown=max(1.0, factor.slowdown))
    if not best.distance < distance < places[-1].distance:
        farthest = places[-1].step_s.value / best.step_s.value if distance > best.distance else 1.0
        return Factor(max(1.0, farthest), RateSource.DEFAULT)
    step_s = on_line([(place.distance, place.step_s.value) for place in places], distance)
    samples = min([place.step_s.samples for place in places])
    return Factor(max(1.0, step_s / best.step_s.value), RateSource.INTERPOLATED, samples)


def of_spread(places: Sequence[PlacePace], *, spans: bool) -> Factor:
    """GPUs of one node or of several, against the best way that is known; what is known without a place is of one.

    Args:
        places: Step times by distance, ascending.
        spans: Whether the GPUs lie on several nodes.
    """
    together = [place.step_s for place in places if place.distance < ACROSS_MACHINES]
    apart = [place.step_s for place in places if place.distance >= ACROSS_MACHINES]
    if spans == (bool(apart) and not together):
        return NEUTRAL_FACTOR
    if not together or not apart:
        return Factor(SPREAD_SLOWDOWN if spans else 1 / SPREAD_SLOWDOWN, RateSource.DEFAULT)
    factor = of_ratio(min(apart), min(together))
    return factor._replace(slowdown=max(1.0, factor.slowdown))


def on_line(points: Sequence[tuple[float, float]], at: float) -> float:
    """Value at `at` on the straight line between its two neighbours among (x, y), x ascending and around `at`."""
    after = bisect_left([x for x, _ in points], at)
    (x0, y0), (x1, y1) = points[after - 1], points[after]
    return y0 + (y1 - y0) * (at - x0) / (x1 - x0)


def of_cores(paces: Sequence[CorePace], asked: int, given: int | None) -> Factor:
    """So many cores against the number with which it is fastest; of unknown ones it is taken to need those it asks for.

    Args:
        paces: Step times by cores, ascending.
        asked: How many it asked for.
        given: How many it has; None is enough.
    """
    if given is None or (not paces and (not asked or given >= asked)):
        return NEUTRAL_FACTOR
    if not paces:
        return Factor(asked / max(1, given), RateSource.DEFAULT)
    best = min([pace.step_s.value for pace in paces])
    first, last = paces[0], paces[-1]
    if given < first.cores:
        return Factor(first.step_s.value / best * first.cores / max(1, given), RateSource.DEFAULT)
    known = [pace.step_s for pace in paces if pace.cores == min(given, last.cores)]
    if not known:
        speed = on_line([(float(pace.cores), best / pace.step_s.value) for pace in paces], given)
        return Factor(1 / speed, RateSource.INTERPOLATED, min([pace.step_s.samples for pace in paces]))
    slowdown = known[0].value / best
    source = OF_VALUE[known[0].source] if given <= last.cores else RateSource.DEFAULT
    return NEUTRAL_FACTOR if slowdown == 1.0 else Factor(slowdown, source, known[0].samples)


def of_turns(
    mine: LaneMate, lane_mates: Sequence[LaneMate], rule: TurnRule, profiles: Mapping[ProfileKey, Profile]
) -> Factor:
    """Taking turns with others in a lane: one over the share of its time.

    Under the fair rule shares go by weights; under `rr` all have as many steps, so time goes by their length.
    """
    if not lane_mates:
        return NEUTRAL_FACTOR
    if rule is TurnRule.FAIR:
        total = sum([lane_mate.weight for lane_mate in lane_mates], mine.weight)
        return Factor(1 / (mine.weight / total))
    if rule not in PROMISING:
        return Factor(1.0 + len(lane_mates), RateSource.NO_PROMISE)
    steps = [known_steps(profiles.get(lane_mate.key)) for lane_mate in (mine, *lane_mates)]
    known = [step_s for step_s in steps if step_s is not None]
    lengths = [1.0 if step_s is None else step_s.value for step_s in steps]
    slowdown = 1 / (lengths[0] / sum(lengths))
    if len(known) < len(steps):
        return Factor(slowdown, RateSource.DEFAULT)
    link = weakest([Factor(1.0, OF_VALUE[step_s.source], step_s.samples) for step_s in known])
    return Factor(slowdown, link.source, link.samples)


def of_bus(key: ProfileKey, near: Sequence[ProfileKey], neighbours: NeighbourBeliefs, pressure: float) -> Factor:
    """Neighbours on its sockets, of which the worst sets the pace, and bandwidth to host memory beyond the limit."""
    crowded = Factor(pressure, RateSource.DEFAULT) if pressure > 1.0 else NEUTRAL_FACTOR
    if not near:
        return crowded
    beside = [crowded]
    for other in near:
        mean = neighbours.mean(key, other)
        beside.append(UNKNOWN_FACTOR if mean is None else Factor(mean.slowdown, RateSource.MEASURED, mean.samples))
    link = weakest(beside)
    return Factor(max([factor.slowdown for factor in beside]), link.source, link.samples)


def of_gpu(key: ProfileKey, jobs: int, prediction: Prediction | None) -> Factor:
    """Jobs that run at once on a GPU: as much slower as each is foreseen to be, else as there are jobs over speed-up.

    Without a prediction, and where one sees no gain at all, they are taken to be as slow as if they took turns.
    """
    if jobs < 2:
        return NEUTRAL_FACTOR
    if prediction is None or not prediction.speedup > 0:
        return Factor(float(jobs), RateSource.DEFAULT)
    slowed = prediction.of(key)
    if slowed is None:
        return Factor(max(1.0, jobs / prediction.speedup), prediction.basis, prediction.samples)
    return Factor(max(1.0, slowed.slowdown), prediction.basis, prediction.samples, slowed.spread_ratio)
