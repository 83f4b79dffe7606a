"""The rate: its pieces, where each comes from, how they compose, and what must hold of any."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import hypot, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.model.job import JobSpec
from colane.model.placement import TurnRule
from colane.model.profile import BY_GPM, PlacePace, Profile, ProfileKey, SetMeasurement, Value, ValueSource
from colane.perf.beliefs import Beliefs
from colane.perf.composing import SOURCES, spread_ratio
from colane.perf.config import SPREADS, PerfConfig
from colane.perf.neighbours import Beside, NeighbourBeliefs
from colane.perf.rate import ALONE, Factor, LaneMate, RateSource, Situation
from colane.perf.speedup import OCCUPANCY_UNITS_PER_S
from colane.perf.utility import bus_harm, gpu_harm, harm, harm_beside, speedup

FAST, SLOW = "A100", "K80"
SPEC = JobSpec(name="me", family="me", batch_size=64)
ME, YOU, THEY = (ProfileKey(family, 64, 1, FAST) for family in ("me", "you", "they"))


def known(key: ProfileKey, step_s: float, busy: float = 0.5, source: ValueSource = ValueSource.MEASURED) -> Profile:
    """A profile of a job that keeps a part of the GPU busy."""
    occupancy = Value(busy * step_s * OCCUPANCY_UNITS_PER_S, source, 10)
    return Profile(key=key, step_s=Value(step_s, source, 10), occupancy=occupancy)


def measured(*keys: ProfileKey, delta: float, sharing: str = "time-slice") -> SetMeasurement:
    count = len(keys)
    return SetMeasurement(
        keys=keys, sharing=sharing, step_alone_s=(0.1,) * count, step_together_s=(0.1 * count / delta,) * count,
        steps=(9,) * count, delta=delta, delta_general=delta, at_s=0.0,
    )  # fmt: skip


def test_alone_at_what_it_asked_for_is_the_reference() -> None:
    rate = Beliefs(profiles=[known(ME, 0.3)]).rate(SPEC, ALONE)
    assert (rate.ratio, rate.step_s, rate.source, rate.spread_ratio) == (1.0, 0.3, RateSource.GIVEN, 0.0)
    assert rate.steps_per_s == pytest.approx(1 / 0.3)
    assert (speedup(rate), harm(rate)) == (1.0, 0.0)


def test_of_an_unknown_job_no_speed_is_made_up() -> None:
    rate = Beliefs().rate(SPEC, Situation(FAST, sharing="mps", beside=(YOU,)))
    assert (rate.step_s, rate.steps_per_s, rate.together) == (None, None, None)
    assert (rate.ratio, rate.source) == (0.5, RateSource.DEFAULT)
    assert speedup(rate) is None
    assert gpu_harm(rate, 1.0) is None
    alone = Beliefs().rate(SPEC, Situation(FAST))
    assert (alone.step_s, alone.ratio, alone.source) == (None, 1.0, RateSource.GIVEN)


def test_the_reference_is_the_type_it_asked_for_else_the_fastest() -> None:
    slow = ME._replace(gpu_type=SLOW)
    beliefs = Beliefs(profiles=[known(ME, 0.1), known(slow, 0.4, source=ValueSource.DECLARED)])
    any_type = beliefs.rate(SPEC, Situation(SLOW))
    assert (any_type.ratio, any_type.step_s, any_type.source) == (0.25, 0.4, RateSource.DECLARED)
    asked = beliefs.rate(replace(SPEC, gpu_type=SLOW), Situation(SLOW))
    assert (asked.ratio, asked.step_s) == (1.0, 0.4)
    assert beliefs.rate(SPEC, ALONE).step_s == 0.1
    unknown = beliefs.rate(SPEC, Situation("T4"))
    assert (unknown.step_s, unknown.ratio, unknown.source) == (None, 1.0, RateSource.DEFAULT)


def test_another_number_of_gpus_is_measured_else_fitted_else_in_proportion() -> None:
    spec = replace(SPEC, gpus=4)
    one, four, eight = (known(ME._replace(gpus=n), step_s) for n, step_s in ((1, 0.4), (4, 0.2), (8, 0.15)))
    beliefs = Beliefs(profiles=[one, four])
    assert beliefs.rate(spec, Situation(FAST, 1)).ratio == 0.5
    assert beliefs.rate(spec, Situation(FAST, 1)).source is RateSource.MEASURED
    two = beliefs.rate(spec, Situation(FAST, 2))
    shared_s, same_s = 0.8 / 3, 0.4 - 0.8 / 3
    assert two.step_s == pytest.approx(shared_s / 2 + same_s)
    assert two.source is RateSource.FITTED
    more = beliefs.rate(spec, Situation(FAST, 8))
    assert more.step_s == pytest.approx(shared_s / 8 + same_s)
    assert more.ratio == pytest.approx(0.2 / (shared_s / 8 + same_s))
    beliefs.learn_profile(eight)
    assert beliefs.rate(spec, Situation(FAST, 8)).ratio == pytest.approx(4 / 3)
    fewer = Beliefs(profiles=[four]).rate(spec, Situation(FAST, 1))
    assert (fewer.ratio, fewer.step_s, fewer.source) == (0.25, None, RateSource.DEFAULT)


def test_how_gpus_are_connected_is_measured_else_on_a_line_else_as_the_farthest() -> None:
    spec, key = replace(SPEC, gpus=2), ME._replace(gpus=2)
    places = tuple(
        PlacePace(distance, Value(step_s, ValueSource.MEASURED, 20)) for distance, step_s in ((1, 0.1), (20, 0.2))
    )
    beliefs = Beliefs(profiles=[replace(known(key, 0.1), places=places)])
    rates = [beliefs.rate(spec, Situation(FAST, distance=distance)) for distance in (1, 10.5, 20, 100)]
    assert [rate.ratio for rate in rates] == pytest.approx([1, 1 / 1.5, 0.5, 0.5])
    assert [rate.source for rate in rates] == [
        RateSource.MEASURED, RateSource.INTERPOLATED, RateSource.MEASURED, RateSource.DEFAULT,
    ]  # fmt: skip
    assert rates[2].step_s == pytest.approx(0.2)
    single = Beliefs(profiles=[known(ME, 0.1)]).rate(SPEC, Situation(FAST, distance=20))
    assert (single.ratio, single.source) == (1.0, RateSource.GIVEN)


def test_a_place_that_was_seen_gives_its_own_step_time() -> None:
    spec, key = replace(SPEC, gpus=2), ME._replace(gpus=2)
    places = (PlacePace(1, Value(0.1, ValueSource.MEASURED, 20)), PlacePace(20, Value(0.2, ValueSource.MEASURED, 5)))
    beliefs = Beliefs(profiles=[replace(known(key, 0.16), places=places)])
    far = beliefs.rate(spec, Situation(FAST, distance=20))
    assert (far.step_s, far.alone, far.ratio) == (0.2, places[1].step_s, 0.5)
    assert beliefs.rate(spec, ALONE).step_s == 0.16, "wherever it ran"


def test_with_another_number_of_gpus_a_job_is_booked_by_the_curve() -> None:
    def held(gpus: int, p_bytes: float, e_bytes: float, busy: float) -> Profile:
        values = [Value(number, ValueSource.MEASURED) for number in (p_bytes, e_bytes)]
        point = known(ME._replace(gpus=gpus), 0.1, busy)
        return replace(point, persistent_bytes=values[0], ephemeral_bytes=values[1])

    beliefs = Beliefs(PerfConfig(persistent_factor=1, total_factor=1), [held(1, 50, 50, 0.9), held(4, 60, 20, 0.5)])
    spec = replace(SPEC, gpus=4)
    four, two, one = (beliefs.terms(spec, FAST, gpus) for gpus in (4, 2, 1))
    assert four == beliefs.terms(spec, FAST)
    assert [terms.key.gpus for terms in (four, two, one)] == [4, 2, 1]
    assert [terms.memory for terms in (four, two, one)] == [(60, 20), (50, 50), (50, 50)]
    assert two.load == one.load != four.load
    assert set(beliefs.curve(spec, FAST).points) == {1, 4}
    stranger = beliefs.terms(replace(spec, family="new", gpu_memory_bytes=7), FAST, 2)
    assert (stranger.memory, stranger.load) == ((7, 0), None)
    assert beliefs.terms(replace(spec, gpus=2), FAST).memory is None, "of what it asked for nothing is borrowed"


def test_fewer_cores_than_asked_for_count_in_proportion_and_more_bring_nothing() -> None:
    beliefs, spec = Beliefs(profiles=[known(ME, 0.1)]), replace(SPEC, cores=8)
    assert [beliefs.rate(spec, Situation(FAST, cores=n)).ratio for n in (2, 8, 16)] == [0.25, 1.0, 1.0]
    assert beliefs.rate(spec, Situation(FAST, cores=2)).source is RateSource.DEFAULT


def test_turns_are_shared_by_weight_by_step_length_or_by_no_promise() -> None:
    beliefs = Beliefs(profiles=[known(ME, 0.1), known(YOU, 0.3)])
    fair = beliefs.rate(replace(SPEC, weight=3.0), Situation(FAST, lane_mates=(LaneMate(YOU),)))
    assert (fair.ratio, fair.source) == (0.75, RateSource.GIVEN)
    assert fair.step_s == pytest.approx(0.1 / 0.75)
    in_turn = beliefs.rate(SPEC, Situation(FAST, lane_mates=(LaneMate(YOU),), rule=TurnRule.RR))
    assert in_turn.ratio == pytest.approx(0.25)
    assert in_turn.source is RateSource.MEASURED
    stranger = beliefs.rate(SPEC, Situation(FAST, lane_mates=(LaneMate(THEY),), rule=TurnRule.RR))
    assert stranger.source is RateSource.DEFAULT
    behind = beliefs.rate(SPEC, Situation(FAST, lane_mates=(LaneMate(YOU),), rule=TurnRule.SRTF))
    assert (behind.ratio, behind.is_promised, behind.source) == (0.5, False, RateSource.NO_PROMISE)


def test_the_worst_neighbour_sets_the_pace_and_an_unknown_one_is_said() -> None:
    neighbours = NeighbourBeliefs({Beside(ME, YOU): 1.5})
    beliefs = Beliefs(profiles=[known(ME, 0.1)], neighbours=neighbours)
    rate = beliefs.rate(SPEC, Situation(FAST, near=(YOU,)))
    assert rate.ratio == pytest.approx(1 / 1.5)
    assert (rate.source, rate.samples) == (RateSource.MEASURED, 1)
    assert bus_harm(rate, neighbours.worst) == harm_beside(beliefs, ME, YOU) == 1.0
    assert beliefs.rate(SPEC, Situation(FAST, near=(YOU, THEY))).source is RateSource.DEFAULT
    neighbours.learn(Beside(ME, THEY), 2.0)
    assert beliefs.rate(SPEC, Situation(FAST, near=(YOU, THEY))).ratio == 0.5
    crowded = beliefs.rate(SPEC, Situation(FAST, bandwidth_pressure=1.25))
    assert (crowded.ratio, crowded.source) == (0.8, RateSource.DEFAULT)


def test_bus_and_gpu_do_not_add_up_the_slower_counts() -> None:
    neighbours = NeighbourBeliefs({Beside(ME, THEY): 3.0})
    beliefs = Beliefs(profiles=[known(ME, 0.1), known(YOU, 0.1, busy=1.0)], neighbours=neighbours)
    beside, near = (YOU,), (THEY,)
    alone = Situation(FAST, sharing="mps", beside=beside)
    assert beliefs.rate(SPEC, alone).slowdown == 1.5
    assert beliefs.rate(SPEC, alone._replace(near=near)).slowdown == 3.0
    lane_mates = (LaneMate(YOU),)
    assert beliefs.rate(SPEC, alone._replace(near=near, lane_mates=lane_mates)).slowdown == pytest.approx(6.0)


def test_each_source_of_the_same_gpu_gives_its_prediction() -> None:
    limits = PerfConfig(sets_min=3, occupancy_max={FAST: 4e7})
    keys = [ProfileKey(f"f{k}", 64, 1, FAST) for k in range(5)]
    profiles = [known(key, 0.1, busy=0.1 * (k + 1)) for k, key in enumerate(keys)]
    by_work, beliefs = Beliefs(profiles=profiles), Beliefs(limits, profiles)
    spec = replace(SPEC, family="f0")

    def source(beliefs: Beliefs, sharing: str) -> RateSource:
        rate = beliefs.rate(spec, Situation(FAST, sharing=sharing, beside=(keys[1],)))
        old = beliefs.predict([keys[1], keys[0]], sharing)
        assert old is not None
        assert speedup(rate) == old.speedup
        assert rate.together is not None
        assert rate.together.source == old.source
        assert rate.samples == old.samples
        return rate.source

    assert source(by_work, "mps") is RateSource.WORK_BOUND
    assert source(beliefs, "mps") is RateSource.THRESHOLD
    for one, two in pairwise(keys[1:]):
        beliefs.learn_set(measured(one, two, delta=1.5, sharing="mps"))
    assert source(beliefs, "mps") is RateSource.REGRESSION
    assert source(beliefs, "time-slice") is RateSource.NO_EVIDENCE
    beliefs.learn_set(measured(keys[0], keys[1], delta=1.0, sharing="mps"))
    assert source(beliefs, "mps") is RateSource.MEASURED
    exact = beliefs.rate(spec, Situation(FAST, sharing="mps", beside=(keys[1],)))
    assert speedup(exact) == pytest.approx(1.0, rel=0.05)
    assert exact.ratio == pytest.approx(0.5, rel=0.05)


@pytest.mark.parametrize("busy", [0.1, 0.5, 1.0, None])
def test_time_slicing_is_as_slow_as_taking_turns_until_something_tells_otherwise(busy: float | None) -> None:
    keys = [ProfileKey(f"f{k}", 64, 1, FAST) for k in range(4)]
    beliefs = Beliefs(profiles=[] if busy is None else [known(key, 0.1, busy=busy) for key in keys])
    for count in (2, 3):
        found = beliefs.predict(keys[:count], "time-slice")
        assert found is not None
        assert (found.speedup, found.basis, found.pays(1.0), found.pays(0.5)) == (
            1.0,
            RateSource.NO_EVIDENCE,
            False,
            False,
        )
        rate = beliefs.rate(
            replace(SPEC, family="f0"), Situation(FAST, sharing="time-slice", beside=tuple(keys[1:count]))
        )
        assert (rate.slowdown, rate.source) == (float(count), RateSource.NO_EVIDENCE)
    beliefs.learn_set(measured(keys[0], keys[1], delta=1.8, sharing="time-slice"))
    found = beliefs.predict(keys[:2], "time-slice")
    assert found is not None
    assert found.speedup == pytest.approx(1.8, rel=0.1)
    assert found.basis is RateSource.MEASURED
    assert found.pays(1.0)


def test_occupancy_on_an_h100_promises_nothing_until_the_pair_or_its_like_was_measured() -> None:
    """Products of matrices use all of it and show 0.14: by work, two would go at 2.0 times the speed of one."""
    keys = [ProfileKey(f"f{k}", 64, 1, FAST) for k in range(6)]

    def seen(key: ProfileKey) -> Profile:
        profile = known(key, 0.1, busy=0.14)
        assert profile.occupancy is not None
        return replace(profile, occupancy=profile.occupancy._replace(by=BY_GPM))

    beliefs, by_work = (Beliefs(profiles=[make(key) for key in keys]) for make in (seen, lambda k: known(k, 0.1, 0.14)))

    def told(beliefs: Beliefs, *keys: ProfileKey) -> tuple[float, RateSource]:
        found = beliefs.predict(keys, "mps")
        assert found is not None
        return found.speedup, found.basis

    speed, basis = told(by_work, *keys[:2])
    assert (round(speed, 6), basis) == (2.0, RateSource.WORK_BOUND)
    assert told(beliefs, *keys[:2]) == (1.0, RateSource.NO_EVIDENCE)
    assert told(beliefs, *keys[:3]) == (1.0, RateSource.NO_EVIDENCE)
    beliefs.learn_set(measured(keys[0], keys[1], delta=1.05, sharing="mps"))
    speed, basis = told(beliefs, *keys[:2])
    assert basis is RateSource.MEASURED
    assert speed == pytest.approx(1.05, rel=0.1)
    assert told(beliefs, *keys[4:]) == (1.0, RateSource.NO_EVIDENCE)
    for one, two in pairwise(keys[:5]):
        for _ in range(3):
            beliefs.learn_set(measured(one, two, delta=1.05, sharing="mps"))
    speed, basis = told(beliefs, keys[0], keys[3])
    assert basis in {RateSource.REGRESSION, RateSource.NO_EVIDENCE}
    assert speed < 1.2


def test_no_prediction_is_below_zero_and_none_makes_a_rate_infinite() -> None:
    heavy = Beliefs(PerfConfig(occupancy_max={FAST: 1e6}), [known(ME, 0.1), known(YOU, 0.1)])
    rate = heavy.rate(SPEC, Situation(FAST, sharing="mps", beside=(YOU,)))
    assert (speedup(rate), rate.ratio, rate.source) == (0.0, 0.5, RateSource.DEFAULT)
    assert gpu_harm(rate, 0.3) == 1.0


def test_the_weakest_link_is_said_and_spreads_add_as_independent_errors() -> None:
    beliefs = Beliefs(
        profiles=[known(ME, 0.1), known(ME._replace(gpu_type=SLOW), 0.2), known(YOU._replace(gpu_type=SLOW), 0.1)]
    )
    rate = beliefs.rate(SPEC, Situation(SLOW, sharing="mps", beside=(YOU._replace(gpu_type=SLOW),)))
    assert rate.source is RateSource.WORK_BOUND
    of_type = SPREADS[RateSource.MEASURED] * sqrt(1 + 1 / 10)
    assert rate.spread_ratio == pytest.approx(hypot(of_type, SPREADS[RateSource.WORK_BOUND]))
    spreads = [spread_ratio([Factor(1.2, RateSource.MEASURED, n)], SPREADS) for n in (1, 2, 10, 10_000)]
    assert spreads == sorted(spreads, reverse=True)
    assert spreads[-1] == pytest.approx(SPREADS[RateSource.MEASURED], rel=1e-3)
    assert all(SOURCES[source] and source in SPREADS for source in RateSource)


def test_what_was_said_is_forgotten_when_something_is_learnt() -> None:
    beliefs = Beliefs(profiles=[known(ME, 0.1), known(YOU, 0.1)])
    situation = Situation(FAST, beside=(YOU,), near=(THEY,))
    first = beliefs.rate(SPEC, situation)
    assert beliefs.rate(SPEC, situation) is first
    beliefs.learn_set(measured(ME, YOU, delta=0.8))
    assert beliefs.rate(SPEC, situation).slowdown == pytest.approx(2.5, rel=0.02)
    beliefs.neighbours.learn(Beside(ME, THEY), 4.0)
    assert beliefs.rate(SPEC, situation).slowdown == 4.0
    beliefs.learn_profile(known(ME, 0.2))
    alone = beliefs.rate(SPEC, situation).alone
    assert alone is not None
    assert alone.value == pytest.approx(0.15)
    assert alone.samples == 20


busy_jobs = st.lists(st.tuples(st.floats(0.01, 10), st.floats(0.01, 1)), min_size=2, max_size=6)


@given(busy_jobs, st.lists(st.floats(1, 4), max_size=3), st.lists(st.floats(0.1, 9), max_size=3))
def test_bound_by_work_more_co_runners_never_raise_a_ratio(
    jobs: list[tuple[float, float]], near: list[float], weights: list[float]
) -> None:
    keys = [ProfileKey(f"f{k}", 64, 1, FAST) for k in range(len(jobs))]
    profiles = [known(key, step_s, busy) for key, (step_s, busy) in zip(keys, jobs, strict=True)]
    others = [ProfileKey(f"n{k}", 64, 1, FAST) for k in range(len(near))]
    pairs = {Beside(keys[0], other): slowdown for other, slowdown in zip(others, near, strict=True)}
    beliefs, spec = Beliefs(profiles=profiles, neighbours=NeighbourBeliefs(pairs)), replace(SPEC, family="f0")
    lane_mates = [LaneMate(keys[1], weight) for weight in weights]
    grown = [Situation(FAST, beside=tuple(keys[1 : 1 + n])) for n in range(len(keys))]
    grown += [grown[-1]._replace(near=tuple(others[: n + 1])) for n in range(len(others))]
    grown += [grown[-1]._replace(lane_mates=tuple(lane_mates[: n + 1])) for n in range(len(lane_mates))]
    ratios = [beliefs.rate(spec, situation).ratio for situation in grown]
    assert ratios[0] == 1.0
    assert all(0 < after <= before * (1 + 1e-12) for before, after in pairwise(ratios))


@given(busy_jobs)
def test_where_all_step_alike_delta_is_the_sum_of_the_ratios(jobs: list[tuple[float, float]]) -> None:
    keys = [ProfileKey(f"f{k}", 64, 1, FAST) for k in range(len(jobs))]
    beliefs = Beliefs(profiles=[known(key, 0.1, busy) for key, (_, busy) in zip(keys, jobs, strict=True)])
    rates = [
        beliefs.rate(replace(SPEC, family=key.family), Situation(FAST, beside=tuple(k for k in keys if k != key)))
        for key in keys
    ]
    assert speedup(rates[0]) == pytest.approx(sum(rate.ratio for rate in rates))
    assert harm(rates[0]) == pytest.approx(1 / rates[0].ratio - 1)


@given(busy_jobs, st.lists(st.floats(0.2, 3), max_size=8), st.sampled_from(["mps", "time-slice"]), st.booleans())
def test_the_papers_numbers_are_read_off_the_prediction(
    jobs: list[tuple[float, float]], deltas: list[float], sharing: str, limited: bool
) -> None:
    keys = [ProfileKey(f"f{k}", 64, 1, FAST) for k in range(len(jobs))]
    config = PerfConfig(sets_min=3, occupancy_max={FAST: 4e7} if limited else {})
    beliefs = Beliefs(config, [known(key, step_s, busy) for key, (step_s, busy) in zip(keys, jobs, strict=True)])
    for place, delta in enumerate(deltas):
        one, two = keys[place % len(keys)], keys[place // len(keys) % len(keys)]
        beliefs.learn_set(measured(one, two, delta=delta, sharing=sharing))
    for count in range(1, len(keys)):
        old = beliefs.predict(keys[: count + 1], sharing)
        assert old is not None
        situation = Situation(FAST, sharing=sharing, beside=tuple(keys[:count]))
        rate = beliefs.rate(replace(SPEC, family=keys[count].family), situation)
        assert (speedup(rate), rate.together) == (old.speedup, old)
        assert rate.source is (old.basis if old.speedup > 0 else RateSource.DEFAULT)
        slowed = old.of(keys[count])
        if slowed is not None:
            assert rate.slowdown == slowed.slowdown >= 1.0
        assert gpu_harm(rate, 0.3) == min(1.0, (rate.slowdown - 1.0) / 0.3)


TOGETHER, APART = (
    PlacePace(20.0, Value(0.2, ValueSource.MEASURED, 9)),
    PlacePace(120.0, Value(0.5, ValueSource.MEASURED, 9)),
)


@pytest.mark.parametrize(
    ("places", "one_node", "several"),
    [((), 1.0, 1.5), ((TOGETHER,), 1.0, 1.5), ((APART,), 1 / 1.5, 1.0), ((TOGETHER, APART), 1.0, 2.5)],
    ids=["no place is known", "one node", "several", "both"],
)
def test_one_node_or_several_is_told_by_places_else_by_one_number(
    places: tuple[PlacePace, ...], one_node: float, several: float
) -> None:
    spec = replace(SPEC, gpus=4)
    beliefs = Beliefs(profiles=[replace(known(ProfileKey("me", 64, 4, FAST), 0.2), places=places)])
    asked = [beliefs.rate(spec, Situation(FAST, 4, spans=spans)) for spans in (False, True)]
    assert [rate.slowdown for rate in asked] == [one_node, several]
    assert [rate.step_s for rate in asked] == [0.2 * one_node, 0.2 * several]
    assert all(rate.factors.size.is_known for rate in asked) is (len(places) == 2)
    assert beliefs.rate(spec, Situation(FAST, 1, spans=True)) == beliefs.rate(spec, Situation(FAST, 1)), (
        "one lies nowhere else"
    )
