from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.devices import CpuDevices, DeviceSpecError, discover
from colane.devices.cpu import CpuSpec, parse_cpu_spec
from colane.devices.host import parse_cpu_list, read_sockets
from colane.devices.types import HostFacts
from colane.model import topologies
from colane.model.hardware import Link, LinkKind, Topology
from tests.devices.test_gpu import fails

HOST = HostFacts(cores=(0, 1, 2, 3, 8, 9), memory_bytes=6_000_000_000, sockets={0: 1, 1: 0, 2: 1, 3: 0, 8: 0, 9: 1})


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("cpu:2", CpuSpec(2, None)),
        ("cpu:1:4GB", CpuSpec(1, 4_000_000_000)),
        ("cpu:3:512MiB", CpuSpec(3, 512 * 2**20)),
        ("cpu:1:1.5g", CpuSpec(1, 1_500_000_000)),
        ("cpu:1:1000", CpuSpec(1, 1000)),
    ],
)
def test_spec(spec: str, expected: CpuSpec) -> None:
    assert parse_cpu_spec(spec) == expected


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("cpu:0", "at least 1"),
        ("cpu:", "at least 1"),
        ("cpu:-2", "at least 1"),
        ("cpu:two", "at least 1"),
        ("cpu:2:", "missing"),
        ("cpu:2:lots", "the memory must be a size such as 2GB"),
        ("cpu:2:4XB", "the memory must be a size such as 2GB, 512MiB or 2000000000, got '4XB'"),
        ("cpu:2:0GB", "the memory must be more than 0"),
        ("tpu:2", "unknown kind of device 'tpu'"),
        ("cpu:100000", "at most cpu:"),
    ],
)
def test_bad_spec_is_refused_in_one_line(spec: str, says: str) -> None:
    with pytest.raises(DeviceSpecError) as caught:
        discover(spec)
    message = str(caught.value)
    assert message.startswith("--devices ")
    assert says in message
    assert "\n" not in message


def test_neighbours_stay_together_and_memory_is_shared_out() -> None:
    gpus = CpuDevices(CpuSpec(2), HOST).observe()
    assert [gpu.cores for gpu in gpus] == [(1, 3, 8), (0, 2, 9)]
    assert [gpu.socket for gpu in gpus] == [0, 1]
    assert [gpu.memory_bytes for gpu in gpus] == [3_000_000_000] * 2
    assert [(gpu.index, gpu.uuid, gpu.type, gpu.sharing) for gpu in gpus] == [
        (0, "cpu-0", "cpu", "cpu"),
        (1, "cpu-1", "cpu", "cpu"),
    ]


@given(cores=st.sets(st.integers(0, 300), min_size=1, max_size=64), data=st.data())
def test_every_core_is_in_exactly_one_device(cores: set[int], data: st.DataObject) -> None:
    count = data.draw(st.integers(1, len(cores)))
    host = HostFacts(cores=tuple(sorted(cores)), memory_bytes=count * 1000)
    gpus = CpuDevices(CpuSpec(count), host).observe()
    assert sorted(core for gpu in gpus for core in gpu.cores) == sorted(cores)
    sizes = [len(gpu.cores) for gpu in gpus]
    assert max(sizes) - min(sizes) <= 1


def test_this_machine() -> None:
    devices = discover("cpu:1:4GB")
    (gpu,) = devices.observe()
    assert gpu.cores == devices.host.cores == tuple(sorted(os.sched_getaffinity(0)))
    assert gpu.memory_bytes == 4_000_000_000
    assert devices.host.memory_bytes > 0
    assert devices.utilization() == {}


def test_without_a_driver_all_cores_are_one_device() -> None:
    (gpu,) = discover(None, load=partial(fails, pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)).observe()
    assert gpu.is_cpu_device
    assert gpu.cores == tuple(sorted(os.sched_getaffinity(0)))


@pytest.mark.parametrize(("text", "cores"), [("0-3,8\n", (0, 1, 2, 3, 8)), ("5", (5,)), ("\n", ())])
def test_cpu_list(text: str, cores: tuple[int, ...]) -> None:
    assert parse_cpu_list(text) == cores


def test_sockets_are_read_from_the_kernel(tmp_path: Path) -> None:
    for node, cpus in ((0, "0-1"), (8, "2-3")):
        (tmp_path / f"node{node}").mkdir()
        (tmp_path / f"node{node}" / "cpulist").write_text(cpus)
    assert read_sockets(tmp_path) == {0: 0, 1: 0, 2: 8, 3: 8}


def test_devices_of_a_declared_topology_have_cores_of_their_sockets() -> None:
    links = ((Link(LinkKind.SELF), Link(LinkKind.SYS)), (Link(LinkKind.SYS), Link(LinkKind.SELF)))
    gpus = CpuDevices(CpuSpec(2), HOST, Topology(links, (5, 2))).observe()
    assert [(gpu.socket, gpu.cores) for gpu in gpus] == [(5, (0, 2, 9)), (2, (1, 3, 8))]


def test_devices_of_a_declared_topology_may_share_cores() -> None:
    host = HostFacts(cores=(4, 7), memory_bytes=4_000)
    devices = CpuDevices(CpuSpec(4), host, topologies.minsky())
    assert [(gpu.socket, gpu.cores) for gpu in devices.observe()] == [(0, (4,)), (0, (4,)), (1, (7,)), (1, (7,))]
    assert devices.topology is topologies.minsky()


def test_a_topology_of_another_number_of_devices_is_refused() -> None:
    with pytest.raises(DeviceSpecError, match=r"^--topology: connects 4 GPUs, but this agent has 2 devices$"):
        discover("cpu:2", topologies.minsky())
