"""What is learnt of neighbours, stay by stay."""

from __future__ import annotations

import pytest

from colane.model.job import JobId
from colane.model.profile import Profile, ProfileKey
from colane.model.progress import Progress
from colane.perf.beliefs import Beliefs
from colane.perf.learn import SLOWDOWNS_MAX
from colane.perf.nearby import Near, SocketNeighbours, Stay, Surroundings, learn_from_stay
from colane.perf.neighbours import MOVED_MIN, Beside
from colane.perf.utility import harm_beside

A, B, C, D = (ProfileKey(family, 1, 1, "P100") for family in "abcd")
ALONE = SocketNeighbours(A, 0.0, ())


def beside(*keys: ProfileKey, distance: float = 0.0) -> SocketNeighbours:
    return SocketNeighbours(A, distance, tuple(Near(JobId(number), 1, key) for number, key in enumerate(keys, 2)))


def teach(beliefs: Beliefs, neighbours: SocketNeighbours, step_s: float, steps: int = 20) -> Profile | None:
    learnt = learn_from_stay(Stay(neighbours, steps, step_s), beliefs.profiles, beliefs.neighbours, 10, 1.0)
    return None if learnt is None else beliefs.learn_profile(learnt)


def known(**slowdowns: float) -> Beliefs:
    """Job A goes steps of 2 s alone, and is slowed so much beside the others."""
    beliefs = Beliefs()
    teach(beliefs, ALONE, 2.0)
    for name, slowdown in slowdowns.items():
        teach(beliefs, beside(ProfileKey(name, 1, 1, "P100")), 2.0 * slowdown)
    return beliefs


def at(steps: int, last_s: float) -> Progress:
    return Progress(at_s=last_s, steps=steps, last_step_s=last_s)


def test_a_stay_ends_with_its_co_runners() -> None:
    seen = Surroundings()
    job = JobId(1)
    assert seen.sample(job, 1, lambda: ALONE, at(1, 1.0), 20) is None
    assert seen.sample(job, 1, pytest.fail, at(5, 5.0), 20) is None, "nothing has changed: no job is asked"
    assert seen.sample(job, 2, lambda: ALONE, at(11, 11.0), 20) is None, "a change elsewhere on the node"
    assert seen.sample(job, 3, lambda: beside(B), at(12, 13.0), 20) == Stay(ALONE, 10, 1.0)
    assert seen.sample(job, 3, pytest.fail, at(22, 33.0), 20) is None
    assert seen.end(job) == Stay(beside(B), 10, 2.0)
    assert seen.end(job) is None


def test_nothing_is_seen_where_nothing_can_be_learnt_or_nothing_moves() -> None:
    seen = Surroundings()
    seen.sample(JobId(1), 1, lambda: None, at(1, 1.0), 20)
    seen.sample(JobId(1), 1, pytest.fail, at(50, 50.0), 20)
    assert seen.end(JobId(1)) is None
    seen.sample(JobId(2), 1, lambda: ALONE, at(7, 3.0), 20)
    seen.sample(JobId(2), 1, pytest.fail, at(7, 3.0), 20)
    assert seen.end(JobId(2)) is None


def test_a_stay_that_goes_on_teaches_in_windows_each_twice_as_long() -> None:
    seen, job = Surroundings(), JobId(1)
    found = [seen.sample(job, 1, lambda: ALONE, at(step, float(step)), 10) for step in range(1, 101)]
    assert [stay.steps for stay in found if stay is not None] == [10, 20, 40]
    assert seen.end(job) == Stay(ALONE, 29, 1.0)


def test_a_slowdown_is_against_the_same_place_with_no_neighbour() -> None:
    beliefs = Beliefs()
    assert teach(beliefs, beside(B), 3.0) is None, "how fast it is alone is not known yet"
    teach(beliefs, ALONE, 2.0)
    assert teach(beliefs, beside(B, distance=20.0), 3.0) is None, "nor how fast in that place"
    teach(beliefs, beside(B), 3.0)
    assert beliefs.neighbours.slowdown(A, B) == 1.5
    assert not beliefs.neighbours.knows(B, A)


def test_too_few_steps_teach_nothing() -> None:
    beliefs = Beliefs()
    assert teach(beliefs, ALONE, 2.0, steps=9) is None
    assert not beliefs.profiles


def test_stays_are_averaged_by_their_steps() -> None:
    beliefs = known(b=1.4)
    profile = teach(beliefs, beside(B), 3.2, steps=60)
    assert profile is not None
    (slowdown,) = profile.slowdowns
    assert slowdown.ratio.samples == 80
    assert slowdown.ratio.value == pytest.approx(1.55)
    assert beliefs.neighbours.slowdown(A, B) == pytest.approx(1.55)
    assert profile.places[0].step_s.value == 2.0


def test_the_nearest_place_counts() -> None:
    beliefs = known(b=1.5)
    far = SocketNeighbours(A, 20.0, ())
    teach(beliefs, far, 3.0)
    teach(beliefs, beside(B, distance=20.0), 3.0)
    assert beliefs.neighbours.slowdown(A, B) == 1.5
    again = Beliefs(profiles=beliefs.profiles.values())
    assert again.neighbours.slowdown(A, B) == 1.5


def test_the_worst_neighbour_sets_the_pace() -> None:
    beliefs = known(b=1.2, c=1.5)
    teach(beliefs, beside(B, C), 3.4)
    assert beliefs.neighbours.slowdown(A, B) == 1.2
    assert beliefs.neighbours.slowdown(A, C) == pytest.approx(1.6)


def test_an_unknown_neighbour_is_learnt_beside_known_ones_where_they_do_not_explain_it() -> None:
    beliefs = known(b=1.2)
    assert teach(beliefs, beside(B, C), 2.3) is None, "B alone explains 1.15"
    teach(beliefs, beside(B, C), 3.0)
    assert (beliefs.neighbours.slowdown(A, C), beliefs.neighbours.slowdown(A, B)) == (1.5, 1.2)
    assert teach(beliefs, beside(D, ProfileKey("e", 1, 1, "P100")), 4.0) is None, "which of two it was cannot be told"


def test_a_neighbour_that_does_not_disturb_is_known_as_such() -> None:
    beliefs = known(b=0.97)
    assert beliefs.neighbours.knows(A, B)
    assert beliefs.neighbours.slowdown(A, B) == 1.0
    assert harm_beside(beliefs, A, B) == 0.0


def test_the_worst_is_the_worst_there_is_now() -> None:
    beliefs = known(b=1.8, c=1.5).neighbours
    assert beliefs.worst == pytest.approx(0.8)
    beliefs.learn(Beside(A, D), 1.9)
    assert beliefs.worst == pytest.approx(0.9)
    beliefs.learn(Beside(A, D), 1.1)
    assert beliefs.worst == pytest.approx(0.8), "the mean of the two is 1.5"


def test_a_profile_keeps_the_slowdowns_it_knows_best() -> None:
    beliefs = known(b=1.5)
    teach(beliefs, beside(B), 3.0, steps=50)
    for number in range(SLOWDOWNS_MAX + 5):
        teach(beliefs, beside(ProfileKey(f"z{number}", 1, 1, "P100")), 2.4)
    slowdowns = beliefs.profiles[A].slowdowns
    assert len(slowdowns) == SLOWDOWNS_MAX
    assert any(one.beside == B for one in slowdowns)


def test_beliefs_move_only_when_it_matters() -> None:
    """Every move has all places judged anew."""
    beliefs = known(b=1.5)
    version = beliefs.neighbours.version
    teach(beliefs, beside(B), 2.0 * (1.5 + MOVED_MIN / 2))
    assert beliefs.neighbours.version == version
    teach(beliefs, beside(B), 4.0, steps=1000)
    assert beliefs.neighbours.version == version + 1
