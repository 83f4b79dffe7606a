from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.model.hardware import Link, LinkKind
from colane.model.topo_text import ReadTopology, TopologyTextError, parse_matrix, word

ORDER = ("NV", "PIX", "PXB", "PHB", "NODE", "SYS")

DGX1_NV2 = {(0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)}
DGX1_NV1 = {(0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7)}


class Machine(NamedTuple):
    """What a sample's own cells say of its machine."""

    sockets: tuple[int, ...]
    switches: tuple[int, ...]
    words: dict[str, int]
    """How many pairs have each word."""
    nvswitch: bool = False


TWO = (0, 0, 0, 0, 1, 1, 1, 1)
PAIRS = (0, 0, 1, 1, 2, 2, 3, 3)
NO_SWITCH = (-1,) * 8

MACHINES = {
    "a100-8-4nic-pxb": Machine(TWO, (0, 0, 1, 1, -1, -1, -1, -1), {"NV12": 28}, nvswitch=True),
    "a100-8-aws-p4d": Machine(TWO, NO_SWITCH, {"NV12": 28}, nvswitch=True),
    "a100-8-nv8-vm-8nic": Machine(TWO, PAIRS, {"NV8": 28}, nvswitch=True),
    "container-two-gpu-phb": Machine((0, 0), (-1, -1), {"PHB": 1}),
    "dgx1-p100-old-soc": Machine(TWO, PAIRS, {"NV1": 16, "SYS": 12}),
    "dgx1-v100": Machine(TWO, PAIRS, {"NV2": 8, "NV1": 8, "SYS": 12}),
    "dgx2-16xV100-nvswitch-partial": Machine(
        (0,) * 8 + (1,) * 8, (0, 0, 1, 1) + (-1,) * 12, {"NV6": 120}, nvswitch=True
    ),
    "h200-8-della-blank-affinity-gpurows": Machine(TWO, (0, -1, -1, 1, 2, -1, 3, -1), {"NV18": 28}, nvswitch=True),
    "h200-8-gpurows": Machine(TWO, tuple(range(8)), {"NV18": 28}, nvswitch=True),
    "pcie-8gpu-4090-two-socket-sys": Machine(TWO, NO_SWITCH, {"SYS": 28}),
    "pcie-8gpu-p40-one-socket-old": Machine((0,) * 8, (0, 0, 0, 0, 1, 1, 1, 1), {"PIX": 12, "PXB": 16}),
    "pcie-k80-4-one-socket-spaces": Machine((0,) * 4, (0, 0, 1, 1), {"PIX": 2, "PHB": 4}),
    "power9-ac922": Machine((0, 0, 8, 8), (-1,) * 4, {"NV3": 2, "SYS": 4}),
    "v100-sxm2-8-new-format": Machine(TWO, NO_SWITCH, {"NV2": 8, "NV1": 8, "SYS": 12}),
}


def sample(data: Path, name: str) -> str:
    return (data / "topologies" / f"{name}.txt").read_text()


def pairs(read: ReadTopology) -> dict[tuple[int, int], Link]:
    links = read.topology.links
    return {(a, b): links[a][b] for a, b in combinations(range(len(links)), 2)}


def rank(link: Link) -> tuple[int, int]:
    return ORDER.index(link.kind.value), -link.lanes


def test_every_sample_is_named_here(data: Path) -> None:
    assert {path.stem for path in (data / "topologies").glob("*.txt")} == set(MACHINES)


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_every_sample_gives_its_machine(data: Path, name: str) -> None:
    machine, read = MACHINES[name], parse_matrix(sample(data, name))
    words = [word(link) for link in pairs(read).values()]
    assert {each: words.count(each) for each in words} == machine.words
    assert read.topology.sockets == machine.sockets
    assert read.topology.switches == machine.switches
    assert read.topology.nvswitch == machine.nvswitch
    assert read.names == tuple(f"GPU{number}" for number in range(len(machine.sockets)))


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_every_sample_is_symmetric_and_says_x_of_itself_alone(data: Path, name: str) -> None:
    links = parse_matrix(sample(data, name)).topology.links
    assert all(len(row) == len(links) for row in links)
    for a, row in enumerate(links):
        assert [b for b, link in enumerate(row) if link.kind is LinkKind.SELF] == [a]
        assert [links[b][a] for b in range(len(links))] == list(row)


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_every_cell_of_a_sample_is_in_its_graph(data: Path, name: str) -> None:
    """An independent reading: the words of a row, in order, are those of the graph."""
    read = parse_matrix(sample(data, name))
    for line in sample(data, name).splitlines():
        cells = line.split()
        if cells[:1] and cells[0] in read.names and len(cells) > 2 and "X" in cells:
            number = read.names.index(cells[0])
            said = [cell.replace("SOC", "SYS") for cell in cells[1 : len(read.names) + 1]]
            assert [word(link) for link in read.topology.links[number]] == said


@pytest.mark.parametrize("name", ["dgx1-v100", "v100-sxm2-8-new-format"])
def test_best_and_worst_pairs_of_a_dgx1(data: Path, name: str) -> None:
    found = pairs(parse_matrix(sample(data, name)))
    best, worst = min(map(rank, found.values())), max(map(rank, found.values()))
    assert {pair for pair, link in found.items() if rank(link) == best} == DGX1_NV2
    assert {pair for pair, link in found.items() if rank(link) == worst} == set(found) - DGX1_NV2 - DGX1_NV1


def test_best_and_worst_pairs_of_a_power9(data: Path) -> None:
    found = pairs(parse_matrix(sample(data, "power9-ac922")))
    assert {pair for pair, link in found.items() if link == Link(LinkKind.NVLINK, 3)} == {(0, 1), (2, 3)}
    assert {pair for pair, link in found.items() if link == Link(LinkKind.SYS)} == {(0, 2), (0, 3), (1, 2), (1, 3)}


def test_what_was_worked_out_is_said(data: Path) -> None:
    assert "no row" in parse_matrix(sample(data, "dgx2-16xV100-nvswitch-partial")).notes[0]
    assert "same cores" in parse_matrix(sample(data, "dgx1-p100-old-soc")).notes[0]
    assert parse_matrix(sample(data, "dgx1-v100")).notes == ()


PLAIN = """\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV2\tPIX\t0-7\t0
GPU1\tNV2\t X \tSYS\t8-15\t1
NIC0\tPIX\tSYS\t X \t\t
"""


def test_a_small_matrix() -> None:
    read = parse_matrix(PLAIN)
    assert pairs(read) == {(0, 1): Link(LinkKind.NVLINK, 2)}
    assert (read.topology.sockets, read.topology.switches) == ((0, 1), (0, -1))


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\t", "    "),
        lambda text: text.replace(" X ", "X"),
        lambda text: text.replace("\tGPU0\tGPU1\tNIC0", "\t    GPU0GPU1NIC0"),
        lambda text: text.replace("\t X \tNV2\tPIX", " X NV2PIX"),
        lambda text: f"\x1b[4m{text}".replace("NUMA Affinity", "NUMA Affinity\x1b[0m"),
        lambda text: text.lstrip().replace("\n", "\r\n"),
        lambda text: f"$ nvidia-smi topo -m\n{text}\nLegend:\n\n  X    = Self\nGPU0 is the first one\n",
        lambda text: text.replace("PIX\t0-7", "PIX0-7"),
        lambda text: text.replace("PIX\t0-7", "PI0-7"),
        lambda text: text[: text.index("NIC0\tPIX\tSYS")],
    ],
)
def test_however_it_was_copied_it_means_the_same(change: object) -> None:
    assert callable(change)
    assert parse_matrix(change(PLAIN)).topology == parse_matrix(PLAIN).topology


def test_numa_nodes_of_a_virtual_machine() -> None:
    text = PLAIN.replace("0-7\t0", "0-7\t0-3").replace("8-15\t1", "8-15\t4-7")
    assert parse_matrix(text).topology.sockets == (0, 4)


def test_without_numa_the_cores_tell() -> None:
    text = PLAIN.replace("\tNUMA Affinity", "").replace("8-15\t1", "8-15").replace("0-7\t0", "40-47")
    assert parse_matrix(text).topology.sockets == (1, 0), "numbered by their cores"
    assert parse_matrix(PLAIN.replace("0-7\t0", "0-7\tN/A").replace("8-15\t1", "8-15\tN/A")).topology.sockets == (0, 1)


def test_an_empty_cpu_affinity_leaves_the_numa_node_where_it_is() -> None:
    assert parse_matrix(PLAIN.replace("0-7", "").replace("8-15", "")).topology.sockets == (0, 1)
    blanks = PLAIN.expandtabs(16).replace("0-7", "   ")
    assert parse_matrix(blanks).topology.sockets == (0, 1)


def test_a_matrix_of_one_gpu() -> None:
    read = parse_matrix("\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t0-7\t0\t\tN/A\n")
    assert read.topology.links == ((Link(LinkKind.SELF),),)
    assert (read.topology.sockets, read.topology.nvswitch) == ((0,), False)


@pytest.mark.parametrize(
    ("old", "new", "line", "column", "says"),
    [
        ("GPU0\t X \tNV2", "GPU0\t X \tFOO", 2, 10, "unknown link 'FOO' between GPU0 and GPU1"),
        ("PIX\t0-7", "PIXEL\t0-7", 2, 14, "unknown link 'PIXEL'"),
        ("GPU1\tNV2", "GPU1\tNV", 3, 6, "unknown link 'NV'"),
        ("GPU1\tNV2", "GPU1\tNV1", 3, 6, "GPU1 to GPU0 is NV1, but GPU0 to GPU1 is NV2 in line 2"),
        ("GPU1\tNV2", "GPU1\tSYS", 3, 6, "GPU1 to GPU0 is SYS, but GPU0 to GPU1 is NV2 in line 2"),
        ("GPU0\t X \tNV2", "GPU0\t X \tX", 2, 10, "X stands for a GPU and itself"),
        ("NV2\t X \tSYS", "NV2\tNV2\tSYS", 3, 10, "GPU1 stands to itself as X, not NV2"),
        ("SYS\t8-15\t1", "SYS\t\t", 3, 18, "GPU1 has no socket"),
        ("SYS\t8-15\t1", "SYS\tN/A\tN/A", 3, 18, "GPU1 has no socket"),
        ("SYS\t8-15\t1", "SYS", 3, 17, "GPU1 has no socket"),
        ("\tNV2\t X \tSYS\t8-15\t1", "\tNV2", 3, 9, "the row ends before the link between GPU1 and GPU1"),
        ("GPU1\tNV2", "GPU0\tNV2", 3, 1, "GPU0 has a second row"),
        ("GPU1\tNV2", "GPU7\tNV2", 3, 1, "GPU7 is not named in line 1"),
        ("GPU1\tNV2", "GPUX\tNV2", 5, 1, "GPU1 has no row: the text is cut off"),
        ("\tGPU0\tGPU1\tNIC0", "\tA\tB\tC", 1, 1, "no line names the GPUs"),
    ],
)
def test_what_is_refused_and_where(old: str, new: str, line: int, column: int, says: str) -> None:
    assert old in PLAIN
    with pytest.raises(TopologyTextError) as refused:
        parse_matrix(PLAIN.replace(old, new))
    assert (refused.value.line, refused.value.column) == (line, column)
    assert says in refused.value.problem
    assert str(refused.value) == f"line {line}, column {column}: {refused.value.problem}"


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_a_sample_that_lost_an_affinity_a_word_or_its_symmetry_is_refused(data: Path, name: str) -> None:
    text = sample(data, name)
    lines = text.splitlines()
    row = next(line for line in lines if line.startswith("GPU0"))
    place = lines.index(row) + 1
    cells = row.split()
    last = parse_matrix(text).names[-1] if "partial" not in name else "GPU3"
    column = row.index(cells[2]) + 1
    with pytest.raises(TopologyTextError) as unknown:
        parse_matrix(text.replace(row, row.replace(cells[2], "ABC", 1)))
    assert (unknown.value.line, unknown.value.column) == (place, column)
    with pytest.raises(TopologyTextError, match=r"but GPU0 to GPU1 is NV40 in line"):
        parse_matrix(text.replace(row, row.replace(cells[2], "NV40", 1)))
    bare = next(line for line in lines if line.startswith(last))
    links = len([cell for cell in lines[0].replace("GPU", " GPU").replace("mlx", " mlx").split() if cell[-1].isdigit()])
    cut = " ".join(bare.split()[: links + 1])
    with pytest.raises(TopologyTextError, match=f"{last} has no socket"):
        parse_matrix(text.replace(bare, cut))


def test_nothing_at_all() -> None:
    with pytest.raises(TopologyTextError, match="line 1, column 1: no line names the GPUs"):
        parse_matrix("")
    with pytest.raises(TopologyTextError, match="line 1, column 1: there is no row"):
        parse_matrix("\tGPU0\tGPU1\tCPU Affinity\n")


@given(st.lists(st.tuples(st.integers(0, len(PLAIN)), st.text("GPUX NV2\t\n0-9,SYSI", max_size=4)), max_size=6))
def test_a_damaged_text_is_read_or_refused_with_its_place(damages: list[tuple[int, str]]) -> None:
    text = PLAIN
    for place, put in damages:
        text = text[:place] + put + text[place + 2 :]
    said = (1, 1)
    try:
        read = parse_matrix(text)
    except TopologyTextError as refused:
        said = (refused.line, refused.column)
    else:
        assert len(read.topology.links) == len(read.names) == read.topology.gpus
    assert (1, 1) <= said <= (len(text.splitlines()) + 1, len(text) + 1)
