from __future__ import annotations

import json
from pathlib import Path

import pytest

from colane.api.topologies import encode_topology
from colane.model.hardware import Link, LinkKind
from colane.model.topo_text import parse_matrix
from colane.settings.input_file import InputFileError
from colane.settings.topology_file import read_topology

MINSKY = """sockets: [0, 0, 1, 1]
links:
  - [X, NV2, SYS, SYS]
  - [NV2, X, SYS, SYS]
  - [SYS, SYS, X, NV2]
  - [SYS, SYS, NV2, X]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "machine.yaml"


def test_written_by_hand(file: Path) -> None:
    file.write_text(MINSKY)
    topology = read_topology(file).topology
    assert (topology.sockets, topology.switches, topology.nvswitch) == ((0, 0, 1, 1), (), False)
    assert topology.links[0] == (
        Link(LinkKind.SELF), Link(LinkKind.NVLINK, 2), Link(LinkKind.SYS), Link(LinkKind.SYS),
    )  # fmt: skip


@pytest.mark.parametrize("indent", [None, 1])
def test_every_sample_comes_back_from_our_own_form(file: Path, data: Path, indent: int | None) -> None:
    for path in sorted((data / "topologies").glob("*.txt")):
        topology = read_topology(path).topology
        assert topology == parse_matrix(path.read_text()).topology
        file.write_text(json.dumps(encode_topology(topology), indent=indent))
        assert read_topology(file).topology == topology


def test_a_switch_is_seen_where_it_is_not_told(file: Path) -> None:
    rows = "\n".join(f"  - [{', '.join('X' if a == b else 'NV12' for b in range(8))}]" for a in range(8))
    file.write_text(f"sockets: [0, 0, 0, 0, 1, 1, 1, 1]\nlinks:\n{rows}\n")
    assert read_topology(file).topology.nvswitch
    file.write_text(f"nvswitch: false\n{file.read_text()}")
    assert not read_topology(file).topology.nvswitch


@pytest.mark.parametrize(
    ("old", "new", "place", "says"),
    [
        ("[NV2, X, SYS", "[NV1, X, SYS", "4: column 6", "links[1][0] is NV1, but links[0][1] is NV2"),
        ("[X, NV2, SYS, SYS]", "[X, NVX, SYS, SYS]", "3: column 9", "unknown link 'NVX'"),
        ("[X, NV2, SYS, SYS]", "[X, [NV, 0], SYS, SYS]", "3: column 9", "NV needs at least 1"),
        ("[X, NV2, SYS, SYS]", "[X, [NV, 2, fast], SYS, SYS]", "3: column 17", "must be bytes per second"),
        ("[X, NV2, SYS, SYS]", "[X, {NV: 2}, SYS, SYS]", "3: column 9", "expected a link"),
        ("[X, NV2, SYS, SYS]", "[NV2, NV2, SYS, SYS]", "3: column 6", "links[0][0] must be X"),
        ("[NV2, X, SYS, SYS]", "[X, X, SYS, SYS]", "4: column 6", "links[1][0] is X"),
        ("[X, NV2, SYS, SYS]", "[X, NV2, SYS]", "3: column 5", "links[0] has 3 entries for 4 GPUs"),
        ("[0, 0, 1, 1]", "[0, 0, 1]", "3: column 3", "links has 4 entries for 3 GPUs"),
        ("[0, 0, 1, 1]", "[0, 0, 1, ~]", "1: column 20", "a GPU has no socket here"),
        ("[0, 0, 1, 1]", "[0, 0, 1, -1]", "1: column 20", "must be a whole number from 0"),
        ("[0, 0, 1, 1]", "[]", "1: column 10", "sockets has 0 entries"),
        ("[0, 0, 1, 1]", "4", "1: column 10", "sockets must be a list"),
        ("links:", "lanks:", "2: column 1", "did you mean links?"),
        ("sockets: [0, 0, 1, 1]", "nvswitch: maybe", "1: column 1", "sockets is missing"),
        ("links:", "nvswitch: maybe\nlinks:", "2: column 11", "nvswitch must be true or false"),
        ("links:", "switches: [0]\nlinks:", "2: column 11", "switches has 1 entry for 4 GPUs"),
        ("links:", "sockets: [1]\nlinks:", "2: column 1", "stands here twice"),
        ("[X, NV2, SYS, SYS]", "[X, NV2", "4: column 5", "is not JSON or YAML"),
    ],
)
def test_what_is_refused_and_where(file: Path, old: str, new: str, place: str, says: str) -> None:
    assert old in MINSKY
    file.write_text(MINSKY.replace(old, new, 1))
    with pytest.raises(InputFileError) as refused:
        read_topology(file)
    assert str(refused.value).startswith(f"{file}:{place}")
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_matrix_is_refused_with_its_place_too(file: Path) -> None:
    file.write_text("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tFOO\t0-3\nGPU1\tFOO\t X \t0-3\n")
    with pytest.raises(InputFileError, match=r":2: column 10: unknown link 'FOO'"):
        read_topology(file)


def test_no_file(file: Path) -> None:
    with pytest.raises(InputFileError, match="cannot be read: No such file"):
        read_topology(file)
