"""A family that is forgotten leaves nothing behind: beliefs are those of a scheduler that never met it."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from random import Random

import pytest

from colane.model.job import JobSpec
from colane.model.profile import Profile, ProfileKey, SetMeasurement, Slowdown, Value, ValueSource
from colane.perf.beliefs import Beliefs
from colane.perf.rate import ALONE, Situation

FAMILIES = ("a", "b", "c", "d", "e")
TYPES = ("A100", "V100")


def measured(value: float) -> Value:
    return Value(value, ValueSource.MEASURED, 10)


def key(family: str, gpu_type: str, gpus: int = 1) -> ProfileKey:
    return ProfileKey(family, None, gpus, gpu_type)


def knowledge(draw: Random) -> tuple[list[Profile], list[SetMeasurement]]:
    profiles = [
        Profile(
            key=key(family, gpu_type, gpus), step_s=measured(draw.uniform(0.1, 1)),
            persistent_bytes=measured(draw.uniform(1e8, 1e9)), ephemeral_bytes=measured(draw.uniform(1e8, 1e9)),
            overhead_bytes=measured(draw.uniform(1e6, 1e8)), occupancy=measured(draw.uniform(1e6, 2e7)),
            slowdowns=tuple([
                Slowdown(key(other, gpu_type), 0.0, measured(draw.uniform(1, 2)))
                for other in FAMILIES if draw.random() < 0.5
            ]),
        )
        for family in FAMILIES for gpu_type in TYPES for gpus in (1, 2)
    ]  # fmt: skip
    alone = {profile.key: profile.step_s.value for profile in profiles if profile.step_s is not None}
    sets = []
    for gpu_type in TYPES:
        for members in [*combinations(FAMILIES, 2), *combinations(FAMILIES, 3)]:
            keys = tuple([key(family, gpu_type) for family in members])
            alone_s = tuple([alone[one] for one in keys])
            together_s = tuple([s * draw.uniform(1, 2) for s in alone_s])
            steps = tuple([100] * len(keys))
            if draw.random() < 0.7:
                sets.append(
                    SetMeasurement(
                        keys=keys, sharing="mps", step_alone_s=alone_s, step_together_s=together_s, steps=steps,
                        delta=draw.uniform(0.8, 1.5), delta_general=1.0, at_s=1.0,
                    )
                )  # fmt: skip
    return profiles, sets


def answers(beliefs: Beliefs) -> list[object]:
    """All that is ever asked of beliefs."""
    found: list[object] = [beliefs.neighbours.worst, sorted(beliefs.neighbours.pairs(), key=str)]
    for gpu_type in TYPES:
        found += [beliefs.line(gpu_type, "mps"), sorted(beliefs.points(gpu_type, "mps"))]
        for family in FAMILIES:
            spec = JobSpec(name=family, family=family)
            for gpus in (1, 2, 4):
                terms = beliefs.terms(spec, gpu_type, gpus)
                found += [terms.memory, terms.load, beliefs.rate(spec, Situation(gpu_type, gpus))]
            for others in [*combinations(FAMILIES, 1), *combinations(FAMILIES, 2)]:
                keys = tuple([key(other, gpu_type) for other in others])
                found += [beliefs.predict([key(family, gpu_type), *keys], "mps")]
                found += [beliefs.rate(spec, Situation(gpu_type, near=keys))]
            found.append(beliefs.rate(spec, ALONE))
    return found


@pytest.mark.parametrize("seed", range(4))
def test_beliefs_are_those_of_a_scheduler_that_never_met_it(seed: int) -> None:
    draw = Random(seed)
    profiles, sets = knowledge(draw)
    beliefs = Beliefs(profiles=profiles, measurements=sets)
    answers(beliefs)  # so that everything is remembered that can be
    changed = beliefs.forget("c")
    left = [
        replace(p, slowdowns=tuple([one for one in p.slowdowns if one.beside.family != "c"]))
        for p in profiles if p.key.family != "c"
    ]  # fmt: skip
    never = Beliefs(profiles=left, measurements=[one for one in sets if all(key.family != "c" for key in one.keys)])
    assert answers(beliefs) == answers(never)
    assert dict(beliefs.profiles) == {profile.key: profile for profile in left}
    assert {profile.key: profile for profile in changed}.items() <= dict(beliefs.profiles).items()
    assert len(changed) > 0
    taught = beliefs.learn_profile(next(p for p in profiles if p.key.family == "c"))
    assert beliefs.profiles[taught.key] == taught, "it is learnt anew"
