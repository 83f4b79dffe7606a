"""Where no job comes or ends, jobs that may span nodes come to rest: none grows, shrinks and is moved for ever."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from colane.core import ClusterState, Core
from colane.core.config import CoreConfig
from colane.core.events import NodeRegistered, ProfileDeclared, Tick
from colane.model.job import JobSpec
from colane.model.profile import PlacePace, Value, ValueSource
from colane.perf.beliefs import Beliefs
from colane.scheduling.registry import create
from tests.core.worlds import make_node
from tests.scheduling.test_elastic_nodes import core, on_nodes, over
from tests.scheduling.test_elastic_value import elastic, go_on, profile, rigid, submit

POLICY = "colane:jobs_per_gpu_max=1"
FOREVER = 10**9
"""Steps of a job that does not end."""

SIZES = ((1, 2, 4, 6, 8), (1, 2, 3, 4), (2, 3, 5), (2, 4, 8), (3, 4, 5, 6))
ROUND_S, ROUNDS, LAST = 400.0, 20, 5
"""Longer than the quantum and than any protection here; so many; in the last of them nothing moves any more."""


def world(seed: int) -> tuple[Core, float]:
    """A few nodes of several sizes, jobs with curves of several slopes, and when the last one came."""
    draw = random.Random(seed)
    slopes = {f"wide{place}": draw.choice((0.3, 0.5, 0.7, 0.9)) for place in range(3)}
    known = [profile(family, n, n**slope) for family, slope in slopes.items() for n in range(1, 9)]
    known += [profile("rigid", n, 1.0) for n in (1, 2, 4)]
    nodes = [make_node(f"n{place}", draw.choice((2, 4, 4, 8))) for place in range(draw.randint(2, 5))]
    made, now_s = Core(create(POLICY), ClusterState(Beliefs()), CoreConfig(opaque_after_s=0.0)), 10.0
    made.step([*map(NodeRegistered, nodes), *map(ProfileDeclared, known)], 0.0)
    for _ in range(draw.randint(2, 7)):
        submit(made, now_s, _job(draw, tuple(slopes)))
        now_s += draw.choice((1.0, 100.0, 1000.0))
    return made, now_s


def _job(draw: random.Random, families: tuple[str, ...]) -> JobSpec:
    if draw.random() < 0.3:
        return replace(rigid(draw.choice((1, 2))), steps_total=FOREVER)
    sizes = draw.choice(SIZES)
    return replace(elastic(draw.choice(families), FOREVER, sizes), multi_node=True)


@pytest.mark.parametrize("seed", [*range(12), 55, 169])
def test_no_job_moves_for_ever(seed: int) -> None:
    made, now_s = world(seed)
    attempts = []
    for place in range(ROUNDS):
        now_s += ROUND_S
        made.step([Tick()], now_s)
        go_on(made, now_s + 1)
        if place >= ROUNDS - LAST:
            attempts.append({job.id: job.attempt for job in made.state.jobs.values()})
    assert attempts == [attempts[0]] * LAST


@pytest.mark.parametrize(
    ("apart_s", "place"),
    [(None, {"n1": 4}), (1.8, {"n1": 4}), (1.01, {"n0": 1, "n1": 4})],
    ids=["as all are taken to be", "seen slower", "seen as fast"],
)
def test_it_grows_over_nodes_by_the_number_by_which_it_would_be_gathered(
    apart_s: float | None, place: dict[str, int]
) -> None:
    """Five GPUs make steps 1.22 times as fast as four."""
    made = core(POLICY, 4, 8)
    if apart_s is not None:
        known = profile("wide", 5, 5**0.9)
        best = known.step_s
        assert best is not None
        paces = [(20.0, best.value), (401.0, apart_s * best.value)]
        places = tuple([PlacePace(at, Value(step_s, ValueSource.MEASURED, 100)) for at, step_s in paces])
        made.step([ProfileDeclared(replace(known, places=places))], 1.0)
    submit(made, 10.0, *[replace(rigid(4), steps_total=FOREVER)] * 2)
    submit(made, 20.0, replace(elastic("wide", FOREVER, (4, 5)), multi_node=True))
    assert on_nodes(made, 3) == {"n1": 4}
    over(made, 1, 1000.0)
    assert on_nodes(made, 3) == place
