from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import pynvml
import pytest

from colane.devices import NvmlDevices, discover
from colane.devices.discover import DeclaredDevices
from colane.devices.nvml import Nvml
from colane.devices.topology import read_socket
from colane.devices.types import HostFacts
from colane.model import topologies
from colane.model.hardware import Link, LinkKind, Topology, flat_topology
from colane.model.topo_text import parse_matrix, word
from tests.devices.fake_nvml import GB, FakeGpu, FakeNvml, NvLink

GPU, SWITCH, UNKNOWN = (
    pynvml.NVML_NVLINK_DEVICE_TYPE_GPU, pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH, pynvml.NVML_NVLINK_DEVICE_TYPE_UNKNOWN,
)  # fmt: skip
LEVELS = {
    "PIX": pynvml.NVML_TOPOLOGY_SINGLE,
    "PXB": pynvml.NVML_TOPOLOGY_MULTIPLE,
    "PHB": pynvml.NVML_TOPOLOGY_HOSTBRIDGE,
    "NODE": pynvml.NVML_TOPOLOGY_NODE,
    "SYS": pynvml.NVML_TOPOLOGY_SYSTEM,
}
TWO_SOCKETS = HostFacts(cores=tuple(range(8)), memory_bytes=8 * GB, sockets={core: core // 4 for core in range(8)})
CORES = {0: (0b1111,), 1: (0b11110000,)}


@dataclass
class Bench:
    """A machine for NVML to be asked about."""

    fake: FakeNvml

    def read(self) -> Topology:
        return NvmlDevices(Nvml(self.fake), TWO_SOCKETS).topology

    def join(self, level: str, *groups: tuple[int, ...]) -> None:
        for group in groups:
            for a, b in combinations(group, 2):
                self.fake.ancestors[frozenset({f"GPU-{a}", f"GPU-{b}"})] = LEVELS[level]

    def nvlink(self, kind: int | None, a: int, b: int, count: int) -> None:
        for one, two in ((a, b), (b, a)):
            self.fake.gpus[one].nvlinks += [NvLink(kind, self.fake.gpus[two].bus)] * count


def bench(count: int, **settings: Any) -> Bench:
    gpus = [
        FakeGpu(
            f"GPU-{n}", numa=n * 2 // count, affinity=CORES[n * 2 // count], bus=f"0000:{n + 7:02x}:00.0", **settings
        )
        for n in range(count)
    ]
    made = Bench(FakeNvml(gpus))
    made.join("SYS", tuple(range(count)))
    return made


def dgx1() -> Bench:
    """Eight V100: a cube of NVLinks with doubled edges, two GPUs on each PCIe switch."""
    made = bench(8, pcie=(3, 16), nvlink_version=2)
    made.join("NODE", (0, 1, 2, 3), (4, 5, 6, 7))
    made.join("PIX", (0, 1), (2, 3), (4, 5), (6, 7))
    for a, b in ((0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)):
        made.nvlink(GPU, a, b, 2)
    for a, b in ((0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7)):
        made.nvlink(GPU, a, b, 1)
    return made


def dgx_a100() -> Bench:
    """Eight A100 with twelve NVLinks each to the switches."""
    made = bench(8, nvlink_mb_per_s=25_000)
    made.join("PXB", (0, 1), (2, 3), (4, 5), (6, 7))
    for gpu in made.fake.gpus:
        gpu.nvlinks = [NvLink(SWITCH, f"0000:c{n % 6}:00.0") for n in range(12)]
    return made


def pcie() -> Bench:
    """Four GPUs on two sockets without NVLink."""
    made = bench(4, pcie=(4, 8))
    made.join("PHB", (0, 1), (2, 3))
    return made


def words(topology: Topology) -> list[str]:
    return [" ".join(word(link) for link in row) for row in topology.links]


def test_a_dgx1_is_the_one_its_matrix_shows(data: Path) -> None:
    topology = dgx1().read()
    shown = parse_matrix((data / "topologies" / "dgx1-v100.txt").read_text()).topology
    assert words(topology) == [row.replace("SOC", "SYS") for row in words(shown)]
    assert (topology.sockets, topology.switches, topology.nvswitch) == (shown.sockets, shown.switches, False)


def test_bandwidths_of_a_dgx1() -> None:
    links = dgx1().read().links
    assert links[0][3] == Link(LinkKind.NVLINK, 2, 50e9)
    assert links[0][1] == Link(LinkKind.NVLINK, 1, 25e9)
    assert links[0][5].kind is LinkKind.SYS
    assert links[0][5].bandwidth_bytes_per_s == pytest.approx(15.76e9)


def test_nvswitch_connects_all_alike() -> None:
    topology = dgx_a100().read()
    assert {link for a, row in enumerate(topology.links) for b, link in enumerate(row) if a != b} == {
        Link(LinkKind.NVLINK, 12, 300e9)
    }
    assert (topology.nvswitch, topology.sockets) == (True, (0, 0, 0, 0, 1, 1, 1, 1))
    assert topology.switches == (0, 0, 1, 1, 2, 2, 3, 3), "PCIe is told beside NVLink"


def test_two_sockets_without_nvlink() -> None:
    topology = pcie().read()
    assert words(topology) == ["X PHB SYS SYS", "PHB X SYS SYS", "SYS SYS X PHB", "SYS SYS PHB X"]
    assert (topology.sockets, topology.switches, topology.nvswitch) == ((0, 0, 1, 1), (-1,) * 4, False)
    assert topology.links[0][1].bandwidth_bytes_per_s == pytest.approx(8 * 1.969e9)


def test_the_narrower_slot_bounds_a_pair() -> None:
    made = pcie()
    made.fake.gpus[1].pcie = (3, 4)
    assert made.read().links[0][1].bandwidth_bytes_per_s == pytest.approx(4 * 0.985e9)


@pytest.mark.parametrize("kind", [UNKNOWN, None])
def test_a_virtual_machine_hides_the_switch(kind: int | None) -> None:
    made = dgx_a100()
    for gpu in made.fake.gpus:
        gpu.nvlinks = [NvLink(kind, "") for _ in range(8)]
    assert not made.read().nvswitch, "as long as nothing says that GPUs reach each other"
    made.fake.nvlink_copies = {frozenset({f"GPU-{a}", f"GPU-{b}"}) for a, b in combinations(range(8), 2)}
    topology = made.read()
    assert topology.links[0][7] == Link(LinkKind.NVLINK, 8, 200e9)
    assert topology.nvswitch


def test_a_switch_that_is_not_called_one_is_no_gpu() -> None:
    made = dgx_a100()
    for gpu in made.fake.gpus:
        gpu.nvlinks = [NvLink(UNKNOWN, "0000:c0:00.0") for _ in range(12)]
    made.fake.nvlink_copies = {frozenset({"GPU-0", "GPU-1"})}
    links = made.read().links
    assert (word(links[0][1]), word(links[0][2])) == ("NV12", "SYS")


def test_nvlinks_to_the_processor_connect_no_gpus() -> None:
    made = pcie()
    made.nvlink(GPU, 0, 1, 3)
    for gpu in made.fake.gpus:
        gpu.nvlinks += [NvLink(pynvml.NVML_NVLINK_DEVICE_TYPE_IBMNPU, "0004:00:00.0")] * 3
    assert words(made.read())[0] == "X NV3 SYS SYS"


def test_links_that_are_down_do_not_count() -> None:
    made = pcie()
    made.nvlink(GPU, 0, 1, 4)
    for gpu in made.fake.gpus[:2]:
        gpu.nvlinks[0] = NvLink(GPU, gpu.nvlinks[0].bus, is_active=False)
    assert words(made.read())[0] == "X NV3 SYS SYS"


def test_a_pair_nvml_cannot_tell_goes_through_the_host() -> None:
    made = pcie()
    made.fake.ancestors.clear()
    assert words(made.read()) == ["X NODE SYS SYS", "NODE X SYS SYS", "SYS SYS X NODE", "SYS SYS NODE X"]


def test_an_error_on_one_pair_breaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    made = dgx1()
    ask = made.fake.nvmlDeviceGetTopologyCommonAncestor

    def fall_off(one: FakeGpu, two: FakeGpu) -> int:
        if {one.uuid, two.uuid} == {"GPU-0", "GPU-5"}:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return ask(one, two)

    monkeypatch.setattr(made.fake, "nvmlDeviceGetTopologyCommonAncestor", fall_off)
    assert made.read() == dgx1().read()


def names_of_topology() -> list[str]:
    return [
        name
        for name in dir(FakeNvml)
        if any(part in name for part in ("Pci", "NvLink", "Ancestor", "P2P", "Affinity", "FieldValues"))
    ]


@pytest.mark.parametrize("how", ["missing", "failing"])
@pytest.mark.parametrize("name", names_of_topology())
def test_any_function_may_be_absent(name: str, how: str) -> None:
    made = dgx1()
    getattr(made.fake, how).add(name)
    topology = made.read()
    assert topology.gpus == 8
    assert topology.sockets == (0, 0, 0, 0, 1, 1, 1, 1)
    for a, b in combinations(range(8), 2):
        assert topology.links[a][b] == topology.links[b][a]


def test_mig_instances_share_their_gpus_place() -> None:
    made = pcie()
    made.nvlink(GPU, 0, 1, 4)
    made.fake.gpus[0].instances = [FakeGpu("MIG-a", numa=None), FakeGpu("MIG-b", numa=None)]
    assert words(made.read())[0] == "X PIX NV4 SYS SYS"


def test_only_gpus_on_offer_are_in_it() -> None:
    assert words(NvmlDevices(Nvml(dgx1().fake), TWO_SOCKETS, "0,3,5").topology) == [
        "X NV2 SYS", "NV2 X SYS", "SYS SYS X",
    ]  # fmt: skip


def test_sockets_by_nvml_by_the_kernel_by_cores(tmp_path: Path) -> None:
    gpu = FakeGpu("GPU-a", numa=1, bus="0000:07:00.0", affinity=CORES[1])
    nvml = Nvml(FakeNvml([gpu]))
    assert read_socket(nvml, gpu, TWO_SOCKETS, (), tmp_path) == 1
    gpu.numa = None
    file = tmp_path / "0000:07:00.0" / "numa_node"
    file.parent.mkdir()
    file.write_text("8\n")
    assert read_socket(nvml, gpu, TWO_SOCKETS, (), tmp_path) == 8
    file.write_text("-1\n")
    assert read_socket(nvml, gpu, TWO_SOCKETS, (3, 4, 5), tmp_path) == 1
    assert read_socket(nvml, gpu, TWO_SOCKETS, (), tmp_path) == 0


def test_a_numa_node_beyond_one_word() -> None:
    host = HostFacts(cores=(0,), memory_bytes=GB, sockets={0: 0, 1: 70})
    gpu = FakeGpu("GPU-a", numa=70)
    assert read_socket(Nvml(FakeNvml([gpu])), gpu, host, ()) == 70


def test_gpus_lie_on_the_sockets_that_are_declared() -> None:
    """As on a virtual machine that shows all GPUs on one socket."""
    found = NvmlDevices(Nvml(bench(4).fake), TWO_SOCKETS)
    one, two = (0, 1, 2, 3), (4, 5, 6, 7)
    assert [(gpu.socket, gpu.cores) for gpu in found.observe()] == [(0, one), (0, one), (1, two), (1, two)]
    links = topologies.minsky().links
    declared = DeclaredDevices(found, Topology(links, (0, 1, 1, 7)))
    moved = declared.observe()
    assert [(gpu.socket, gpu.cores) for gpu in moved] == [(0, one), (1, two), (1, two), (7, two)]
    assert [gpu.uuid for gpu in moved] == [gpu.uuid for gpu in found.observe()]
    assert (declared.host, declared.utilization_by) == (found.host, found.utilization_by)
    assert declared.utilization() == found.utilization()


def test_cpu_devices_are_flat() -> None:
    assert words(flat_topology([0, 0, 1])) == ["X NODE SYS", "NODE X SYS", "SYS SYS X"]
    count = min(2, len(os.sched_getaffinity(0)))
    devices = discover(f"cpu:{count}")
    assert devices.topology == flat_topology([gpu.socket for gpu in devices.observe()])
