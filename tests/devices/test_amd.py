"""AMD's GPUs behind the interface of NVIDIA's, on made-up records: the interface fits; nothing more is shown."""

from __future__ import annotations

import sys

import pytest

from colane.devices import Devices, DeviceSpecError, OwnProcesses, amd, discover
from colane.devices.amd import AmdDevices, AmdSmi
from colane.devices.device_filter import DeviceNumber
from colane.devices.types import HostFacts
from colane.model.hardware import LinkKind
from tests.devices.fake_amdsmi import GIB, FakeAmd, FakeAmdSmi

HOST = HostFacts(cores=(0, 1, 2, 3), memory_bytes=GIB, sockets={0: 0, 1: 0, 2: 1, 3: 1})
OURS, THEIRS = 11, 12


def two() -> list[FakeAmd]:
    return [
        FakeAmd("0x05DB6F0E52BDC8F4", 0, processes={OURS: 3 * GIB, THEIRS: 2 * GIB}),
        FakeAmd("0x05DB6F0E52BDC8F5", 1, hip_uuid="GPU-own", socket=1, gfx_activity=None, power_w=None),
    ]


def devices_of(fakes: list[FakeAmd], visible: str | None = None, **more: bool) -> AmdDevices:
    return AmdDevices(AmdSmi(FakeAmdSmi(fakes, **more)), HOST, visible)


@pytest.fixture(autouse=True)
def _first_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amd, "is_first_namespace", lambda: True)


def test_what_never_changes_is_read() -> None:
    devices: Devices = devices_of(two())
    first, second = devices.observe()
    assert (first.index, first.uuid, first.type) == (0, "GPU-05db6f0e52bdc8f4", "AMD Instinct MI300X")
    assert (second.index, second.uuid, second.socket, second.cores) == (1, "GPU-own", 1, (2, 3))
    assert first.memory_bytes == 192 * GIB
    assert [link.kind for link in devices.topology.links[0]] == [LinkKind.SELF, LinkKind.NVLINK]
    assert [link.kind for link in devices_of(two(), bonds=False).topology.links[0]] == [LinkKind.SELF, LinkKind.SYS]


def test_those_without_a_number_of_their_own_go_by_their_position() -> None:
    """ROCm's variables know positions, too."""
    assert [gpu.uuid for gpu in devices_of([FakeAmd("N/A", 0), FakeAmd("N/A", 1)]).observe()] == ["0", "1"]


def test_use_is_told_as_far_as_it_is_told() -> None:
    first, second = devices_of(two()).uses()
    assert (first.busy_ratio, first.used_bytes, first.power_w, first.temperature_c) == (0.4, GIB, 300.0, 45.0)
    assert (second.busy_ratio, second.power_w, second.temperature_c) == (None, None, 45.0)


def test_memory_of_a_job_is_told_from_that_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = devices_of(two())
    seen = devices.observe(OwnProcesses(frozenset({OURS}), frozenset({0})))
    assert seen[0].foreign_bytes == 2 * GIB
    held = devices.memory(0)
    assert held is not None
    assert (held.free_bytes, held.by_pid) == (191 * GIB, {OURS: 3 * GIB, THEIRS: 2 * GIB})
    monkeypatch.setattr(amd, "is_first_namespace", lambda: False)
    unknown = devices_of(two()).memory(0)
    assert unknown is not None
    assert unknown.by_pid is None, "numbers of another namespace"


def test_one_that_does_not_answer_twice_is_ill_and_one_that_was_known_keeps_its_number() -> None:
    fakes = two()
    devices = devices_of(fakes)
    known = devices.observe()
    fakes[0].lost = True
    assert [gpu.healthy for gpu in devices.observe()] == [True, True], "a busy one may fail once"
    assert [gpu.healthy for gpu in devices.observe()] == [False, True]
    assert devices.memory(0) is None
    again = AmdDevices(AmdSmi(FakeAmdSmi(fakes)), HOST, known=known).observe()
    assert [(gpu.index, gpu.uuid, gpu.healthy) for gpu in again] == [
        (0, known[0].uuid, False),
        (1, known[1].uuid, True),
    ]


def test_jobs_are_shown_their_own_by_roc_and_hip_and_the_files_are_known() -> None:
    devices = devices_of(two())
    gpus = devices.observe()
    assert devices.maker.visible(gpus) == {
        "ROCR_VISIBLE_DEVICES": "GPU-05db6f0e52bdc8f4,GPU-own",
        "HIP_VISIBLE_DEVICES": "0,1",
        "CUDA_VISIBLE_DEVICES": "0,1",
    }
    assert devices.maker.visible(gpus[1:])["HIP_VISIBLE_DEVICES"] == "0", "of those that are left"
    assert devices.maker.visible([])["HIP_VISIBLE_DEVICES"] == "-1"
    assert devices.maker.files()["GPU-own"] == (DeviceNumber(226, 1), DeviceNumber(226, 129))
    assert not devices.maker.has_mps
    assert devices.maker.suspend_problem() == "processes can be moved off NVIDIA's GPUs only"


@pytest.mark.parametrize(("visible", "shown"), [("1", ["GPU-own"]), ("GPU-own,0", ["GPU-own", "GPU-05db6f0e52bdc8f4"]),
                                                ("7", []), ("", [])])  # fmt: skip
def test_only_those_that_the_agent_itself_may_use_are_offered(visible: str, shown: list[str]) -> None:
    assert [gpu.uuid for gpu in devices_of(two(), visible).observe()] == shown


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (None, "--devices amd: the package amdsmi is not installed"),
        (FakeAmdSmi([], driver=False), "--devices amd: AMDSMI_STATUS_DRIVER_NOT_LOADED - Driver not loaded;"),
        (FakeAmdSmi([]), "--devices amd: AMD SMI shows no GPU here; use --devices cpu:N instead"),
    ],
)
def test_where_there_are_none_it_is_said_why(
    monkeypatch: pytest.MonkeyPatch, module: FakeAmdSmi | None, said: str
) -> None:
    monkeypatch.setitem(sys.modules, "amdsmi", module)
    with pytest.raises(DeviceSpecError) as error:
        discover("amd")
    assert str(error.value).startswith(said)
