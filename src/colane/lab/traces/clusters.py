"""Clusters to simulate: a YAML file of node groups, a node list of Alibaba's, or a preset that ships with Colane."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from colane.lab.traces import cells, costs, node_events
from colane.lab.traces.layout import HEAD_CHARS, Header
from colane.lab.traces.node_events import NodeEvent
from colane.lab.traces.sheet import read_sheet
from colane.model import topologies
from colane.model.hardware import CPU_DEVICE_TYPE, DEFAULT_POOL, Gpu, Node, Topology
from colane.model.nearest import did_you_mean
from colane.model.quantities import parse_bandwidth_bytes_per_s, parse_count, parse_number, parse_size_bytes
from colane.model.words import count
from colane.settings.input_file import InputFileError, read_text
from colane.settings.topology_file import read_topology

PRESETS_DIR = Path(__file__).parent / "presets"
TOPOLOGIES = frozenset({"none", *topologies.NAMES})
"""Names of topologies; any other value is a file, relative to the cluster file."""

SOCKETS_DEFAULT = 1


class NodeExtras(NamedTuple):
    """What a node has beyond what every live agent reports; None is unknown."""

    group: str  # group of the file it comes from
    sockets: int = SOCKETS_DEFAULT  # its sockets; GPUs and cores are dealt out evenly, in order
    memory_bandwidth_bytes_per_s: float | None = None  # of the whole node
    network_bytes_per_s: float | None = None  # to other nodes
    # name of `TOPOLOGIES` or path of a matrix as `nvidia-smi topo -m` prints it; `none` is unknown
    topology: str = "none"


@dataclass(frozen=True, slots=True)
class Cluster:
    """Machines to simulate."""

    name: str  # for people and reports
    nodes: tuple[Node, ...]  # by group, then number
    extras: Mapping[str, NodeExtras] = field(default_factory=dict)  # by node name
    source: str = ""  # file it was read from
    # what living takes besides steps, as far as it is said: fields of `Costs`, by node name
    costs: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    events: tuple[NodeEvent, ...] = ()  # what happens to its nodes, by time

    @property
    def gpus(self) -> int:
        """Number of its GPUs."""
        return sum(len(node.gpus) for node in self.nodes)

    @property
    def pools(self) -> frozenset[str]:
        """Pools its nodes are in."""
        return frozenset(node.pool for node in self.nodes)

    @property
    def gpus_max(self) -> dict[str, int]:
        """GPUs of the largest node, by pool."""
        most: dict[str, int] = {}
        for node in self.nodes:
            most[node.pool] = max(most.get(node.pool, 0), len(node.gpus))
        return most


def load(name: str | Path) -> Cluster:
    """Return a preset by name, or the cluster of a YAML file or of a node list (`.csv`, `.csv.gz`).

    Raises InputFileError: no such preset or file, or the file is not right: the message names the key and the fix.
    """
    path = Path(name)
    if str(name) in preset_names():
        return read(PRESETS_DIR / f"{name}.yaml")
    if path.name.endswith((".csv", ".csv.gz")):
        nodes = read_node_list(path)  # its groups are the types of GPU
        extras = {node.name: NodeExtras(node.gpus[0].type if node.gpus else CPU_DEVICE_TYPE) for node in nodes}
        return Cluster(path.name.partition(".")[0], nodes, extras, str(path))
    if path.suffix in {".yaml", ".yml"} or path.exists():
        return read(path)
    said = f"no such cluster{did_you_mean(str(name), preset_names())}; presets: {', '.join(preset_names())}"
    form = "or a node list, or a .yaml file such as: groups: [{count: 4, gpus: 8, gpu_type: V100, gpu_memory: 16GB}]"
    raise InputFileError(path, f"{said}; {form}")


def preset_names() -> tuple[str, ...]:
    """Names of the clusters that ship with Colane, sorted."""
    return tuple(sorted(path.stem for path in PRESETS_DIR.glob("*.yaml")))


def read(path: Path) -> Cluster:
    """Read a cluster file.

    Raises InputFileError: it cannot be read, is not YAML, or a key is unknown, missing or wrong.
    """
    try:
        document = yaml.safe_load(read_text(path))
    except yaml.YAMLError as error:
        problem, mark = getattr(error, "problem", None), getattr(error, "problem_mark", None)
        said, line = str(problem or error).partition("\n")[0], None if mark is None else mark.line + 1
        raise InputFileError(path, f"is not YAML ({said})", line=line) from error
    keys = _mapping(path, document, "the file", {"name", "costs", "groups", "events"})
    groups = keys.get("groups")
    if not isinstance(groups, list) or not groups:
        raise InputFileError(path, "expected a list of at least one group of nodes", column="groups")
    name = _value(path, keys, "name", _text, path.stem)
    everywhere = _costs(path, keys, "costs")
    made = [_group(path, number, group, everywhere) for number, group in enumerate(groups)]
    return _cluster(path, name, made, keys.get("events", []))


def _costs(path: Path, keys: Mapping[str, Any], where: str) -> dict[str, float]:
    """What is said of costs, by field of `Costs`."""
    said = _mapping(path, keys.get("costs", {}), where, costs.KEYS)
    return {costs.KEYS[key][0]: _value(path, said, key, costs.KEYS[key][1], REQUIRED, where) for key in said}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Alike nodes; the names are the keys of the file."""

    name: str
    count: int
    gpus: int
    gpu_type: str
    gpu_memory: int
    sockets: int
    cores: int
    host_memory: int
    memory_bandwidth: float | None
    network: float | None
    topology: str
    pool: str
    others: float
    costs: Mapping[str, float]
    links: Topology | None = None


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"expected text, got {value!r}: put it in quotes" if value is not None else "is empty")
    return value.strip()


REQUIRED = object()
KEYS: Mapping[str, tuple[Callable[[Any], Any], Any]] = {
    "name": (_text, None),
    "count": (partial(parse_count, least=1), 1),
    "gpus": (parse_count, REQUIRED),
    "gpu_type": (_text, None),
    "gpu_memory": (parse_size_bytes, None),
    "sockets": (partial(parse_count, least=1), SOCKETS_DEFAULT),
    "cores": (parse_count, 0),
    "host_memory": (parse_size_bytes, 0),
    "memory_bandwidth": (parse_bandwidth_bytes_per_s, None),
    "network": (parse_bandwidth_bytes_per_s, None),
    "topology": (_text, "none"),
    "pool": (_text, DEFAULT_POOL),
    "others": (partial(parse_number, most=1.0), 0.0),
}
"""Keys of a group, each with its parser and its default. `docs/reference/traces.md` explains them."""


def _group(path: Path, number: int, raw: object, everywhere: Mapping[str, float]) -> _Group:
    where = f"groups[{number}]"
    keys = _mapping(path, raw, where, {*KEYS, "costs"})
    values = {key: _value(path, keys, key, parse, default, where) for key, (parse, default) in KEYS.items()}
    values["name"] = values["name"] or f"group{number}"
    for key, example in (("gpu_type", "V100"), ("gpu_memory", "16GB")):
        if values["gpus"] and values[key] is None:
            raise InputFileError(
                path, f"is missing: nodes with GPUs need it, such as {example}", column=f"{where}.{key}"
            )
    values["topology"] = _topology(path, values["topology"], where)
    values["links"] = _links(path, values, where)
    values["gpu_type"], values["gpu_memory"] = values["gpu_type"] or "", values["gpu_memory"] or 0
    return _Group(**values, costs={**everywhere, **_costs(path, keys, f"{where}.costs")})


def _topology(path: Path, name: str, where: str) -> str:
    if name in TOPOLOGIES:
        return name
    file = path.parent / name
    if file.is_file():
        return str(file)
    known = ", ".join(sorted(TOPOLOGIES))
    message = f"no topology or file {name!r}{did_you_mean(name, TOPOLOGIES)}; known: {known}"
    raise InputFileError(path, message, column=f"{where}.topology")


def _links(path: Path, values: Mapping[str, Any], where: str) -> Topology | None:
    """The topology itself; it must have as many GPUs as the nodes."""
    name, gpus = values["topology"], values["gpus"]
    if name == "none" or not gpus:
        return None
    try:
        if name in topologies.NAMES:
            return topologies.make(name, gpus, values["sockets"])
    except topologies.UnknownTopologyError as error:
        raise InputFileError(path, str(error), column=f"{where}.topology") from error
    topology = read_topology(Path(name)).topology
    if topology.gpus != gpus:
        message = f"{name} has {count(topology.gpus, 'GPU')}, the nodes have {gpus}"
        raise InputFileError(path, message, column=f"{where}.topology")
    return topology


def _mapping(path: Path, raw: object, where: str, known: Mapping[str, object] | set[str]) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise InputFileError(path, f"expected keys and values in {where}, got {raw!r}")
    for key in raw:
        if key not in known:
            hint = did_you_mean(str(key), known) or f"; known: {', '.join(sorted(known))}"
            raise InputFileError(path, f"unknown key in {where}{hint}", column=str(key))
    return raw


def _value(
    path: Path, keys: Mapping[str, Any], key: str, parse: Callable[[Any], Any], default: object, where: str = ""
) -> Any:  # noqa: ANN401 - as the parser gives it
    column = f"{where}.{key}" if where else key
    if key not in keys:
        if default is REQUIRED:
            raise InputFileError(path, "is missing", column=column)
        return default
    try:
        return parse(keys[key])
    except ValueError as error:
        raise InputFileError(path, str(error), column=column) from error


def _cluster(path: Path, name: str, groups: list[_Group], events: object) -> Cluster:
    names = [group.name for group in groups]
    twice = sorted({one for one in names if names.count(one) > 1})
    if twice:
        raise InputFileError(path, f"two groups are named {twice[0]!r}: node names would clash", column="groups")
    nodes: list[Node] = []
    extras: dict[str, NodeExtras] = {}
    said: dict[str, Mapping[str, float]] = {}
    of_groups: dict[str, list[str]] = {}
    for group in groups:
        made = _nodes(group)
        nodes += made
        of_groups[group.name] = own = [node.name for node in made]
        more = NodeExtras(group.name, group.sockets, group.memory_bandwidth, group.network, group.topology)
        extras |= dict.fromkeys(own, more)
        said |= dict.fromkeys(own if group.costs else (), group.costs)
    return Cluster(name, tuple(nodes), extras, str(path), said, node_events.parse(path, events, of_groups))


def _nodes(group: _Group) -> list[Node]:
    cores = tuple(range(group.cores))
    near = [
        cores[socket * len(cores) // group.sockets : (socket + 1) * len(cores) // group.sockets]
        for socket in range(group.sockets)
    ]
    digits = len(str(group.count - 1))
    names = [f"{group.name}-{number:0{digits}}" for number in range(group.count)]
    return [
        Node(
            name=name,
            gpus=_gpus(group, name, near),
            cores=cores,
            host_memory_bytes=group.host_memory,
            host_bandwidth_bytes_per_s=round(group.memory_bandwidth or 0.0),
            pool=group.pool,
            topology=group.links,
        )
        for name in names
    ]


def _gpus(group: _Group, node: str, near: list[tuple[int, ...]]) -> tuple[Gpu, ...]:
    dealt = (index * group.sockets // group.gpus for index in range(group.gpus))
    sockets = tuple(dealt) if group.links is None else group.links.sockets
    return tuple(
        Gpu(
            index=index, uuid=f"{node}-{index}", type=group.gpu_type, memory_bytes=group.gpu_memory,
            socket=socket, cores=near[socket] if socket < len(near) else (), others_ratio=group.others,
        )
        for index, socket in enumerate(sockets)
    )  # fmt: skip


LAYOUT: Final = Header(read=("sn", "cpu_milli", "memory_mib", "gpu", "model"))
GB: Final = 10**9
MIB: Final = 1 << 20
MILLI: Final = 1000
GPU_MEMORY_BYTES: Final[Mapping[str, int]] = {
    "P100": 16 * GB, "T4": 16 * GB, "V100M16": 16 * GB, "V100M32": 32 * GB, "A10": 24 * GB,
    "G1": 16 * GB, "G2": 16 * GB, "G3": 16 * GB,
}  # fmt: skip
"""Of each GPU, by the type the lists name."""


def read_node_list(path: Path) -> tuple[Node, ...]:
    """Read a node list of Alibaba's trace of 2023, in its order (Weng et al., ATC 2023), CC-BY-4.0.

    `openb_node_list_*.csv` of github.com/alibaba/clusterdata, `cluster-trace-gpu-v2023`: one node a row. How much
    memory a GPU has is that of the product; where its name is not disclosed (G1, G2, G3), the least of the others'.

    Raises InputFileError: it cannot be read, is no such list (the column to blame is named), or a row is bad.
    """
    text = read_text(path)
    head = text[:HEAD_CHARS]
    if not LAYOUT.fits(head):
        misfit = LAYOUT.misfit(head)
        columns = ",".join(LAYOUT.columns)
        if misfit is None:
            raise InputFileError(
                path, f"is no cluster: expected a .yaml file, or a node list with the columns {columns}"
            )
        raise InputFileError(path, f"{misfit.message}: a node list has {columns}", line=1, column=misfit.column)
    sheet = read_sheet(path, text)
    names = sheet.unique_names("sn")
    cores, memory_mib = sheet.column("cpu_milli", cells.count), sheet.column("memory_mib", cells.count)
    gpus, models = sheet.column("gpu", cells.count), sheet.column("model", _model)
    if not names:
        raise InputFileError(path, "holds no nodes")
    for row, many in enumerate(gpus):
        if many and not models[row]:
            sheet.fail(row, f"is missing, though the node has {many} GPUs", "model")
    return tuple(
        Node(
            name=names[row],
            gpus=tuple(
                Gpu(index=i, uuid=f"{names[row]}-{i}", type=models[row], memory_bytes=GPU_MEMORY_BYTES[models[row]])
                for i in range(gpus[row])
            ),
            cores=tuple(range(cores[row] // MILLI)),
            host_memory_bytes=memory_mib[row] * MIB,
        )
        for row in range(len(sheet))
    )


def _model(text: str) -> str:
    if text and text not in GPU_MEMORY_BYTES:
        raise ValueError(f"unknown GPU type {text!r}{did_you_mean(text, GPU_MEMORY_BYTES)}")
    return text
