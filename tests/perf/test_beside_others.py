"""What is learnt of jobs and of pairs on a device that work outside Colane uses, relative to what that left."""

from __future__ import annotations

import random
from collections.abc import Callable
from math import exp
from typing import Final

import pytest

from colane.agent.measuring.telemetry import OthersSeen
from colane.devices.others import Smoothed
from colane.model.hardware import BESIDE_OTHERS, CPU_DEVICE_TYPE, DISTURBED_RATIO, GpuId
from colane.model.job import JobId
from colane.model.profile import ProfileKey, ValueSource
from colane.model.progress import Progress
from colane.perf.beliefs import Beliefs
from colane.perf.observe import EpochMember, Learnt, Observer

GPU = GpuId("n0", 0)
A, B = (ProfileKey(family, 64, 1, CPU_DEVICE_TYPE) for family in "ab")
GANG = ProfileKey("a", 64, 2, CPU_DEVICE_TYPE)
WAY: Final = CPU_DEVICE_TYPE + BESIDE_OTHERS
ALONE_S: Final = {A: 0.05, B: 0.11, GANG: 0.05}
SLOWDOWN: Final = {A: 1.25, B: 1.6}
"""How much longer a step takes beside the other than by what it gets of the device."""
STAYS: Final = ({A: 1.0}, {B: 1.0}, *[SLOWDOWN, {A: 1.0}] * 5)
STAY_S: Final = 150.0
LASTS_S: Final = len(STAYS) * STAY_S
Shape = Callable[[float, float], float]
Takes = Callable[[float, int], float]


def steady(mean: float, _at_s: float) -> float:
    return mean


def bursty(mean: float, at_s: float) -> float:
    """Nearly all of it for a part of each ten seconds, none for the rest."""
    return 0.95 if at_s % 10.0 < 10.0 * mean / 0.95 else 0.0


def rising(mean: float, at_s: float) -> float:
    """From below to as much above, over the whole time."""
    wide = min(mean - 0.3, 0.95 - mean)
    return mean + wide * (2.0 * at_s / LASTS_S - 1.0)


def first(used: float, _jobs: int) -> float:
    """Others take what they need before any job."""
    return used


def evenly(used: float, jobs: int) -> float:
    """Others want all of it, and share with jobs as processes on cores do; beside one job they would have this much."""
    pressure = used / (1.0 - used)
    return pressure / (pressure + jobs) if used else 0.0


class Device:
    """One device that others use, too; jobs share evenly what is left, and an agent reports once a second."""

    def __init__(self, shape: Shape, mean: float, takes: Takes = first, seed: int = 5) -> None:
        self.shape, self.mean, self.takes = shape, mean, takes
        self.observer, self.beliefs = Observer(), Beliefs()
        self.now_s, self._smoothed, self._random = 0.0, Smoothed(), random.Random(seed)
        self._smoothed.see(self.used(1), 60.0)  # the agent was there before the jobs

    def used(self, jobs: int) -> float:
        """What others have of it now."""
        return self.takes(self.shape(self.mean, self.now_s), jobs)

    def slowed(self, jobs: int) -> float:
        """How much longer so many jobs take at once than one does, by how the device is shared, over the whole time."""
        alone, together = 0.0, 0.0
        for at in range(int(100 * LASTS_S)):
            used = self.shape(self.mean, at / 100)
            alone, together = alone + 1.0 - self.takes(used, 1), together + (1.0 - self.takes(used, jobs)) / jobs
        return alone / together

    def run(self, slowdowns: dict[ProfileKey, float], lasts_s: float = STAY_S) -> None:
        """Run these together for a while, each so much slower than alone, and believe what that taught."""
        keys = list(slowdowns)
        members = [EpochMember(JobId(at), key, "", at) for at, key in enumerate(keys)]
        self.believe(self.observer.change(GPU, CPU_DEVICE_TYPE, self.beliefs, self.now_s))
        seen = {key: OthersSeen() for key in keys}
        done, last_s = dict.fromkeys(keys, 0.0), dict.fromkeys(keys, self.now_s)
        until_s, tick_s = self.now_s + lasts_s, 0.01
        while self.now_s < until_s:
            used_s = 0.0
            for _ in range(100):
                used = self.used(len(keys))
                used_s += used * tick_s
                for key in keys:
                    before = int(done[key])
                    done[key] += (1.0 - used) * tick_s / (ALONE_S[key] * slowdowns[key] * len(keys))
                    last_s[key] = self.now_s + tick_s if int(done[key]) > before else last_s[key]
                self.now_s += tick_s
            self._smoothed.see(used_s + self._random.gauss(0.0, 0.01), 1.0)  # the kernel counts ticks of 10 ms
            for at, key in enumerate(keys):
                seen[key].see(self.now_s, [self._smoothed.latest])
                progress = Progress(
                    at_s=self.now_s, steps=int(done[key]), last_step_s=last_s[key], others_s=seen[key].used_s,
                    occupancy_ratio=0.1,
                )  # fmt: skip
                others_use = self._smoothed.told >= DISTURBED_RATIO
                if self.observer.sample(GPU, lambda: members, JobId(at), progress, 20, others_use=others_use):
                    self.believe(self.observer.window(GPU, CPU_DEVICE_TYPE, self.beliefs, self.now_s))

    def believe(self, learnt: Learnt) -> None:
        for profile in learnt.profiles:
            self.beliefs.learn_profile(profile)
        for measurement in learnt.measurements:
            self.beliefs.learn_set(measurement)

    def source(self, key: ProfileKey) -> ValueSource | None:
        profile = self.beliefs.profiles.get(key)
        return None if profile is None or profile.step_s is None else profile.step_s.source

    def slowdown(self, key: ProfileKey, way: str = WAY) -> float:
        return exp(self.beliefs._sharing_beliefs.sets[way, (A, B)].logs[key])


def learnt(device: Device) -> list[float]:
    """By how much the slowdown of each job of a pair is off that was learnt as jobs came and went."""
    for stay in STAYS:
        device.run(stay)
    true = device.slowed(2)
    return [device.slowdown(key) / (true * slowdown) - 1.0 for key, slowdown in SLOWDOWN.items()]


ERROR: Final[dict[Shape, float]] = {steady: 0.02, bursty: 0.12, rising: 0.05}
"""A learnt slowdown is off by so much at most: windows cut bursts anywhere."""


@pytest.mark.parametrize("mean", [0.5, 0.7, 0.9])
@pytest.mark.parametrize("shape", ERROR)
@pytest.mark.parametrize("takes", [first, evenly])
def test_how_a_pair_goes_is_learnt_whatever_the_load_of_others(takes: Takes, shape: Shape, mean: float) -> None:
    device = Device(shape, mean, takes)
    assert learnt(device) == pytest.approx([0.0, 0.0], abs=ERROR[shape])
    assert WAY in {way for way, _ in device.beliefs._sharing_beliefs.sets}


def test_speed_alone_is_a_guess_until_it_is_measured_undisturbed() -> None:
    device = Device(steady, 0.6)
    device.run({A: 1.0}, 60.0)
    known = device.beliefs.profiles[A].step_s
    assert known is not None
    assert known.source is ValueSource.PREDICTED
    assert known.value == pytest.approx(ALONE_S[A], rel=0.02)
    for mean in (0.0, 0.6):
        device.mean = mean
        device.run({A: 1.0}, 60.0)
        assert device.source(A) is ValueSource.MEASURED


def test_a_pair_is_over_its_jobs_alone_there_where_these_are_known_from_quiet_times() -> None:
    """They ran for 0.8 of what was left, as they wait for data: that part cancels out."""
    device = Device(steady, 0.0)
    for mean, part in ((0.0, 1.0), (0.5, 0.8)):
        device.mean = mean
        for key in (A, B):
            device.run({key: part}, 120.0)
    device.run({key: 0.8 * slowdown for key, slowdown in SLOWDOWN.items()}, 120.0)
    for key, slowdown in SLOWDOWN.items():
        assert device.slowdown(key) == pytest.approx(2.0 * slowdown, rel=0.02)


@pytest.mark.parametrize(("mean", "key"), [(0.97, A), (0.6, GANG)])
def test_where_too_little_is_left_or_several_devices_are_held_nothing_is_learnt(mean: float, key: ProfileKey) -> None:
    device = Device(steady, mean)
    device.run({key: 1.0})
    assert device.source(key) is None


def test_a_pair_that_never_ran_apart_there_teaches_nothing() -> None:
    """Whether others gave way to the second job is not known then."""
    device = Device(steady, 0.0)
    for key in (A, B):
        device.run({key: 1.0}, 60.0)
    device.mean = 0.6
    device.run(SLOWDOWN)
    assert not device.beliefs._sharing_beliefs.sets
    device.run({A: 1.0})
    device.run(SLOWDOWN)
    assert [way for way, _ in device.beliefs._sharing_beliefs.sets] == [WAY]
