"""What a job holds of its GPUs: several processes, contexts beside the allocator's blocks, drivers that do not tell."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.adaptor import wire
from colane.agent.files.jobdir import LaunchFacts
from colane.agent.measuring import device_memory
from colane.agent.measuring.device_memory import DeviceMemory, OverheadSeen, held_by_pid, on_gpus
from colane.agent.measuring.telemetry import AttemptMeter
from colane.agent.processes import ProcessId, Tree
from colane.devices import NvmlDevices, gpu
from colane.devices.nvml import Nvml
from colane.devices.types import HostFacts
from tests.devices.fake_nvml import GB, FakeGpu, FakeNvml

MIB = 1024**2
USUAL = 512 * MIB


def rank(pid: int, persistent: int, reserved: int, peak: int) -> wire.Steps:
    """A process that PyTorch's allocator tells of."""
    return wire.Steps(9, None, pid, 1.0, 2.0, None, persistent * MIB, peak * MIB, (), reserved_bytes=reserved * MIB)


def no_gpu(pid: int) -> wire.Steps:
    """A process whose steps are followed, and whose memory is the host's: no framework of ours on its GPU."""
    return wire.Steps(9, None, pid, 1.0, 2.0, None, 5000 * MIB, 6000 * MIB, ())


def test_a_context_is_booked_and_unused_blocks_are_not() -> None:
    seen = on_gpus((0,), [rank(7, 150, 500, 520)], {7, 8}, {0: {7: 850 * MIB, 99: 3 * MIB}}, USUAL)
    assert seen == DeviceMemory(500 * MIB, 870 * MIB, "nvml", 350 * MIB)


def test_thirty_jobs_with_contexts_are_as_large_as_the_device_says() -> None:
    """P 150 and E 350 MiB of the allocator: with a context of 400 MiB, thirty need 16.85 GiB of P alone."""
    one = on_gpus((0,), [rank(7, 150, 500, 500)], {7}, {0: {7: 900 * MIB}}, USUAL)
    assert one is not None
    assert 30 * one.persistent_bytes > 16 * 1024 * MIB


def test_several_processes_on_one_gpu_add_up() -> None:
    ranks = [rank(7, 100, 200, 250), rank(8, 100, 300, 300)]
    seen = on_gpus((0,), ranks, {6, 7, 8}, {0: {7: 600 * MIB, 8: 700 * MIB}}, USUAL)
    assert seen == DeviceMemory(1000 * MIB, 1350 * MIB, "nvml", 400 * MIB)


def test_of_ranks_on_several_gpus_the_fullest_counts() -> None:
    ranks = [rank(7, 100, 100, 200), rank(8, 300, 300, 400)]
    seen = on_gpus((2, 3), ranks, {7, 8}, {2: {7: 400 * MIB}, 3: {8: 700 * MIB}}, USUAL)
    assert seen == DeviceMemory(700 * MIB, 800 * MIB, "nvml", 400 * MIB)


def test_a_process_that_no_allocator_tells_of_is_measured_by_the_driver_alone() -> None:
    seen = on_gpus((0,), [no_gpu(7)], {7}, {0: {7: 900 * MIB}}, USUAL)
    assert seen == DeviceMemory(900 * MIB, 900 * MIB, "nvml", None), "not the 5000 MiB it has of the host"


def test_nothing_is_told_before_the_gpu_is_used() -> None:
    assert on_gpus((0,), [no_gpu(7)], {7}, {0: {}}, USUAL) is None
    assert on_gpus((0,), [no_gpu(7)], {7}, {0: None}, USUAL) is None, "memory of the host is not the GPU's"


def test_nothing_is_taken_off_of_a_process_on_several_gpus() -> None:
    held = {0: {7: 700 * MIB}, 1: {7: 600 * MIB}}
    seen = on_gpus((0, 1), [rank(7, 100, 300, 400)], {7}, held, USUAL)
    assert seen == DeviceMemory(700 * MIB, 700 * MIB, "nvml", None)


@pytest.mark.parametrize("held", [{0: None}, {}, {0: {7: None, 8: 3 * MIB}}])
def test_where_the_driver_does_not_tell_the_usual_overhead_is_added(
    held: dict[int, dict[int, int | None] | None],
) -> None:
    ranks = [rank(7, 100, 200, 250), rank(8, 100, 300, 300)]
    seen = on_gpus((0,), ranks, {7, 8}, held, USUAL)
    assert seen == DeviceMemory(200 * MIB + 2 * USUAL, 550 * MIB + 2 * USUAL, "estimate")


def test_the_usual_overhead_is_what_was_seen_here() -> None:
    overhead = OverheadSeen()
    assert overhead.usual_bytes == USUAL
    for seen in (None, 300 * MIB, 200 * MIB):
        overhead.see(seen)
    assert overhead.usual_bytes == 300 * MIB


@given(st.lists(st.tuples(*(st.integers(0, 4000),) * 4), min_size=1, max_size=4))
def test_what_is_booked_covers_what_the_device_holds_at_its_fullest(each: list[tuple[int, int, int, int]]) -> None:
    """However the parts lie: P is no less than the allocators' own, P + E no less than the device holds now."""
    ranks, sizes = [], {}
    for pid, (persistent, unused, grows, overhead) in enumerate(each):
        reserved = persistent + unused
        ranks.append(rank(pid, persistent, reserved, reserved + grows))
        sizes[pid] = (reserved + overhead) * MIB
    seen = on_gpus((0,), ranks, set(sizes), {0: sizes}, USUAL)
    assert seen is not None
    assert seen.persistent_bytes == sum(p + o for p, _, _, o in each) * MIB
    assert seen.peak_bytes == sum(p + u + g + o for p, u, g, o in each) * MIB


def test_the_agent_reads_what_nvml_tells_of_a_jobs_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the double of NVML: a stranger's memory is not the job's, and after its end what was seen last stays."""
    monkeypatch.setattr(gpu, "is_first_namespace", lambda: True)
    path = tmp_path / "steps"
    wire.create(path)
    writer = wire.Writer(str(path))
    writer.set_memory(2 * GB, 5 * GB, 4 * GB, on_gpu=True)
    writer.step(1000.0, 1.0)
    steps = wire.read(path)
    assert steps is not None
    crowded = FakeGpu("GPU-a", processes={steps.pid: 5 * GB, 1: GB})
    devices = NvmlDevices(Nvml(FakeNvml([crowded])), HostFacts((0, 1), 8 * GB))
    meter = AttemptMeter(path, LaunchFacts("boot", 0.0, (0,), (0,)))
    meter.tree = Tree((ProcessId(steps.pid, 1, "boot"),))
    progress = meter.sample(1001.0, 2**22 - 1, {}, held_by_pid(devices, {0}))
    assert (progress.persistent_bytes, progress.peak_bytes) == (3 * GB, 6 * GB)
    assert (progress.memory_by, progress.overhead_bytes) == ("nvml", GB)
    last = meter.last(1002.0, 999.0, 1.0)
    assert (last.persistent_bytes, last.peak_bytes) == (3 * GB, 6 * GB)


def test_that_memory_is_estimated_is_told_of_any_device() -> None:
    assert not device_memory.is_untold({0: {7: 5}})
    assert device_memory.is_untold({0: {7: 5}, 1: {8: None}})
    assert device_memory.is_untold({0: None})
    assert not device_memory.is_untold({})
