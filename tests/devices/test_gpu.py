from __future__ import annotations

import random
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from colane.devices import DeviceSpecError, MemoryUse, NvmlDevices, OwnProcesses, discover, gpm, gpu, pids
from colane.devices import known as known_gpus
from colane.devices.nvml import NO_DRIVER, Nvml, NvmlUnavailableError
from colane.devices.types import HostFacts
from colane.model.device_use import DeviceUsage
from tests.devices.fake_nvml import GB, FakeGpu, FakeNvml

HOST = HostFacts(cores=(0, 1, 2, 3), memory_bytes=8 * GB, sockets={0: 0, 1: 0, 2: 1, 3: 1})
FOREIGN, OURS = 4000, 5000


@pytest.fixture(autouse=True)
def _pids_as_on_a_plain_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "is_first_namespace", lambda: True)


def devices_of(*gpus: FakeGpu, visible: str | None = None) -> tuple[FakeNvml, NvmlDevices]:
    fake = FakeNvml(list(gpus))
    return fake, NvmlDevices(Nvml(fake), HOST, visible)


def test_facts_of_two_gpus() -> None:
    _, devices = devices_of(FakeGpu("GPU-a"), FakeGpu("GPU-b", numa=1, affinity=(0b1100,)))
    first, second = devices.observe()
    assert (first.index, first.uuid, first.type, first.memory_bytes) == (0, "GPU-a", "NVIDIA H200", 139 * GB)
    assert (first.socket, first.cores, first.healthy, first.foreign_bytes) == (0, (0, 1), True, 0)
    assert (second.index, second.uuid, second.socket, second.cores) == (1, "GPU-b", 1, (2, 3))


def test_memory_of_strangers_is_told_from_ours() -> None:
    stranger = FakeGpu("GPU-a", processes={OURS: 5 * GB, FOREIGN: 2 * GB}, mps_clients={FOREIGN + 1: 1 * GB})
    _, devices = devices_of(stranger)
    (seen,) = devices.observe(OwnProcesses(frozenset({OURS}), frozenset({0})))
    assert seen.foreign_bytes == 3 * GB


def test_memory_of_strangers_where_nvml_hides_it() -> None:
    _, devices = devices_of(FakeGpu("GPU-a", processes={OURS: 5 * GB, FOREIGN: None}))
    (seen,) = devices.observe(OwnProcesses(frozenset({OURS}), frozenset({0})))
    assert seen.foreign_bytes == 3 * GB, "what is used less what ours use"


def test_kernels_of_strangers_are_told_from_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    passed_s = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: passed_s[0])
    fake, devices = devices_of(FakeGpu("GPU-a", sm_percents={OURS: 30}), FakeGpu("GPU-b"))
    own = OwnProcesses(frozenset({OURS}), frozenset({0}))

    def looks(count: int) -> list[float]:
        for _ in range(count):
            passed_s[0] += 2.0
            seen = devices.observe(own)
        return [gpu.others_ratio for gpu in seen]

    assert looks(5) == [0.0, 0.0]
    fake.gpus[0].sm_percents[FOREIGN] = 80
    assert looks(1)[0] == pytest.approx(0.8 * 2 / 7, abs=0.01), "a burst is no load"
    assert looks(15) == [pytest.approx(0.8, abs=0.1), 0.0]
    fake.gpus[0].sm_percents.clear()
    assert looks(20) == [0.0, 0.0], "no samples since then: it was not used"


def test_a_driver_that_does_not_tell_whose_kernels_run_says_nothing_of_others() -> None:
    fake, devices = devices_of(FakeGpu("GPU-a", sm_percents={FOREIGN: 80}))
    fake.missing.add("nvmlDeviceGetProcessUtilization")
    assert [devices.observe()[0].others_ratio for _ in range(3)] == [0.0] * 3


def test_in_a_container_our_own_jobs_are_no_strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "is_first_namespace", lambda: False)
    fake, devices = devices_of(FakeGpu("GPU-a", processes={FOREIGN: 2 * GB}))
    (before,) = devices.observe()
    fake.gpus[0].processes[999] = 7 * GB
    (during,) = devices.observe(OwnProcesses(frozenset({17}), frozenset({0})))
    (after,) = devices.observe()
    assert [seen.foreign_bytes for seen in (before, during, after)] == [2 * GB, 2 * GB, 9 * GB]


def test_which_processes_hold_memory_and_how_much_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    _, devices = devices_of(FakeGpu("GPU-a", processes={100: 2 * GB, 7: None}), lost := FakeGpu("GPU-b"))
    assert devices.memory(0) == MemoryUse(134 * GB, {100: 2 * GB, 7: None})
    lost.lost = True
    assert (devices.memory(1), devices.memory(9)) == (None, None)
    monkeypatch.setattr(gpu, "is_first_namespace", lambda: False)
    _, contained = devices_of(FakeGpu("GPU-a", processes={100: 2 * GB, 7: None}))
    assert contained.memory(0) == MemoryUse(134 * GB, None)


def test_in_a_container_a_driver_that_translates_is_known_by_a_process_that_computes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(gpu, "is_first_namespace", lambda: False)
    monkeypatch.setattr(gpu, "is_translated", partial(pids.is_translated, proc=tmp_path))
    for pid, device in ((OURS, "/dev/nvidia-uvm"), (17, "/dev/nvidia0")):
        (tmp_path / str(pid) / "fd").mkdir(parents=True)
        (tmp_path / str(pid) / "fd" / "9").symlink_to(device)
    fake, devices = devices_of(FakeGpu("GPU-a", processes={17: GB, 0: GB}))
    assert devices.memory(0) == MemoryUse(137 * GB, None), "who computes nothing may have that number by chance"
    fake.gpus[0].processes |= {OURS: 2 * GB, FOREIGN: GB}
    assert devices.memory(0) == MemoryUse(134 * GB, None), "an unknown process: the numbers are another namespace's"
    del fake.gpus[0].processes[FOREIGN]
    assert devices.memory(0) == MemoryUse(135 * GB, {17: GB, 0: GB, OURS: 2 * GB})
    (seen,) = devices.observe(OwnProcesses(frozenset({OURS}), frozenset({0})))
    assert seen.foreign_bytes == 2 * GB


def test_a_lost_gpu_leaves_scheduling_and_keeps_its_name() -> None:
    fake, devices = devices_of(FakeGpu("GPU-a"), FakeGpu("GPU-b"))
    fake.gpus[1].lost = True
    healthy, lost = devices.observe()
    assert healthy.healthy
    assert not lost.healthy
    assert lost.uuid == "GPU-b"
    fake.gpus[1].lost = False
    assert all(seen.healthy for seen in devices.observe())


def test_a_gpu_lost_before_the_start_is_left_out() -> None:
    _, devices = devices_of(FakeGpu("GPU-a", lost=True), FakeGpu("GPU-b"))
    assert [(seen.index, seen.uuid) for seen in devices.observe()] == [(0, "GPU-b")]


@pytest.mark.parametrize("field", [pynvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL, pynvml.NVML_FI_DEV_REMAPPED_FAILURE])
def test_memory_errors_make_a_gpu_unhealthy(field: int) -> None:
    fake, devices = devices_of(FakeGpu("GPU-a", fields={field: 0}))
    assert devices.observe()[0].healthy
    fake.gpus[0].fields[field] = 1
    assert not devices.observe()[0].healthy


def test_an_error_that_a_gpu_has_contained_leaves_it_well() -> None:
    failed, errors = pynvml.NVML_FI_DEV_REMAPPED_FAILURE, pynvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL
    fake, devices = devices_of(FakeGpu("GPU-a", fields={failed: 0, errors: 0}), FakeGpu("GPU-old", fields={errors: 0}))
    for each in fake.gpus:
        each.fields[errors] = 1
        each.xids += [48, 63, 94]
    assert [seen.healthy for seen in devices.observe()] == [True, False], "an older one contains nothing"
    fake.gpus[0].xids += [48, 95]
    assert not devices.observe()[0].healthy, "not contained"


def test_a_fatal_xid_makes_a_gpu_unhealthy_for_good_and_a_programs_own_does_not() -> None:
    fake, devices = devices_of(FakeGpu("GPU-a"), FakeGpu("GPU-b"))
    fake.gpus[0].xids += [13, 31, 43]
    assert all(seen.healthy for seen in devices.observe())
    fake.gpus[0].xids += [45, 79]
    assert [seen.healthy for seen in devices.observe()] == [False, True]
    assert [seen.healthy for seen in devices.observe()] == [False, True], "until it is reset"


ACTION = pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION


@pytest.mark.parametrize("action", range(1, 8))
def test_a_gpu_that_must_be_recovered_is_ill_to_an_agent_that_starts_later_too(action: int) -> None:
    fake, devices = devices_of(FakeGpu("GPU-a", fields={ACTION: 0}))
    assert devices.observe()[0].healthy
    fake.gpus[0].fields[ACTION] = action
    assert not devices.observe()[0].healthy
    assert not devices_of(fake.gpus[0])[1].observe()[0].healthy
    fake.gpus[0].fields[ACTION] = 0
    assert devices_of(fake.gpus[0])[1].observe()[0].healthy, "it has been reset"


@pytest.mark.parametrize("xid", [48, 79, 95, 110, 119, 140, 158])
def test_an_xid_after_which_a_gpu_must_be_reset_makes_it_ill_whatever_its_driver_says(xid: int) -> None:
    for fields in ({}, {ACTION: 0}):
        _, devices = devices_of(FakeGpu("GPU-a", fields=fields, xids=[xid]))
        assert not devices.observe()[0].healthy


@pytest.mark.parametrize("xid", [144, 147, 150, 154])
def test_an_xid_that_may_be_fatal_is_where_the_driver_does_not_say_what_must_be_done(xid: int) -> None:
    graded = [devices_of(FakeGpu("GPU-a", fields=fields, xids=[xid]))[1] for fields in ({}, {ACTION: 0}, {ACTION: 1})]
    assert [devices.observe()[0].healthy for devices in graded] == [False, True, False]


def test_several_fields_are_read_in_one_call() -> None:
    fake, devices = devices_of(FakeGpu("GPU-a"))
    fake.calls.clear()
    devices.observe()
    assert fake.calls.count("nvmlDeviceGetFieldValues") == 1


def test_mig_instances_are_the_devices() -> None:
    parts = [FakeGpu(f"MIG-{n}", name="NVIDIA H200 MIG 1g.18gb", total_bytes=18 * GB, numa=None) for n in "ab"]
    _, devices = devices_of(FakeGpu("GPU-a", instances=parts, numa=1), FakeGpu("GPU-b"))
    seen = devices.observe()
    assert [(one.index, one.uuid) for one in seen] == [(0, "MIG-a"), (1, "MIG-b"), (2, "GPU-b")]
    assert seen[0].memory_bytes == 17 * GB
    assert seen[0].socket == 1, "the socket of the GPU it is a part of"
    assert devices.memory(0) is None, "the driver cannot move processes off a part of a GPU"


def names_of_nvml(keep: Callable[[str], bool]) -> list[str]:
    needed = {"nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex"}
    return sorted(name for name in dir(FakeNvml) if name.startswith("nvml") and keep(name) and name not in needed)


@pytest.mark.parametrize("how", ["missing", "failing"])
@pytest.mark.parametrize("name", names_of_nvml(lambda _: True))
def test_any_function_may_be_absent(name: str, how: str) -> None:
    fake = FakeNvml([FakeGpu("GPU-a", processes={FOREIGN: GB})])
    getattr(fake, how).add(name)
    devices = NvmlDevices(Nvml(fake), HOST)
    devices.utilization()
    (seen,) = devices.observe()
    assert seen.healthy
    assert seen.cores


def test_a_driver_with_nearly_nothing() -> None:
    fake = FakeNvml([FakeGpu("GPU-a")])
    fake.missing.update(names_of_nvml(lambda name: name != "nvmlDeviceGetUUID"))
    (seen,) = NvmlDevices(Nvml(fake), HOST).observe()
    assert (seen.uuid, seen.type, seen.memory_bytes, seen.cores) == ("GPU-a", "unknown", 0, (0, 1))


def test_occupancy_and_bandwidth_between_two_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("colane.devices.gpm.time.monotonic", lambda: now[0])
    fake, devices = devices_of(FakeGpu("GPU-a"))
    assert devices.utilization_by == "nvml-gpm"
    assert devices.utilization() == {}, "one sample is no window"
    now[0] += gpm.WINDOW_MIN_S / 2
    assert devices.utilization() == {}, "too soon for NVML"
    now[0] += 2.0
    used = devices.utilization()[0]
    assert (used.occupancy_ratio, used.bandwidth_ratio) == (0.4, 0.25)
    assert used.window_s == pytest.approx(2.0 + gpm.WINDOW_MIN_S / 2)
    for _ in range(5):
        now[0] += 2.0
        devices.utilization()
    assert fake.samples_held == 1


def test_a_gpu_before_hopper_tells_at_least_when_it_was_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("colane.devices.gpm.time.monotonic", lambda: now[0])
    _, devices = devices_of(FakeGpu("GPU-a", gpm=False))
    assert devices.utilization_by == "nvml-utilization"
    assert devices.utilization() == {}
    now[0] += gpm.RENEWED_S / 2
    assert devices.utilization() == {}, "too soon: the driver has nothing new"
    now[0] += 2.0
    used = devices.utilization()[0]
    assert (used.occupancy_ratio, used.bandwidth_ratio) == (0.8, 0.3)
    assert used.window_s == pytest.approx(2.0 + gpm.RENEWED_S / 2)


def test_a_value_that_is_no_number_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("colane.devices.gpm.time.monotonic", lambda: now[0])
    _, devices = devices_of(FakeGpu("GPU-a", occupancy_percent=float("nan")))
    devices.utilization()
    now[0] += 2.0
    used = devices.utilization()[0]
    assert (used.occupancy_ratio, used.bandwidth_ratio) == (None, 0.25)


def test_no_occupancy_without_support() -> None:
    _, devices = devices_of(FakeGpu("GPU-a", gpm=False, rates=False))
    assert devices.utilization_by == ""
    assert devices.utilization() == {}


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, ["GPU-a1", "GPU-a2", "GPU-b"]),
        ("2,0", ["GPU-a1", "GPU-b"]),
        ("GPU-b", ["GPU-b"]),
        ("GPU-a", []),
        ("1,9,0", ["GPU-a2"]),
        ("", []),
    ],
)
def test_only_gpus_the_agent_itself_may_see(visible: str | None, expected: list[str]) -> None:
    _, devices = devices_of(FakeGpu("GPU-a1"), FakeGpu("GPU-a2"), FakeGpu("GPU-b"), visible=visible)
    assert [seen.uuid for seen in devices.observe()] == expected
    assert [seen.index for seen in devices.observe()] == list(range(len(expected)))


def test_discovery_prefers_gpus_and_gives_cpu_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    fake = Nvml(FakeNvml([FakeGpu("GPU-a")]))
    assert [seen.uuid for seen in discover(None, load=lambda: fake).observe()] == ["GPU-a"]
    assert [seen.uuid for seen in discover("gpu", load=lambda: fake).observe()] == ["GPU-a"]
    assert [seen.uuid for seen in discover("cpu:1", load=lambda: fake).observe()] == ["cpu-0"]


def test_gpus_asked_for_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pytest.raises(DeviceSpecError, match=r"--devices gpu: NVML cannot be opened: .*Not Found; use"):
        discover("gpu", load=partial(fails, pynvml.NVML_ERROR_LIBRARY_NOT_FOUND))
    with pytest.raises(DeviceSpecError, match="NVML is there and shows no GPU"):
        discover("gpu", load=lambda: Nvml(FakeNvml([])))
    with pytest.raises(DeviceSpecError, match="NVML shows 1 GPU, and none of them answers"):
        discover("gpu", load=lambda: Nvml(FakeNvml([FakeGpu("GPU-a", lost=True)])))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    with pytest.raises(DeviceSpecError, match="CUDA_VISIBLE_DEVICES='7' names none of the 1 GPU here"):
        discover("gpu", load=lambda: Nvml(FakeNvml([FakeGpu("GPU-a")])))


def test_a_broken_driver_makes_no_cpu_device_of_a_machine_with_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    module = SimpleNamespace(nvmlInit=partial(raises, pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH))
    monkeypatch.setitem(sys.modules, "pynvml", module)
    with pytest.raises(DeviceSpecError, match=r"Driver/library version mismatch: .*; load the driver that fits"):
        discover(None)
    with pytest.raises(DeviceSpecError, match="none of them answers"):
        discover(None, load=lambda: Nvml(FakeNvml([FakeGpu("GPU-a", lost=True)])))


def test_a_dead_gpu_that_answers_unknown_to_all_is_ill(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, devices = devices_of(FakeGpu("GPU-a"), FakeGpu("GPU-b"))
    own = fake.nvmlDeviceGetMemoryInfo

    def dead(gpu: FakeGpu, version: int | None = None) -> object:
        if gpu.uuid == "GPU-b":
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)
        return own(gpu, version)

    monkeypatch.setattr(fake, "nvmlDeviceGetMemoryInfo", dead)
    assert [seen.healthy for seen in devices.observe()] == [True, True], "once a busy one may"
    assert [seen.healthy for seen in devices.observe()] == [True, False]
    monkeypatch.undo()
    assert [seen.healthy for seen in devices.observe()] == [True, True]


def test_a_lost_gpu_leaves_the_others_their_numbers() -> None:
    """As long as the agent runs, and for the one that is started meanwhile; a new one comes after them."""
    first, second, third = gpus = [FakeGpu(f"GPU-{name}") for name in "abc"]
    nvml = Nvml(FakeNvml(gpus))
    known = NvmlDevices(nvml, HOST).observe()
    first.lost = True
    fake = FakeNvml([first, FakeGpu("GPU-d"), second, third])
    devices = NvmlDevices(Nvml(fake), HOST, known=known)
    seen = [(gpu.index, gpu.uuid, gpu.healthy) for gpu in devices.observe()]
    assert seen == [(0, "GPU-a", False), (1, "GPU-b", True), (2, "GPU-c", True), (3, "GPU-d", True)]
    assert devices.topology.gpus == 4
    assert devices.memory(0) is None
    first.lost = False
    back = NvmlDevices(Nvml(fake), HOST, known=devices.observe()).observe()
    assert [(gpu.uuid, gpu.healthy) for gpu in back] == [(gpu.uuid, True) for gpu in devices.observe()]


def test_gpus_are_known_again_by_a_file(tmp_path: Path) -> None:
    _, devices = devices_of(FakeGpu("GPU-a"), FakeGpu("GPU-b", numa=1, affinity=(0b1100,)))
    assert known_gpus.read(tmp_path) == ()
    known_gpus.write(tmp_path, devices.observe())
    assert known_gpus.read(tmp_path) == devices.observe()
    for spoilt in ("[", "[1]", "{}", '[{"uuid": "GPU-a"}]'):
        (tmp_path / known_gpus.NAME).write_text(spoilt)
        assert known_gpus.read(tmp_path) == ()
    _, hidden = devices_of(FakeGpu(""))
    known_gpus.write(tmp_path / "none", hidden.observe())
    assert not (tmp_path / "none").exists(), "one without a UUID cannot be known again"


@pytest.mark.parametrize(
    ("driver", "suffix"), [("535.54.03", "_v2"), ("535.86.10", "_v2"), ("535.104.05", "_v3"), ("580.95.05", "_v3")]
)
def test_drivers_with_longer_records_are_asked_by_the_function_before(driver: str, suffix: str) -> None:
    """What they fill is read as numbers of processes that are none."""
    fake = FakeNvml([FakeGpu("GPU-a", processes={FOREIGN: 2 * GB})])
    fake.driver = driver
    (seen,) = NvmlDevices(Nvml(fake), HOST).observe()
    assert seen.foreign_bytes == 2 * GB
    asked = {call for call in fake.calls if "ComputeRunningProcesses" in call}
    assert {call[-3:] for call in asked} == {suffix}


ERRORS = tuple(code for code in (*range(1, 31), pynvml.NVML_ERROR_UNKNOWN))
ROUNDS = 1000


class Moody(FakeNvml):
    """Answers a share of the calls with any of NVML's errors."""

    def __init__(self, gpus: list[FakeGpu], draws: random.Random) -> None:
        super().__init__(gpus)
        self.draws, self.share = draws, 0.0

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml") and self.draws.random() < self.share:
            return partial(raises, self.draws.choice(ERRORS))
        return super().__getattribute__(name)


def test_whatever_nvml_answers_devices_go_on_and_believe_nothing_they_were_not_told() -> None:
    draws = random.Random(30)
    gpus = [FakeGpu(f"GPU-{i}", processes={OURS: 5 * GB, FOREIGN: 2 * GB}) for i in range(3)]
    fake = Moody(gpus, draws)
    devices = NvmlDevices(Nvml(fake), HOST)
    whole = devices.observe()
    own = OwnProcesses(frozenset({OURS}), frozenset({0}))
    for _ in range(ROUNDS):
        fake.share = draws.choice((0.02, 0.2, 0.9))
        seen = devices.observe(own)
        assert [(gpu.index, gpu.uuid, gpu.memory_bytes) for gpu in seen] == [
            (gpu.index, gpu.uuid, gpu.memory_bytes) for gpu in whole
        ]
        assert all(gpu.foreign_bytes in {0, 2 * GB, 3 * GB, 7 * GB, 8 * GB} for gpu in seen)
        devices.utilization()
        use = devices.memory(draws.randrange(3))
        assert use is None or use.free_bytes in {132 * GB, 133 * GB}
        NvmlDevices(Nvml(fake), HOST, known=whole)
    fake.share = 0.0
    assert [gpu.healthy for gpu in devices.observe(own)] == [True] * 3


def test_an_agent_that_is_started_while_nvml_fails_at_times_knows_its_gpus_again() -> None:
    def facts(devices: NvmlDevices) -> list[tuple[int, str, str, int]]:
        return [(gpu.index, gpu.uuid, gpu.type, gpu.memory_bytes) for gpu in devices.observe()]

    for seed in range(100):
        fake = Moody([FakeGpu(f"GPU-{i}") for i in range(3)], random.Random(seed))
        before = NvmlDevices(Nvml(fake), HOST)
        fake.share = 0.2
        after = NvmlDevices(Nvml(fake), HOST, known=before.observe())
        fake.share = 0.0
        assert facts(after) == facts(before), seed


def fails(code: int) -> Nvml:
    """NVML that cannot be opened."""
    error = pynvml.NVMLError(code)
    raise NvmlUnavailableError(str(error), has_driver=code not in NO_DRIVER)


def raises(code: int, *_: object) -> None:
    raise pynvml.NVMLError(code)


def test_how_a_gpu_is_used() -> None:
    busy = FakeGpu("GPU-a", processes={OURS: 5 * GB}, clock_events=0x1 | 0x4 | 0x20, xids=[31])
    _, devices = devices_of(busy)
    devices.observe()
    assert devices.uses() == (
        DeviceUsage(0, busy_ratio=0.8, used_bytes=5 * GB, power_w=312.5, temperature_c=61.0,
                  throttle=("power-cap", "thermal"), xid=31),
    )  # fmt: skip


def test_of_a_gpu_whose_driver_tells_nothing_nothing_is_known() -> None:
    fake, devices = devices_of(FakeGpu("GPU-a"))
    fake.missing.update(names_of_nvml(lambda _: True))
    assert devices.uses() == (DeviceUsage(0),)


def test_an_older_driver_names_clock_events_otherwise() -> None:
    fake, devices = devices_of(FakeGpu("GPU-a", clock_events=0x40))
    fake.missing.add("nvmlDeviceGetCurrentClocksEventReasons")
    assert devices.uses()[0].throttle == ("hw-thermal",)


def test_of_a_lost_gpu_only_its_last_error_is_known() -> None:
    fake, devices = devices_of(FakeGpu("GPU-a", xids=[79]))
    devices.observe()
    fake.gpus[0].lost = True
    assert devices.uses() == (DeviceUsage(0, xid=79),)


def test_a_mig_instance_has_no_power_or_kernels_of_its_own() -> None:
    part = FakeGpu("MIG-a", total_bytes=20 * GB, processes={OURS: 2 * GB})
    _, devices = devices_of(FakeGpu("GPU-a", instances=[part]))
    assert devices.uses() == (DeviceUsage(0, used_bytes=2 * GB, temperature_c=61.0, throttle=()),)


def test_kernels_are_told_by_process_and_none_seen_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    passed_s = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: passed_s[0])
    fake, devices = devices_of(FakeGpu("GPU-a"))
    assert devices.busy_by_pid() == {}
    passed_s[0] += 2
    devices.observe()
    assert devices.busy_by_pid() == {}, "a driver that never told may not be able to"
    fake.gpus[0].sm_percents = {OURS: 30, FOREIGN: 20}
    passed_s[0] += 2
    devices.observe()
    assert devices.busy_by_pid() == {0: {OURS: 0.3, FOREIGN: 0.2}}
    fake.gpus[0].sm_percents = {}
    passed_s[0] += 2
    devices.observe()
    assert devices.busy_by_pid() == {0: {}}
