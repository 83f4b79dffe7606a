from __future__ import annotations

import io
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from colane.lab.commands import topo
from colane.lab.commands.topo import Machine, legend, tree
from colane.lab.traces import clusters
from colane.model import topologies
from tests.cli.conftest import COLANE, Colane, Gate, Up, environment, run_colane

MATRIX = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV2\t0-7\t0\nGPU1\tNV2\t X \t8-15\t1\n"


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    path = tmp_path / "machine.txt"
    path.write_text(MATRIX)
    return path


def test_a_matrix_is_shown(colane: Colane, matrix: Path) -> None:
    said = colane("topo", "--import", str(matrix))
    assert said.code == 0, said.err
    lines = [line.rstrip() for line in said.out.splitlines()]
    assert lines[:5] == ["machine: 2 GPUs", "├── socket 0", "│   └── GPU 0", "└── socket 1", "    └── GPU 1"]
    assert [line.split() for line in lines if "NV2" in line] == [
        ["0", "X", "NV2"], ["1", "NV2", "X"], ["NV2:", "2", "NVLinks"],
    ]  # fmt: skip


def test_every_sample_is_shown(colane: Colane, data: Path) -> None:
    for path in sorted((data / "topologies").glob("*.txt")):
        said = colane("topo", "--import", str(path))
        assert said.code == 0, said.err
        assert said.out.startswith(f"{path.stem}: ")


def test_what_was_worked_out_is_said(colane: Colane, data: Path) -> None:
    said = colane("topo", "--import", str(data / "topologies" / "dgx2-16xV100-nvswitch-partial.txt"))
    assert said.err.startswith("dgx2-16xV100-nvswitch-partial: GPU4 to GPU15 have no row")


def test_presets_are_shown(colane: Colane) -> None:
    said = colane("topo", "--import", "dgx-a100")
    assert "NVSwitch: each GPU to every other, NV12 300 GB/s" in said.out


def test_json_is_the_topology_itself(colane: Colane, matrix: Path, tmp_path: Path) -> None:
    document = colane("topo", "--import", str(matrix), "--json").json
    assert (document["links"][0][1], document["sockets"]) == (["NV", 2, 0.0], [0, 1])
    again = tmp_path / "again.json"
    again.write_text(json.dumps(document))
    assert colane("topo", "--import", str(again), "--json").json == document


@pytest.mark.parametrize("suffix", [".yaml", ".json"])
def test_a_written_topology_stands_in_a_cluster_file(colane: Colane, tmp_path: Path, suffix: str) -> None:
    out = tmp_path / f"machine{suffix}"
    assert colane("topo", "--import", "dgx1", "--out", str(out)).code == 0
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(
        f"groups: [{{count: 1, gpus: 8, gpu_type: V100, gpu_memory: 16GB, sockets: 2, topology: {out.name}}}]\n"
    )
    assert clusters.load(cluster).nodes[0].topology == topologies.dgx1()


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_a_picture(colane: Colane, matrix: Path, tmp_path: Path, suffix: str) -> None:
    out = tmp_path / "deep" / f"machine{suffix}"
    assert colane("topo", "--import", str(matrix), "--out", str(out)).code == 0
    assert out.stat().st_size > 5000


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--import", "dgx11"), "did you mean dgx1 or dgx2?"),
        (("--import", "/no/such/file"), "cannot be read: No such file"),
        (("--import", "dgx1", "here"), "not both"),
        (("--import", "dgx1", "--out", "x.doc"), "--out x.doc: must end in one of .png"),
    ],
)
def test_misuse(colane: Colane, words: tuple[str, ...], expected: str) -> None:
    said = colane("topo", *words)
    assert said.code == 2
    assert expected in said.err
    assert len(said.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("X \tNV2\t0", "X \tFOO\t0", ":2: column 10: unknown link 'FOO' between GPU0 and GPU1"),
        ("GPU1\tNV2", "GPU1\tNV1", ":3: column 6: GPU1 to GPU0 is NV1, but GPU0 to GPU1 is NV2 in line 2"),
        ("8-15\t1", "\t", ":3: column 14: GPU1 has no socket"),
    ],
)
def test_a_bad_file_is_refused_with_its_place(colane: Colane, matrix: Path, old: str, new: str, expected: str) -> None:
    assert old in MATRIX
    matrix.write_text(MATRIX.replace(old, new))
    said = colane("topo", "--import", str(matrix))
    assert said.code == 2
    assert f"{matrix}{expected}" in said.err
    assert len(said.err.splitlines()) == 1


def test_an_agent_is_told_its_topology(colane: Colane, matrix: Path) -> None:
    """It has one device, so that two connected GPUs are refused, whether its scheduler answers or not."""
    state = str(matrix.parent / "agent")
    said = run_colane(["agent", "--devices", "cpu:1", "--topology", str(matrix), "--state", state])
    asked, refused = said.err.splitlines()
    assert (said.code, refused) == (2, "colane: --topology: connects 2 GPUs, but this agent has 1 device")
    assert asked.startswith("colane agent: no scheduler answers at ")
    assert "--topology: nowhere: cannot be read" in colane("agent", "--topology", "nowhere").err


def test_an_output_that_cannot_be_written(colane: Colane, matrix: Path) -> None:
    said = colane("topo", "--import", str(matrix), "--out", f"{matrix}/below.png")
    assert (said.code, "cannot be written" in said.err) == (1, True)


def test_the_live_machine(live: Colane, shared_up: Up, gate: Gate) -> None:
    job = live("submit", "--json", "--no-share", "--", *gate.job).json["id"]
    running = shared_up.wait_for(job, "launching", "running", "running-protected")
    used = int(running["gpus"][0].rpartition("/")[2])
    said = live("topo")
    shown = live("topo", "here", "--json").json
    gate.open()
    assert f"GPU {used}  cpu  used by job {job}" in said.out
    assert f"GPU {1 - used}  cpu  free" in said.out
    assert [gpu["state"] for gpu in shown["gpus"]] == ["used", "free"][:: 1 if used == 0 else -1]
    assert shown["topology"]["links"][0][1][0] in {"NODE", "SYS"}
    shared_up.wait_for(job, "succeeded")


def test_a_node_that_is_not_there(live: Colane) -> None:
    said = live("topo", "nowhere")
    assert (said.code, said.err) == (2, "colane: nowhere: no such node; registered are here\n")


def test_without_a_scheduler(colane: Colane) -> None:
    assert colane("topo").code == 1


def test_a_node_of_unknown_topology_is_shown_by_its_sockets() -> None:
    gpu = {"index": 0, "type": "V100", "socket": 0, "healthy": False}
    node: Any = {"name": "n", "lost": False, "topology": None, "jobs": [], "gpus": [gpu]}
    machine = topo._machine(node)
    assert (machine.states, machine.topology.sockets) == ({0: "unhealthy"}, (0,))
    assert "not known" in machine.notes[0]


def test_colours_on_a_terminal() -> None:
    file = io.StringIO()
    machine = Machine(
        "dgx1", topologies.dgx1(), ("V100",) * 8, dict.fromkeys(range(8), "free") | {3: "used"}, {3: (7, 9)}
    )
    Console(file=file, force_terminal=True, width=100).print(tree(machine))
    assert "used by jobs 7, 9" in file.getvalue()
    assert "\x1b[33m" in file.getvalue()
    assert legend(machine.topology)[0] == "NV2 50 GB/s: 2 NVLinks"


def test_a_matrix_from_a_pipe(matrix: Path) -> None:
    done = subprocess.run(
        [*COLANE, "topo", "--import", "-"], input=matrix.read_text(), capture_output=True, text=True, check=True,
        env=environment(), timeout=60,
    )  # fmt: skip
    assert done.stdout.startswith("machine: 2 GPUs")
    assert run_colane(["topo", "--import", str(matrix)]).out == done.stdout
