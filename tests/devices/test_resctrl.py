"""Bandwidth by job from the kernel's resctrl files: groups, counters, bounds, and what may go wrong."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from colane.devices.resctrl import ROOT, Resctrl, ResctrlError

from .kernel import FREE, FakeResctrl

ME = os.getpid()


@pytest.fixture
def kernel(tmp_path: Path) -> FakeResctrl:
    return FakeResctrl(tmp_path / "resctrl")


def opened(kernel: FakeResctrl) -> Resctrl:
    return Resctrl(kernel.root, kernel.folders)


def test_each_job_has_a_group_with_all_threads_of_its_processes(kernel: FakeResctrl) -> None:
    resctrl, done = opened(kernel), threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        assert resctrl.follow({"7-1": [ME]}, {}) == []
        assert kernel.groups() == ["mon_groups/colane-7-1"]
        assert kernel.tasks("mon_groups/colane-7-1") == sorted(
            int(path.name) for path in Path(f"/proc/{ME}/task").iterdir()
        )
        assert thread.native_id in kernel.tasks("mon_groups/colane-7-1")
    finally:
        done.set()
        thread.join()


def test_bytes_are_summed_over_caches_and_over_control_groups(kernel: FakeResctrl) -> None:
    resctrl = opened(kernel)
    resctrl.follow({"7-1": [ME], "8-1": [ME]}, {"8-1": 0.5})
    kernel.count(".", 100, 20)
    kernel.count("mon_groups/colane-7-1", 30, 5)
    kernel.count("colane-8-1", 7, 8)
    assert resctrl.read() == (135, {"7-1": 35, "8-1": 15})


@pytest.mark.parametrize("word", ["Unavailable", "Error", ""])
def test_a_group_that_the_processor_lost_count_of_is_left_out(kernel: FakeResctrl, word: str) -> None:
    resctrl = opened(kernel)
    resctrl.follow({"7-1": [ME], "8-1": [ME]}, {})
    kernel.count("mon_groups/colane-7-1", 30, word)
    kernel.count("mon_groups/colane-8-1", 1, 2)
    assert resctrl.read()[1] == {"8-1": 3}


@pytest.mark.parametrize(("limit", "percent"), [(0.5, 50), (0.25, 30), (0.05, 10)])
def test_a_bound_is_a_line_of_schemata_in_the_steps_of_the_processor(
    kernel: FakeResctrl, limit: float, percent: int
) -> None:
    resctrl = opened(kernel)
    resctrl.follow({"7-1": [ME]}, {"7-1": limit})
    assert kernel.groups() == ["colane-7-1"]
    assert (kernel.root / "colane-7-1" / "schemata").read_text() == f"MB:0={percent};1={percent}\n"
    assert ME in kernel.tasks("colane-7-1")


def test_letting_go_brings_its_threads_back_to_a_group_that_only_counts(kernel: FakeResctrl) -> None:
    resctrl = opened(kernel)
    resctrl.follow({"7-1": [ME]}, {"7-1": 0.5})
    resctrl.follow({"7-1": [ME]}, {})
    assert kernel.groups() == ["mon_groups/colane-7-1"]
    assert ME in kernel.tasks("mon_groups/colane-7-1")
    assert kernel.root.joinpath("schemata").read_text() == FREE


def test_groups_go_with_their_jobs_and_those_of_others_stay(kernel: FakeResctrl) -> None:
    kernel.make(kernel.root / "mon_groups" / "theirs")
    resctrl = opened(kernel)
    resctrl.follow({"7-1": [ME], "8-1": [ME]}, {"8-1": 0.5})
    resctrl.follow({"8-1": [ME]}, {"8-1": 0.5})
    assert kernel.groups() == ["colane-8-1", "mon_groups/theirs"]
    resctrl.close()
    assert kernel.groups() == ["mon_groups/theirs"]


def test_what_an_earlier_agent_left_is_removed(kernel: FakeResctrl) -> None:
    opened(kernel).follow({"7-1": [ME], "8-1": [ME]}, {"8-1": 0.5})
    opened(kernel)
    assert kernel.groups() == []


def test_a_job_for_which_the_processor_has_no_group_left_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    kernel = FakeResctrl(tmp_path / "resctrl", groups_max=1)
    assert opened(kernel).follow({"7-1": [ME], "8-1": [ME]}, {}) == ["8-1: No space left on device"]


def test_a_process_that_has_ended_is_no_trouble(kernel: FakeResctrl) -> None:
    assert opened(kernel).follow({"7-1": [2**22 + 1]}, {}) == []


def test_mounted_but_not_writable_says_so(kernel: FakeResctrl) -> None:
    kernel.is_read_only = True
    with pytest.raises(ResctrlError, match=r"is mounted, but may not be written \(Read-only file system\)"):
        opened(kernel)


def test_a_machine_without_it_or_without_counters_says_so(tmp_path: Path) -> None:
    with pytest.raises(ResctrlError, match="is not mounted at"):
        Resctrl(tmp_path)
    with pytest.raises(ResctrlError, match="counts no memory bandwidth"):
        opened(FakeResctrl(tmp_path / "resctrl", features="llc_occupancy\n"))


@pytest.mark.parametrize(
    ("schemata", "problem"),
    [
        (FREE, ""),
        ("    L3:0=fffff;1=fffff\n", "bounds no memory bandwidth"),
        ("    MB:0=4294967295;1=4294967295\n", "mba_MBps"),
        ("    MB:0=2048;1=2048\n", "GB/s"),
    ],
)
def test_whether_bandwidth_can_be_bounded_is_read_off_the_root_group(
    tmp_path: Path, schemata: str, problem: str
) -> None:
    resctrl = opened(FakeResctrl(tmp_path / "resctrl", schemata=schemata))
    assert problem in resctrl.limit_problem
    assert bool(resctrl.limit_problem) == bool(problem)


@pytest.mark.skipif(not (ROOT / "tasks").exists(), reason="resctrl is not mounted here")
def test_the_kernels_own_is_read_where_it_is() -> None:
    resctrl = Resctrl()
    resctrl.follow({"test": [ME]}, {})
    before, _ = resctrl.read()
    bytes(64 << 20)
    after, own = resctrl.read()
    resctrl.close()
    assert after >= before
    assert own["test"] >= 0
