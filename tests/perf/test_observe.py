"""What is learnt from windows of what ran, and what is not."""

from __future__ import annotations

import pytest

from colane.model.hardware import GpuId
from colane.model.job import JobId
from colane.model.profile import Profile, ProfileKey, SetMeasurement, Value, ValueSource
from colane.model.progress import Progress
from colane.perf.beliefs import Beliefs
from colane.perf.observe import DISTURBED_MAX, EpochMember, Learnt, Observer
from colane.perf.speedup import OCCUPANCY_UNITS_PER_S

GPU = GpuId("n0", 0)
A, B = (ProfileKey(family, 64, 1, "A100") for family in "ab")


class Bench:
    """Samples co-runners in turn and believes what is learnt."""

    def __init__(self, *keys: ProfileKey, lanes: tuple[int, ...] = (0, 1), cores: int = 0) -> None:
        self.observer, self.beliefs = Observer(), Beliefs()
        self.taught: list[Learnt] = []
        self.start(*keys, lanes=lanes, at_s=0.0, cores=cores)

    def start(self, *keys: ProfileKey, at_s: float, lanes: tuple[int, ...] = (0, 1), cores: int = 0) -> None:
        members = zip(keys, lanes, strict=False)
        self._members = [EpochMember(JobId(place), key, "", lane, cores) for place, (key, lane) in enumerate(members)]
        self._believe(self.observer.change(GPU, "mps", self.beliefs, at_s))

    def sample(
        self,
        job: int,
        steps: int,
        last_s: float,
        median_s: float | None = None,
        busy: float | None = 0.5,
        *,
        others: bool = False,
    ) -> None:
        progress = Progress(at_s=last_s, steps=steps, last_step_s=last_s, step_median_s=median_s, occupancy_ratio=busy)
        if self.observer.sample(GPU, lambda: self._members, JobId(job), progress, 10, others_use=others):
            self._believe(self.observer.window(GPU, "mps", self.beliefs, last_s))

    def _believe(self, learnt: Learnt) -> None:
        for profile in learnt.profiles:
            self.beliefs.learn_profile(profile)
        for measurement in learnt.measurements:
            self.beliefs.learn_set(measurement)
        for outdated in learnt.outdated:
            self.beliefs.forget_speed(outdated.key)
        if learnt != Learnt():
            self.taught.append(learnt)

    def step_s(self, key: ProfileKey = A) -> float | None:
        profile = self.beliefs.profiles.get(key)
        return None if profile is None or profile.step_s is None else profile.step_s.value


def test_ten_steps_alone_teach_while_the_job_runs_on_and_ever_more_seldom() -> None:
    bench = Bench(A)
    for step in range(1, 11):
        bench.sample(0, step, 0.1 * step)
    assert bench.taught == []
    bench.sample(0, 11, 1.1)
    assert bench.step_s() == pytest.approx(0.1)
    for step in range(12, 1001):
        bench.sample(0, step, 0.1 * step)
    assert len(bench.taught) == 6, "10, 20, 40, 80, 160 and 320 steps"
    assert bench.step_s() == pytest.approx(0.1)
    known = bench.beliefs.profiles[A].step_s
    assert known is not None
    assert known.samples == 630


def test_co_runners_teach_once_each_has_made_its_steps() -> None:
    bench = Bench(A)
    for step in range(1, 12):
        bench.sample(0, step, 0.1 * step)
    bench.start(B, at_s=2.0)
    for step in range(1, 12):
        bench.sample(0, step, 2.0 + 0.4 * step)
    bench.start(A, B, at_s=10.0)
    for step in range(1, 41):
        bench.sample(0, step, 10.0 + 0.2 * step)
        if step % 3 == 0:
            bench.sample(1, step // 3, 10.0 + 0.2 * step)
    assert len(bench.taught) == 3
    (measured,) = bench.taught[-1].measurements
    assert measured.slowdowns == pytest.approx((2.0, 1.5))
    assert min(measured.steps) >= 10


def test_nothing_that_was_done_before_the_co_runners_changed_is_counted() -> None:
    """As when a suspended job goes on: its last step lies before the wait."""
    bench = Bench(A)
    for step in range(1, 6):
        bench.sample(0, step, 0.1 * step)
    bench.start(A, at_s=100.0)
    bench.sample(0, 5, 0.5)
    for step in range(6, 20):
        bench.sample(0, step, 100.0 + 0.1 * step)
    assert bench.step_s() == pytest.approx(0.1)


def test_a_window_with_an_evaluation_in_it_is_left_out_but_what_goes_on_is_how_it_runs() -> None:
    bench = Bench(A)
    for step in range(1, 22):
        pause_s = 30.0 if step > 5 else 0.0
        bench.sample(0, step, 0.1 * step + pause_s, median_s=0.1)
    assert len(bench.taught) == 1
    assert bench.step_s() == pytest.approx(0.1)
    always = Bench(A)
    for step in range(1, 10 * DISTURBED_MAX + 2):
        always.sample(0, step, 1.0 * step, median_s=0.1)
    assert always.step_s() == pytest.approx(1.0)


def test_jobs_that_take_turns_in_a_lane_teach_nothing() -> None:
    bench = Bench(A, B, lanes=(0, 0))
    for step in range(1, 30):
        for job in (0, 1):
            bench.sample(job, step, 0.2 * step)
    assert bench.taught == []


def test_a_job_whose_load_was_seen_only_after_its_last_full_window_is_known_by_it_all_the_same() -> None:
    bench = Bench(A)
    for step in range(1, 16):
        bench.sample(0, step, 0.1 * step, busy=None if step <= 11 else 0.5)
    known = bench.beliefs.profiles[A]
    assert known.occupancy is None
    bench.start(at_s=3.0)
    occupancy = bench.beliefs.profiles[A].occupancy
    assert occupancy is not None
    assert occupancy.value == pytest.approx(0.5 * 0.1 * OCCUPANCY_UNITS_PER_S)
    assert bench.beliefs.profiles[A].step_s == known.step_s


def test_windows_in_which_others_used_the_gpu_teach_nothing_however_many() -> None:
    bench = Bench(A)
    for step in range(1, 200):
        bench.sample(0, step, 0.3 * step, others=step % 7 == 0)
    assert bench.step_s() is None
    for step in range(200, 230):
        bench.sample(0, step, 60.0 + 0.1 * (step - 200))
    assert bench.step_s() == pytest.approx(0.1), "since they are gone"


def test_co_runners_beside_other_work_are_not_measured() -> None:
    bench = Bench(A)
    for step in range(1, 12):
        bench.sample(0, step, 0.1 * step)
    bench.start(A, A, at_s=2.0)
    for step in range(12, 60):
        bench.sample(0, step, 2.0 + 0.5 * (step - 11), others=True)
        bench.sample(1, step, 2.0 + 0.5 * (step - 11))
    assert not any(learnt.measurements for learnt in bench.taught)


@pytest.mark.parametrize(("cores", "holds"), [(0, False), (1, False), (2, True)])
def test_a_job_faster_with_co_runners_than_ever_alone_is_measured_again_unless_it_has_more_cores_now(
    cores: int, holds: bool
) -> None:
    bench = Bench(A, cores=min(cores, 1))
    for step in range(1, 12):
        bench.sample(0, step, 0.1 * step)
    bench.start(B, at_s=2.0)
    for step in range(1, 12):
        bench.sample(0, step, 2.0 + 0.1 * step)
    bench.start(A, B, at_s=10.0, cores=cores)
    for step in range(1, 12):
        bench.sample(0, step, 10.0 + 0.05 * step)
        bench.sample(1, step, 10.0 + 0.1 * step)
    if holds:
        assert bench.step_s() == pytest.approx(0.1)
        assert bench.taught[-1].outdated == ()
        return
    (outdated,) = bench.taught[-1].outdated
    assert (outdated.job, outdated.key, bench.step_s()) == (JobId(0), A, None)
    assert outdated.ratio == pytest.approx(2.0)
    assert bench.step_s(B) == pytest.approx(0.1)


def test_a_measured_set_counts_only_for_jobs_that_are_as_fast_alone_as_they_were_then() -> None:
    bench = Bench(A)
    slow = measured_set(alone_s=0.1, together_s=0.1)
    bench.beliefs.learn_profile(Profile(key=A, step_s=Value(0.1, ValueSource.MEASURED, 10)))
    bench.beliefs.learn_set(slow)
    assert is_measured(bench, pytest.approx(1.0, abs=0.01))
    bench.beliefs.forget_speed(A)
    bench.beliefs.learn_profile(Profile(key=A, step_s=Value(0.02, ValueSource.MEASURED, 10)))
    assert bench.beliefs.predict([A, A], "mps") is None
    bench.beliefs.learn_set(measured_set(alone_s=0.02, together_s=0.05))
    assert is_measured(bench, pytest.approx(2.5, rel=0.05)), "no mean with what another job did"


def is_measured(bench: Bench, slowdown: object) -> bool:
    """Whether two of a kind are foreseen to be slowed so much, as one measured set says."""
    prediction = bench.beliefs.predict([A, A], "mps")
    assert prediction is not None
    return prediction.source == "measured 1 time(s)" and prediction.jobs[0].slowdown == slowdown


def measured_set(alone_s: float, together_s: float) -> SetMeasurement:
    return SetMeasurement(
        keys=(A, A), sharing="mps", step_alone_s=(alone_s, alone_s), step_together_s=(together_s, together_s),
        steps=(10, 10), delta=alone_s / together_s * 2, delta_general=0.0, at_s=1.0,
    )  # fmt: skip
