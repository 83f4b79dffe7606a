from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Circle, PathPatch

from colane.lab.report import style
from colane.lab.report.topology_plot import STATE_COLOURS, Marks, draw_topology
from colane.model import topologies
from colane.model.hardware import Topology
from colane.model.topo_text import parse_matrix


def texts(fig: Figure) -> list[str]:
    legend = [text.get_text() for text in fig.legends[0].get_texts()]
    return [text.get_text() for text in fig.axes[0].texts] + legend


def gpus(fig: Figure) -> list[Circle]:
    return [patch for patch in fig.axes[0].patches if isinstance(patch, Circle)]


def test_a_dgx1_shows_its_links_and_which_gpus_are_free() -> None:
    marks = Marks({0: "used", 6: "unhealthy"}, {0: "17"})
    fig = draw_topology(topologies.dgx1(), "dgx1", marks)
    links = [patch for patch in fig.axes[0].patches if isinstance(patch, PathPatch)]
    assert len(links) == 16
    assert {round(link.get_linewidth(), 2) for link in links} == {2.2, 3.3}, "the width tells the number of NVLinks"
    said = texts(fig)
    assert (said.count("NV1"), said.count("NV2"), said.count("PCIe switch"), said.count("17")) == (8, 8, 4, 1)
    assert {"socket 0", "socket 1", "NV2, 50 GB/s", "NV1, 25 GB/s", "between sockets, 15.8 GB/s"} <= set(said)
    colours = [to_hex(circle.get_facecolor()).upper() for circle in gpus(fig)]
    expected = [STATE_COLOURS[marks.states.get(gpu, "free")].upper() for gpu in range(8)]
    assert colours == expected


def test_nvswitch_is_one_box() -> None:
    fig = draw_topology(topologies.dgx2(), "dgx2")
    assert len(gpus(fig)) == 16
    assert not [patch for patch in fig.axes[0].patches if isinstance(patch, PathPatch)]
    assert "NVSwitch: NV6 from each GPU, 150 GB/s" in texts(fig)


@pytest.mark.parametrize("gpus_of", [(), (0,), (0, 1, 2, 3, 4)])
def test_any_number_of_sockets(gpus_of: tuple[int, ...], tmp_path: Path) -> None:
    topology = topologies.pcie(len(gpus_of), max(len(gpus_of), 1)) if gpus_of else Topology((), ())
    fig = draw_topology(topology, "machine")
    assert len(gpus(fig)) == len(gpus_of)
    assert style.save(fig, tmp_path / "machine.svg").stat().st_size > 1000


def test_every_sample_can_be_drawn(data: Path, tmp_path: Path) -> None:
    for path in sorted((data / "topologies").glob("*.txt")):
        topology = parse_matrix(path.read_text()).topology
        fig = draw_topology(topology, path.stem)
        assert len(gpus(fig)) == topology.gpus
        xs = [(circle.center[0], circle.center[1]) for circle in gpus(fig)]
        assert len(set(xs)) == topology.gpus, "no two GPUs lie on each other"
    assert style.save(fig, tmp_path / "last.png").stat().st_size > 10_000
