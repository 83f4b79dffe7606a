"""How a profile changes with new knowledge."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from colane.model.job_spec import Category
from colane.model.profile import CorePace, PlacePace, Profile, Slowdown, Value, ValueSource

SLOWDOWNS_MAX = 256  # slowdowns kept with one profile; of more, those with the fewest samples go

RANK = {ValueSource.MEASURED: 0, ValueSource.DECLARED: 1, ValueSource.PREDICTED: 2, ValueSource.DEFAULT: 3}

NEWS_RATIO: Final = 1.01
"""A belief that has moved by less than this is not worth another decision; nor is less than the double of samples."""


def is_news(old: Profile | None, new: Profile) -> bool:
    """Whether a profile says anything by which policies are to decide anew, over what it said when they last did.

    Speeds and loads may move by 1 %. Memory, which must never be too little, may not: it is learnt in steps as it is.
    """
    if old is None:
        return True
    return (
        _moved(_said(old), _said(new))
        or is_other(old.persistent_bytes, new.persistent_bytes)
        or is_other(old.ephemeral_bytes, new.ephemeral_bytes)
        or is_other(old.overhead_bytes, new.overhead_bytes)
        or old.category is not new.category
    )


def _said(profile: Profile) -> dict[object, Value]:
    """Each speed and load by what it is of."""
    found: dict[object, Value] = {pace.cores: pace.step_s for pace in profile.core_paces}
    found.update({("place", place.distance): place.step_s for place in profile.places})
    found.update({(one.beside, one.distance): one.ratio for one in profile.slowdowns})
    of_all = {
        "step": profile.step_s,
        "median": profile.step_median_s,
        "occupancy": profile.occupancy,
        "bandwidth": profile.bandwidth,
        "answers": profile.answer_p99_s,
    }
    found.update({name: value for name, value in of_all.items() if value is not None})
    return found


def _moved(old: dict[object, Value], new: dict[object, Value]) -> bool:
    return old.keys() != new.keys() or any(_has_moved(old[of], value) for of, value in new.items())


def _has_moved(old: Value, new: Value) -> bool:
    near = old.value <= new.value * NEWS_RATIO and new.value <= old.value * NEWS_RATIO
    return not near or old.source is not new.source or old.by != new.by or new.samples >= 2 * old.samples


def is_other(old: Value | None, new: Value | None) -> bool:
    """Whether a value says something else, however many samples stand behind it."""
    if old is None or new is None:
        return old is not new
    return old.value != new.value or old.source is not new.source


def merge_profiles(old: Profile, new: Profile, samples_max: int) -> Profile:
    """Fold new knowledge into old: means by sample count, memory by maximum, measured before declared.

    Args:
        old: What was believed.
        new: What was seen or said.
        samples_max: Bound on the weight of the old mean.
    """
    paces = _core_paces(old.core_paces, new.core_paces, samples_max)
    fastest = min([pace.step_s for pace in paces], default=None) if new.core_paces else None
    return replace(
        old,
        step_s=fastest or _mean(old.step_s, new.step_s, samples_max),
        step_median_s=_mean(old.step_median_s, new.step_median_s, samples_max),
        persistent_bytes=_largest(old.persistent_bytes, new.persistent_bytes),
        ephemeral_bytes=_largest(old.ephemeral_bytes, new.ephemeral_bytes),
        overhead_bytes=_largest(old.overhead_bytes, new.overhead_bytes),
        occupancy=_mean(old.occupancy, new.occupancy, samples_max),
        bandwidth=_mean(old.bandwidth, new.bandwidth, samples_max),
        updated_s=new.updated_s,
        users=tuple(sorted({*old.users, *new.users})),
        places=_places(old.places, new.places, samples_max),
        slowdowns=_slowdowns(old.slowdowns, new.slowdowns, samples_max),
        core_paces=paces,
        category=old.category if new.category is Category.UNKNOWN else new.category,
        answer_p99_s=_least(old.answer_p99_s, new.answer_p99_s),
    )


def without_speed(profile: Profile) -> Profile:
    """What is left of a profile once nothing that was measured of its speed and load alone holds."""
    return replace(
        profile, step_s=None, step_median_s=None, occupancy=None, bandwidth=None, core_paces=(), places=(),
        answer_p99_s=None,
    )  # fmt: skip


def memory_alone(profile: Profile) -> Profile:
    """What a profile says of memory."""
    return Profile(
        key=profile.key,
        persistent_bytes=profile.persistent_bytes,
        ephemeral_bytes=profile.ephemeral_bytes,
        overhead_bytes=profile.overhead_bytes,
        updated_s=profile.updated_s,
        users=profile.users,
        memory_window=profile.memory_window,
    )


def _core_paces(old: tuple[CorePace, ...], new: tuple[CorePace, ...], samples_max: int) -> tuple[CorePace, ...]:
    if not new:
        return old
    merged = {pace.cores: pace.step_s for pace in old}
    for pace in new:
        merged[pace.cores] = _mean(merged.get(pace.cores), pace.step_s, samples_max) or pace.step_s
    return tuple([CorePace(cores, merged[cores]) for cores in sorted(merged)])


def _places(old: tuple[PlacePace, ...], new: tuple[PlacePace, ...], samples_max: int) -> tuple[PlacePace, ...]:
    if not new:
        return old
    merged = {pace.distance: pace.step_s for pace in old}
    for pace in new:
        merged[pace.distance] = _mean(merged.get(pace.distance), pace.step_s, samples_max) or pace.step_s
    return tuple(PlacePace(distance, merged[distance]) for distance in sorted(merged))


def _slowdowns(old: tuple[Slowdown, ...], new: tuple[Slowdown, ...], samples_max: int) -> tuple[Slowdown, ...]:
    if not new:
        return old
    merged = {(str(one.beside), one.distance): one for one in old}
    for one in new:
        known = merged.get((str(one.beside), one.distance), one)
        ratio = one.ratio if known is one else _mean(known.ratio, one.ratio, samples_max) or one.ratio
        merged[str(one.beside), one.distance] = one._replace(ratio=ratio)
    kept = sorted(merged, key=lambda asked: (-merged[asked].ratio.samples, asked))[:SLOWDOWNS_MAX]
    return tuple(merged[asked] for asked in sorted(kept))


def _mean(old: Value | None, new: Value | None, samples_max: int) -> Value | None:
    if old is None or new is None:
        return new or old
    if old.source is not new.source or old.by != new.by:
        return new if RANK[new.source] <= RANK[old.source] else old
    weight = min(old.samples, samples_max)
    total = weight + new.samples
    return new._replace(value=(old.value * weight + new.value * new.samples) / total, samples=total)


def _largest(old: Value | None, new: Value | None) -> Value | None:
    """Memory is never under-estimated among measurements, but a measurement replaces a declaration."""
    if old is None or new is None:
        return new or old
    if old.source is not new.source:
        return new if RANK[new.source] <= RANK[old.source] else old
    return max(old, new, key=lambda value: value.value)._replace(samples=old.samples + new.samples)


def _least(old: Value | None, new: Value | None) -> Value | None:
    """What can be reached was reached once: whatever else ran on the machine makes answers late, never early."""
    if old is None or new is None:
        return new or old
    return min(old, new, key=lambda value: value.value)._replace(samples=old.samples + new.samples)
