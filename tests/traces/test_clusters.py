"""Presets are what their papers say; a bad cluster file is refused with the key and the fix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from colane.lab.traces.check import split
from colane.lab.traces.clusters import load, preset_names
from colane.lab.traces.read import read
from colane.model.hardware import Link, LinkKind
from colane.settings.input_file import InputFileError

File = Callable[..., Path]

SHAPES = {
    "paper-a": (2, 2), "paper-b": (1, 1), "minsky": (1, 4), "dgx1": (1, 8), "dgx-a100": (1, 8), "dgx2": (1, 16),
    "pcie-8x2socket": (1, 8), "paper-d": (80, 400),
    "paper-e": (1, 6), "philly": (352, 2816), "gavel-36": (9, 36), "v100-36": (9, 36),
    "pollux": (16, 64),
}  # fmt: skip


def test_every_preset_has_its_shape() -> None:
    assert set(preset_names()) == set(SHAPES)
    for name, shape in SHAPES.items():
        cluster = load(name)
        assert cluster.name == name
        assert (len(cluster.nodes), cluster.gpus) == shape
        assert set(cluster.extras) == {node.name for node in cluster.nodes}


@pytest.mark.parametrize("name", [name for name in SHAPES if name not in {"philly", "gavel-36", "v100-36", "pollux"}])
def test_nodes_of_several_gpus_know_their_links(name: str) -> None:
    for node in load(name).nodes:
        several = len(node.gpus) > 1
        assert (node.topology is not None) == several
        if node.topology is not None:
            assert node.topology.sockets == tuple(gpu.socket for gpu in node.gpus)


def test_paper_d() -> None:
    nodes = load("paper-d").nodes
    assert Counter(len(node.gpus) for node in nodes) == {4: 60, 8: 20}
    assert {len(node.cores) for node in nodes} == {28}


def test_gavel_has_three_types() -> None:
    types = Counter(gpu.type for node in load("gavel-36").nodes for gpu in node.gpus)
    assert types == {"v100": 12, "p100": 12, "k80": 12}


def test_philly_is_the_published_node_table(data: Path) -> None:
    rows = (data / "traces" / "philly_vc_nodes.csv").read_text().split()[2:]
    published = {pool: int(nodes) for pool, nodes in (row.split(",") for row in rows)}
    assert Counter(node.pool for node in load("philly").nodes) == published


def test_gpus_and_cores_are_dealt_out_to_sockets() -> None:
    node = load("minsky").nodes[0]
    assert [gpu.socket for gpu in node.gpus] == [0, 0, 1, 1]
    assert [gpu.cores for gpu in node.gpus][1:3] == [tuple(range(8)), tuple(range(8, 16))]
    assert node.cores == tuple(range(16))


FILE = """
name: mine
groups:
  - name: big
    count: 12
    gpus: 2
    gpu_type: A100
    gpu_memory: 40GB
    sockets: 2
    cores: 6
    host_memory: 1TiB
    memory_bandwidth: 100GB/s
    network: 10Gb/s
    topology: links.txt
    pool: lab
  - {gpus: 0, cores: 4}
"""


def test_costs_are_those_of_the_file_and_a_group_may_have_others(file: File) -> None:
    text = """
costs: {launch: 20s, restart: 1m, to_host: 12GB/s}
groups:
  - {name: old, count: 2, gpus: 1, gpu_type: V100, gpu_memory: 16GB}
  - {name: new, gpus: 1, gpu_type: A100, gpu_memory: 40GB, costs: {to_host: 20GB/s, park: 250ms, switch: 0.001}}
"""
    everywhere = {"launch_s": 20.0, "restart_s": 60.0, "to_host_bytes_per_s": 12e9}
    new = {**everywhere, "to_host_bytes_per_s": 20e9, "park_s": 0.25, "switch_s": 0.001}
    found = load(file(text, "mine.yaml")).costs
    assert found == {"old-0": everywhere, "old-1": everywhere, "new-0": new}
    assert load("dgx1").costs == {}


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        ("{lanch: 20s}", r"'lanch': unknown key in costs \(did you mean launch"),
        ("{launch: soon}", r"'costs\.launch': must be a duration such as"),
        ("{stop: -1}", r"'costs\.stop': must be a duration"),
        ("{to_host: 0}", r"'costs\.to_host': must be above 0 bytes per second, got 0"),
        ("20s", "expected keys and values in costs, got '20s'"),
        ("", "expected keys and values in costs, got None"),
    ],
)
def test_bad_costs_are_refused(file: File, costs: str, message: str) -> None:
    text = f"costs: {costs}\ngroups: [{{gpus: 1, gpu_type: V100, gpu_memory: 16GB}}]\n"
    with pytest.raises(InputFileError, match=message):
        load(file(text, "mine.yaml"))


MATRIX = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV2\t0-2\nGPU1\tNV2\t X \t3-5\n"


def test_a_file_says_all_there_is(file: File) -> None:
    matrix = file(MATRIX, "links.txt")
    cluster = load(file(FILE, "mine.yaml"))
    assert [node.name for node in cluster.nodes][::11] == ["big-00", "big-11"]
    node, extras = cluster.nodes[3], cluster.extras["big-03"]
    assert (node.pool, node.host_memory_bytes, node.gpus[1].memory_bytes) == ("lab", 1 << 40, 40 * 10**9)
    assert (extras.memory_bandwidth_bytes_per_s, extras.network_bytes_per_s) == (1e11, 1.25e9)
    assert (extras.sockets, extras.topology) == (2, str(matrix))
    assert node.topology is not None
    assert node.topology.links[0][1] == Link(LinkKind.NVLINK, 2)
    assert tuple(gpu.socket for gpu in node.gpus) == node.topology.sockets == (0, 1)
    assert (cluster.nodes[-1].name, cluster.nodes[-1].gpus, cluster.nodes[-1].pool) == ("group1-0", (), "default")
    assert cluster.pools == {"lab", "default"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("gpu_type: A100", "gpu_typ: A100", r"column 'gpu_typ': unknown key in groups\[0\] \(did you mean gpu_type"),
        ("gpus: 2", "", r"column 'groups\[0\]\.gpus': is missing"),
        ("gpus: 2", "gpus: two", r"'groups\[0\]\.gpus': must be a whole number from 0 up, got 'two'"),
        ("count: 12", "count: 0", "must be a whole number from 1 up, got 0"),
        ("gpu_memory: 40GB", "gpu_memory: 40", None),
        ("gpu_memory: 40GB", "gpu_memory: 40 gigs", "must be a size such as 2GB, 512MiB or 2000000000, got '40 gigs'"),
        ("gpu_memory: 40GB", "", "gpu_memory': is missing: nodes with GPUs need it, such as 16GB"),
        ("network: 10Gb/s", "network: fast", "must be bytes per second such as 20GB/s, or bits such as 10Gb/s"),
        ("pool: lab", "pool: 103959", "expected text, got 103959: put it in quotes"),
        (
            "topology: links.txt",
            "topology: minskey",
            r"no topology or file 'minskey' \(did you mean minsky\?\); known: ",
        ),
        ("topology: links.txt", "topology: minsky", "minsky is a machine of 4 GPUs, the nodes have 2"),
        ("gpus: 2", "gpus: 4", r"links\.txt has 2 GPUs, the nodes have 4"),
        ("groups:", "group:", r"unknown key in the file \(did you mean groups\?\)"),
        ("  - {gpus: 0, cores: 4}", "  - {gpus: 0, name: big}", "two groups are named 'big'"),
        ("  - {gpus: 0, cores: 4}", "  - nodes", r"expected keys and values in groups\[1\], got 'nodes'"),
        ("name: mine", "name: [", r"mine\.yaml:\d+: is not YAML"),
    ],
)
def test_a_bad_file_is_refused_with_the_key_and_the_fix(file: File, old: str, new: str, message: str | None) -> None:
    file(MATRIX, "links.txt")
    assert old in FILE
    path = file(FILE.replace(old, new), "mine.yaml")
    if message is None:
        assert load(path).nodes[0].gpus[0].memory_bytes == 40
        return
    with pytest.raises(InputFileError, match=message):
        load(path)


@pytest.mark.parametrize("text", ["", "groups: []", "groups: 3"])
def test_a_file_without_groups(file: File, text: str) -> None:
    with pytest.raises(InputFileError, match=r"group|keys and values"):
        load(file(text, "mine.yaml"))


def test_an_unknown_preset_names_the_near_ones_and_shows_a_file(file: File) -> None:
    with pytest.raises(
        InputFileError, match=r"phily: no such cluster \(did you mean philly\?\); presets: dgx-a100, dgx1"
    ) as told:
        load("phily")
    _, _, shown = str(told.value).partition(" such as: ")
    assert [len(node.gpus) for node in load(file(shown, "mine.yaml")).nodes] == [8] * 4
    with pytest.raises(InputFileError, match=r"absent\.yaml: cannot be read"):
        load("absent.yaml")


NODE_LIST = """sn,cpu_milli,memory_mib,gpu,model
n0,64000,262144,2,P100
n1,32000,262144,0,
n2,96000,393216,8,V100M32
"""


def test_a_node_list_is_a_cluster(file: File) -> None:
    cluster = load(file(NODE_LIST, "openb_node_list.csv"))
    assert (cluster.name, cluster.gpus) == ("openb_node_list", 10)
    assert [(len(node.gpus), len(node.cores), node.host_memory_bytes >> 30) for node in cluster.nodes] == [
        (2, 64, 256), (0, 32, 256), (8, 96, 384),
    ]  # fmt: skip
    assert {(gpu.type, gpu.memory_bytes) for node in cluster.nodes for gpu in node.gpus} == {
        ("P100", 16 * 10**9), ("V100M32", 32 * 10**9),
    }  # fmt: skip
    assert [cluster.extras[node.name].group for node in cluster.nodes] == ["P100", "cpu", "V100M32"]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            "memory_mib",
            "memory_gib",
            r":1: column 'memory_mib': is missing \(is it memory_gib\?\): a node list has",
        ),
        (",model", ",model,model", ":1: column 'model': is there twice"),
        ("n1,", "n0,", ":3: column 'sn': id 'n0' stands in line 2 already"),
        ("V100M32", "V100M64", ":4: column 'model': unknown GPU type 'V100M64' \\(did you mean V100M"),
        ("2,P100", "2,", ":2: column 'model': is missing, though the node has 2 GPUs"),
        ("64000", "many", ":2: column 'cpu_milli': expected a number"),
        ("8,V100M32\n", "", ":4: has 4 cells, expected 5"),
        (NODE_LIST, "a,b\n1,2\n", "is no cluster: expected a .yaml file, or a node list"),
        (NODE_LIST, "sn,cpu_milli,memory_mib,gpu,model\n", "holds no nodes"),
    ],
)
def test_a_bad_node_list_is_refused_with_its_row(file: File, before: str, after: str, message: str) -> None:
    with pytest.raises(InputFileError, match=message):
        load(file(NODE_LIST.replace(before, after), "nodes.csv"))


def test_the_published_node_list_holds_its_pods(data: Path) -> None:
    cluster = load(data / "traces" / "openb_node_list_gpu_node.csv.gz")
    types = Counter(gpu.type for node in cluster.nodes for gpu in node.gpus)
    assert (len(cluster.nodes), cluster.gpus, types["G2"]) == (1213, 6212, 549 * 8)
    held, rejected = split(read(data / "traces" / "openb_pod_list_default.csv.gz"), cluster)
    assert (len(held), len(rejected)) == (6203, 0)
