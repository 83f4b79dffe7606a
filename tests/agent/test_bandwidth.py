"""Who uses memory bandwidth, as the agent says it: resctrl, cache misses, an estimate, and what is said of it."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from colane.agent import processes
from colane.agent.measuring.bandwidth import BandwidthMeter, ByCpuTime, Counting, best_counting
from colane.agent.processes import ProcessId
from colane.agent.reconcile import Desired, DesiredJob, Key
from colane.devices.cache_misses import LINE_BYTES, CacheMisses, CountersError
from colane.devices.resctrl import Resctrl, ResctrlError
from tests.devices.kernel import FakeResctrl

GB = 10**9
HOG, TRAIN = Key(7, 1), Key(8, 1)
ME = processes.identify(os.getpid())
CORES = (0, 1, 2, 3)


def desired(interval_s: float | None = 10.0, limit: float = 1.0) -> Desired:
    jobs = DesiredJob(HOG, run=True, cores=(0, 1), bandwidth_ratio=limit), DesiredJob(TRAIN, run=True, cores=(2,))
    return Desired(1, jobs, bandwidth_interval_s=interval_s)


def below(_: Key) -> Sequence[ProcessId]:
    assert ME is not None
    return [ME]


def no_resctrl() -> Resctrl:
    raise ResctrlError("resctrl is not mounted at /sys/fs/resctrl")


def no_counters(cores: Iterable[int]) -> CacheMisses:
    raise CountersError(f"cache misses of {len(list(cores))} cores cannot be counted (Permission denied)")


class Pipes:
    """Counters whose values a test sets: a pipe for each core."""

    def __init__(self) -> None:
        self.ends: dict[int, int] = {}

    def open(self, core: int) -> int:
        reading, self.ends[core] = os.pipe()
        return reading

    def set(self, *lines: int) -> None:
        for core, count in enumerate(lines):
            os.write(self.ends[core], struct.pack("Q", count))

    def close(self) -> None:
        for end in self.ends.values():
            os.close(end)


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    made = Pipes()
    yield made
    made.close()


@pytest.fixture
def kernel(tmp_path: Path) -> FakeResctrl:
    return FakeResctrl(tmp_path / "resctrl")


def meter(
    bytes_per_s: int,
    open_resctrl: Callable[[], Resctrl] = no_resctrl,
    open_misses: Callable[[Iterable[int]], CacheMisses] = no_counters,
) -> BandwidthMeter:
    def find(cores: Sequence[int], bytes_per_s: int) -> tuple[Counting, list[str]]:
        return best_counting(cores, bytes_per_s, open_resctrl=open_resctrl, open_misses=open_misses)

    return BandwidthMeter(CORES, bytes_per_s, find)


def test_resctrl_measures_each_job_as_a_part_of_what_the_node_has(kernel: FakeResctrl) -> None:
    made = meter(100 * GB, lambda: Resctrl(kernel.root, kernel.folders))
    made.follow(desired())
    assert made.sample(0.0, below, {HOG: 0.0, TRAIN: 0.0}) is None
    assert made.sample(9.0, below, {HOG: 9.0, TRAIN: 9.0}) is None, "the interval goes on"
    kernel.count(".", 500 * GB, 300 * GB)
    kernel.count("mon_groups/colane-7-1", 400 * GB, 200 * GB)
    kernel.count("mon_groups/colane-8-1", 50 * GB, 0)
    assert made.sample(10.0, below, {HOG: 10.0, TRAIN: 10.0}) == {
        "used_ratio": 0.8, "by_job": {7: 0.6, 8: 0.05}, "by": "resctrl", "can_limit": True
    }  # fmt: skip
    assert made.messages() == []


def test_a_bound_of_the_scheduler_is_written_and_taken_away_with_the_wish_to_measure(kernel: FakeResctrl) -> None:
    made = meter(100 * GB, lambda: Resctrl(kernel.root, kernel.folders))
    made.follow(desired(limit=0.5))
    made.sample(0.0, below, {HOG: 0.0, TRAIN: 0.0})
    assert "MB:0=50;1=50" in (kernel.root / "colane-7-1" / "schemata").read_text()
    made.follow(desired(None))
    assert kernel.groups() == []
    assert made.sample(50.0, below, {HOG: 0.0}) is None


def test_without_resctrl_misses_are_counted_by_core_and_shared_out_by_cpu_time(pipes: Pipes) -> None:
    made = meter(GB, open_misses=lambda cores: CacheMisses(cores, pipes.open))
    wanted = Desired(
        1,
        (DesiredJob(HOG, run=True, cores=(0, 1)), DesiredJob(TRAIN, run=True, cores=(1, 2))),
        bandwidth_interval_s=1.0,
    )
    made.follow(wanted)
    line = GB // LINE_BYTES
    pipes.set(0, 0, 0, 0)
    assert made.sample(0.0, below, {HOG: 0.0, TRAIN: 0.0}) is None
    pipes.set(line, 4 * line, line, line)
    found = made.sample(10.0, below, {HOG: 9.0, TRAIN: 3.0})
    assert found is not None
    assert found["used_ratio"] == pytest.approx(0.7)
    assert found["by_job"] == {7: pytest.approx(0.1 + 0.3), 8: pytest.approx(0.1 + 0.1)}
    assert (found["by"], found["can_limit"]) == ("cache-misses", False)
    assert "measured as cache misses by core: resctrl is not mounted" in made.messages()[0]


def test_with_no_counter_at_all_it_is_an_estimate_and_says_so() -> None:
    made = meter(GB)
    made.follow(desired())
    (message,) = made.messages()
    assert message == (
        "memory bandwidth of jobs is estimated by CPU time, as if every busy core used an equal part of it: "
        "resctrl is not mounted at /sys/fs/resctrl; cache misses of 4 cores cannot be counted (Permission denied)"
    )
    made.sample(0.0, below, {HOG: 0.0})
    found = made.sample(10.0, below, {HOG: 10.0, TRAIN: 5.0})
    assert found is not None
    assert (found["by"], found["can_limit"]) == ("cpu-time", False)
    assert found["by_job"] == {7: pytest.approx(10 / (4 * 10))}


def test_counters_without_the_bandwidth_they_are_a_part_of_are_not_used(kernel: FakeResctrl) -> None:
    made = meter(0, lambda: Resctrl(kernel.root, kernel.folders))
    made.follow(desired())
    assert "estimated by CPU time" in made.messages()[0]
    assert "--host-bandwidth" in made.messages()[0]


def test_resctrl_that_may_not_be_written_is_named_once_with_what_is_used_instead(kernel: FakeResctrl) -> None:
    kernel.is_read_only = True
    made = meter(GB, lambda: Resctrl(kernel.root, kernel.folders))
    for _ in range(3):
        made.follow(desired())
    (message,) = made.messages()
    assert "estimated by CPU time" in message
    assert "is mounted, but may not be written (Read-only file system)" in message


def test_a_processor_that_counts_but_does_not_bound_says_that_cores_are_taken(tmp_path: Path) -> None:
    kernel = FakeResctrl(tmp_path / "resctrl", schemata="    L3:0=fffff;1=fffff\n")
    made = meter(GB, lambda: Resctrl(kernel.root, kernel.folders))
    made.follow(desired())
    (message,) = made.messages()
    assert message == (
        "the processor bounds no memory bandwidth (resctrl has no line MB): jobs that use too much have fewer cores "
        "instead"
    )


def test_busy_cores_are_those_of_the_node_and_waiting_for_disks_is_not_busy(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 100 0 50 800 50 0 0 0 0 0\ncpu1 700 0 0 0 0 0 0 0 0 0\nintr 5\n")
    assert ByCpuTime((0,), stat).read({}).total == pytest.approx(150 / os.sysconf("SC_CLK_TCK"))
    assert ByCpuTime((0, 1), stat).read({}).total == pytest.approx(850 / os.sysconf("SC_CLK_TCK"))


def test_the_real_machine_is_no_busier_than_it_has_cores() -> None:
    cores = sorted(os.sched_getaffinity(0))
    made = BandwidthMeter(cores, 0)
    made.follow(desired(0.2))
    assert made.sample(0.0, below, {HOG: 0.0}) is None
    found = made.sample(1e9, below, {HOG: 0.0})
    assert found is not None
    ratio = found["used_ratio"]
    assert isinstance(ratio, float)
    assert 0 <= ratio <= 1
