"""Paper A's claims against what was measured: published number, ours, verdict. Functions of the parts' results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np

from colane.client.knowledge import decode_measurement, decode_profile
from colane.lab.report.measured import MeasuredSet, SetPoint, set_points, summarise_sets
from colane.model.profile import Profile, SetMeasurement

Object = dict[str, Any]
Results = Mapping[str, Object]

NOT_MEASURED: Final = "not measured"
HOLDS: Final = "ordering holds"
SAME: Final = "same"

SAME_DELTA: Final = 0.05
"""Deltas this close are called the same: step times of ten sampled steps vary by some percent."""
SAME_PERCENT: Final = 10.0
"""Changes in percent that differ by less are called the same."""

HAIR: Final = 1e-7
"""Radians; far less than between two lines through points that were measured."""

FIFO: Final = "FIFO"
COLOCATION: Final = "co-location"
WITH_MPS: Final = "co-location, MPS"


def claims(results: Results) -> list[Object]:
    """Return one entry for each claim A-a to A-i."""
    sets, profiles = all_sets(results), all_profiles(results)
    return [
        _speedup_claim("A-a", results.get("best-2"), makespan=-50.0, run_span=25.0, workers=2),
        _speedup_claim("A-b", results.get("best-10"), makespan=-37.0, run_span=61.0, workers=10),
        _worst_pair(sets),
        _fewer_workers(results),
        _no_queue(results.get("worst-10") or results.get("worst-2")),
        _mps_in_worst_case(results.get("worst-10") or results.get("worst-2")),
        *_orderings(sets),
        *_separable(sets, profiles),
        *_growth(profiles),
    ]


def all_sets(results: Results) -> list[MeasuredSet]:
    """Return every set of all parts, each way of sharing by itself."""
    bodies = [body for each in results.values() for body in each.get("measurements", ())]
    return list(summarise_sets(_each_once(map(decode_measurement, bodies))))


def all_measurements(results: Results) -> list[SetMeasurement]:
    """Return every measurement of all parts, each once."""
    return _each_once(decode_measurement(body) for each in results.values() for body in each.get("measurements", ()))


def all_profiles(results: Results) -> list[Profile]:
    """Return the newest profile of each key of all parts."""
    found = [decode_profile(body) for each in results.values() for body in each.get("profiles", ())]
    return list({profile.key: profile for profile in sorted(found, key=lambda p: p.updated_s)}.values())


def _each_once(measurements: Iterable[SetMeasurement]) -> list[SetMeasurement]:
    return list({(m.keys, m.sharing, m.at_s): m for m in measurements}.values())


def _claim(number: str, claim: str, published: str, ours: str | None, verdict: str) -> Object:
    return {"id": number, "claim": claim, "published": published, "ours": ours, "verdict": verdict}


def _speedup_claim(number: str, found: Object | None, *, makespan: float, run_span: float, workers: int) -> Object:
    claim = f"best case, {workers} data workers: co-location against FIFO"
    published = f"makespan {makespan:+.0f} % or better, JCT {run_span:+.0f} %"
    change = ((found or {}).get("changes") or {}).get(COLOCATION)
    if change is None:
        return _claim(number, claim, published, None, NOT_MEASURED)
    ours = f"makespan {change['makespan_percent']:+.0f} %, JCT {change['run_span_percent']:+.0f} %"
    if change["makespan_percent"] <= makespan + SAME_PERCENT:
        verdict = SAME
    elif change["makespan_percent"] < 0:
        verdict = HOLDS
    else:
        verdict = "differs: co-location does not shorten the makespan here"
    return _claim(number, claim, published, ours, verdict)


def _worst_pair(sets: Iterable[MeasuredSet]) -> Object:
    claim = "delta of SE-ResNet-18 and ResNet-18 at batch 256"
    wanted = ("resnet18", "se_resnet18")
    found = [s for s in sets if tuple(k.family for k in s.keys) == wanted and {k.batch_size for k in s.keys} == {256}]
    if not found:
        return _claim("A-c", claim, "1.02", None, NOT_MEASURED)
    ours = ", ".join(f"{s.delta:.2f} ({s.sharing})" for s in found)
    same = any(abs(s.delta - 1.02) <= SAME_DELTA for s in found)
    larger = all(s.delta > 1.02 for s in found)
    verdict = SAME if same else f"differs: {'a larger GPU has more room' if larger else 'see the numbers'}"
    return _claim("A-c", claim, "1.02", ours, verdict)


def _fewer_workers(results: Results) -> Object:
    claim = "worst case, FIFO: 2 data workers instead of 10"
    few_s, many_s = (_makespan_per_step(results.get(f"worst-{workers}"), FIFO) for workers in (2, 10))
    if few_s is None or many_s is None:
        return _claim("A-d", claim, "makespan +25 %", None, NOT_MEASURED)
    change = 100 * (few_s / many_s - 1)
    verdict = SAME if abs(change - 25) <= SAME_PERCENT else HOLDS if change > 0 else "differs: data loading is no limit"
    return _claim("A-d", claim, "makespan +25 %", f"makespan per step {change:+.0f} %", verdict)


def _no_queue(found: Object | None) -> Object:
    claim = "worst case: queueing with co-location"
    group = ((found or {}).get("groups") or {}).get(COLOCATION)
    if group is None:
        return _claim("A-e", claim, "about 0", None, NOT_MEASURED)
    share = group["queue_mean_s"] / group["makespan_s"]
    verdict = SAME if share < 0.05 else "differs: the policy did not share (see the jobs' reasons)"
    return _claim("A-e", claim, "about 0", f"{group['queue_mean_s']:.1f} s, {share:.0%} of the makespan", verdict)


def _mps_in_worst_case(found: Object | None) -> Object:
    claim = "worst case: MPS against co-location without it"
    published = "lower makespan, larger JCT"
    groups = (found or {}).get("groups") or {}
    if COLOCATION not in groups or WITH_MPS not in groups:
        return _claim("A-f", claim, published, None, NOT_MEASURED)
    without, with_mps = groups[COLOCATION], groups[WITH_MPS]
    makespan = 100 * (with_mps["makespan_s"] / without["makespan_s"] - 1)
    run_span = 100 * (with_mps["run_span_mean_s"] / without["run_span_mean_s"] - 1)
    parts = [(makespan < 0, "makespan is not lower"), (run_span > 0, "JCT is not larger")]
    wrong = [text for holds, text in parts if not holds]
    ours = f"makespan {makespan:+.0f} %, JCT {run_span:+.0f} %"
    return _claim("A-f", claim, published, ours, HOLDS if not wrong else f"differs: {', '.join(wrong)}")


def _makespan_per_step(found: Object | None, phase: str) -> float | None:
    """Makespan by the steps of a job: two parts may have had time for unequal numbers of steps."""
    group = ((found or {}).get("groups") or {}).get(phase)
    return None if found is None or group is None else float(group["makespan_s"] / found["iters"])


def _orderings(sets: Sequence[MeasuredSet]) -> list[Object]:
    """Claims A-g, without MPS where both were measured."""
    sharing = "time-slice" if any(s.sharing == "time-slice" for s in sets) else next((s.sharing for s in sets), "")
    chosen = [s for s in sets if s.sharing == sharing]
    return [_best_by_batch(chosen), _triples(chosen), _extremes(chosen)]


def _best_by_batch(sets: Sequence[MeasuredSet]) -> Object:
    claim, published = "a larger batch has a smaller best delta", "falls from 64 to 256"
    best = {size: max(s.delta for s in _at(sets, size)) for size in (64, 128, 256) if _at(sets, size)}
    if len(best) < 2:
        return _claim("A-g1", claim, published, None, NOT_MEASURED)
    falls = all(a >= b for a, b in pairwise(best.values()))
    ours = ", ".join(f"{delta:.2f} at {size}" for size, delta in best.items())
    return _claim("A-g1", claim, published, ours, HOLDS if falls else "differs: it does not fall throughout")


def _triples(sets: Sequence[MeasuredSet]) -> Object:
    claim, published = "triples gain more than their pairs at batch 64", "in most sets"
    at = _at(sets, 64)
    pairs = {tuple(k.family for k in s.keys): s.delta for s in at if len(s.keys) == 2}
    triples = [s for s in at if len(s.keys) == 3]
    if not pairs or not triples:
        return _claim("A-g2", claim, published, None, NOT_MEASURED)
    more = sum(s.delta >= max(_pairs_within(s, pairs), default=0.0) for s in triples)
    verdict = HOLDS if more > len(triples) / 2 else "differs: only in a minority"
    return _claim("A-g2", claim, published, f"in {more} of {len(triples)}", verdict)


def _pairs_within(triple: MeasuredSet, pairs: Mapping[tuple[str, ...], float]) -> list[float]:
    families = [key.family for key in triple.keys]
    inside = [tuple(family for j, family in enumerate(families) if j != i) for i in range(len(families))]
    return [pairs[pair] for pair in inside if pair in pairs]


def _extremes(sets: Sequence[MeasuredSet]) -> Object:
    claim, published = "worst sets contain ResNet-50, best contain VGG-11", "both"
    at = [s for s in _at(sets, 64) if len(s.keys) == 2]
    if len(at) < 5:
        return _claim("A-g3", claim, published, None, NOT_MEASURED)
    best, worst = max(at, key=lambda s: s.delta), min(at, key=lambda s: s.delta)
    holds = "vgg11" in {k.family for k in best.keys} and "resnet50" in {k.family for k in worst.keys}
    ours = f"best {best.name} ({best.delta:.2f}), worst {worst.name} ({worst.delta:.2f})"
    return _claim("A-g3", claim, published, ours, HOLDS if holds else "differs: see the sets")


def _at(sets: Iterable[MeasuredSet], batch: int) -> list[MeasuredSet]:
    return [s for s in sets if {key.batch_size for key in s.keys} == {batch}]


def _separable(sets: Sequence[MeasuredSet], profiles: Sequence[Profile]) -> list[Object]:
    """Claim A-h for each way of sharing."""
    points = set_points(sets, profiles)
    return [_separable_by(sharing, [p for p in points if p.sharing == sharing]) for sharing in ("mps", "time-slice")]


def _separable_by(sharing: str, points: Sequence[SetPoint]) -> Object:
    with_mps = sharing == "mps"
    claim = f"sets that gain are told apart by the sums of C and M ({'with' if with_mps else 'without'} MPS)"
    published = "a line separates them" if with_mps else "no line does"
    good = sum(point.delta >= 1 for point in points)
    number = f"A-h ({sharing})"
    if len(points) < 5 or good in (0, len(points)):
        ours = f"{good} of {len(points)} sets gain" if points else None
        return _claim(number, claim, published, ours, "cannot be judged: one side is empty" if points else NOT_MEASURED)
    right = _best_line(points)
    ours = f"the best line puts {right} of {len(points)} sets on the right side"
    holds = (right == len(points)) == with_mps
    return _claim(number, claim, published, ours, HOLDS if holds else "differs: see the figure")


def _best_line(points: Sequence[SetPoint]) -> int:
    """Return how many sets the best straight line has on their right side, those that gain all on the other.

    A line that separates best can be turned until it meets two points, so those through two points, turned by a
    hair to either side, are all that have to be tried.
    """
    places = np.array([[p.occupancy_sum, p.bandwidth_sum or 0.0] for p in points], dtype=float)
    places /= np.where(places.any(axis=0), np.abs(places).max(axis=0), 1.0)
    gains = np.array([p.delta >= 1 for p in points])
    first, second = np.triu_indices(len(points), 1)
    across = places[first] - places[second]
    angles = np.arctan2(across[:, 1], across[:, 0])[:, None] + np.array([0.5, -0.5]) * np.pi
    turned = (angles[:, :, None] + np.array([HAIR, -HAIR])).ravel()
    normals = np.stack([np.cos(turned), np.sin(turned)])
    return max(_best_split(places @ normal, gains) for normal in normals.T)


def _best_split(heights: Any, gains: Any) -> int:  # noqa: ANN401 - numpy arrays
    """Return how many are on their side when all below some height are taken to gain."""
    ordered = gains[np.argsort(heights)]
    below = np.concatenate([[0], np.cumsum(ordered)])
    above = np.concatenate([[0], np.cumsum(~ordered)])
    return int((below + above[-1] - above).max())


def _growth(profiles: Sequence[Profile]) -> list[Object]:
    """Claim A-i for C and for M."""
    values = {
        "C": {p.key: p.occupancy.value for p in profiles if p.occupancy and p.key.batch_size},
        "M": {p.key: p.bandwidth.value for p in profiles if p.bandwidth and p.key.batch_size},
    }
    return [
        _growth_of(name, {(k.family, k.batch_size or 0): v for k, v in found.items()}) for name, found in values.items()
    ]


def _growth_of(name: str, found: Mapping[tuple[str, int], float]) -> Object:
    claim = f"{name} rises with the batch; ResNet-50 has the most, VGG-11 the least"
    number, published = f"A-i ({name})", "both"
    plain = {key: value for key, value in found.items() if "-w" not in key[0]}
    families = sorted({family for family, _ in plain})
    if len(families) < 3 or len(plain) < 2 * len(families):
        return _claim(number, claim, published, None, NOT_MEASURED)
    rising = [family for family in families if _rises([v for (f, _), v in sorted(plain.items()) if f == family])]
    at = {family: value for (family, size), value in plain.items() if size == min(s for _, s in plain)}
    most, least = max(at, key=lambda f: at[f]), min(at, key=lambda f: at[f])
    holds = len(rising) == len(families) and most == "resnet50" and least == "vgg11"
    ours = f"rises for {len(rising)} of {len(families)} models; most {most}, least {least}"
    return _claim(number, claim, published, ours, HOLDS if holds else "differs: see the table")


def _rises(values: Sequence[float]) -> bool:
    return all(a < b for a, b in pairwise(values))
