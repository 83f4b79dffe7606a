"""How the GPUs of a machine are connected, from a file: the matrix of `nvidia-smi topo -m`, or JSON or YAML of ours.

Ours is what `colane topo --json` prints. Written by hand, a link may be its word alone:

    sockets: [0, 0, 1, 1]
    links:
      - [X, NV2, SYS, SYS]
      - [NV2, X, SYS, SYS]
      - [SYS, SYS, X, NV2]
      - [SYS, SYS, NV2, X]
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from typing import TypeVar

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from colane.model.hardware import Link, LinkKind, Topology
from colane.model.nearest import did_you_mean
from colane.model.quantities import parse_bandwidth_bytes_per_s, parse_count, parse_number
from colane.model.topo_text import ReadTopology, TopologyTextError, is_switched, parse_matrix, word
from colane.model.topologies import PRESETS
from colane.model.words import count
from colane.settings.input_file import InputFileError, read_text

T = TypeVar("T")

GPUS_MAX = 4096
_KEYS = ("links", "sockets", "switches", "nvswitch")
_OURS = re.compile(r"^\s*(\{|[\"']?(links|sockets|switches|nvswitch)[\"']?\s*:)", re.MULTILINE)
_PLAIN = re.compile(r"[0-9.]+(e[+-]?[0-9]+)?", re.IGNORECASE)
_NVLINK = re.compile(r"NV([1-9][0-9]{0,2})")
_KINDS = {kind.value: kind for kind in LinkKind} | {"SOC": LinkKind.SYS}


def named_topology(source: str) -> ReadTopology:
    """Return the machine of a preset's name, or of a topology file; `-` reads it from a pipe.

    Raises InputFileError: there is no such file or preset, or the file is not right.
    """
    if source in PRESETS:
        return ReadTopology(PRESETS[source](), ())
    path = Path("/dev/stdin" if source == "-" else source)
    try:
        return read_topology(path)
    except InputFileError as error:
        if path.exists():
            raise
        known = f"{did_you_mean(source, PRESETS)}; presets are {', '.join(sorted(PRESETS))}"
        raise InputFileError(path, f"{error.message}{known}") from error


def read_topology(path: Path) -> ReadTopology:
    """Read a topology file of either form.

    Raises InputFileError: it cannot be read, or is not right: names line, column and the fix.
    """
    text = read_text(path)
    try:
        return _parse(text) if _OURS.search(text) else parse_matrix(text)
    except TopologyTextError as error:
        raise InputFileError(path, f"column {error.column}: {error.problem}", line=error.line) from error


def _parse(text: str) -> ReadTopology:
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise TopologyTextError(f"is not JSON or YAML: {getattr(error, 'problem', error)}", *place) from error
    if root is None:
        raise TopologyTextError("the file is empty", 1, 1)
    keys = _keys(root)
    sockets = _list(keys["sockets"], "sockets", _socket)
    links = _links(keys["links"], len(sockets))
    switches = _list(keys["switches"], "switches", _switch, len(sockets), or_none=True) if "switches" in keys else ()
    nvswitch = _flag(keys["nvswitch"]) if "nvswitch" in keys else is_switched(links)
    names = tuple(f"GPU{number}" for number in range(len(sockets)))
    return ReadTopology(Topology(links, sockets, switches, nvswitch), names)


def _refuse(node: Node, problem: str) -> TopologyTextError:
    return TopologyTextError(problem, node.start_mark.line + 1, node.start_mark.column + 1)


def _keys(root: Node) -> dict[str, Node]:
    if not isinstance(root, MappingNode):
        raise _refuse(root, f"expected the keys {', '.join(_KEYS)}")
    keys: dict[str, Node] = {}
    for key, value in root.value:
        name = str(key.value)
        if name not in _KEYS or name in keys:
            what = "stands here twice" if name in keys else f"is no key{did_you_mean(name, _KEYS)}"
            raise _refuse(key, f"{name!r} {what}; known are {', '.join(_KEYS)}")
        keys[name] = value
    for name in ("links", "sockets"):
        if name not in keys:
            raise _refuse(root, f"{name} is missing: one {'row' if name == 'links' else 'socket'} for each GPU")
    return keys


def _list(
    node: Node, name: str, read: Callable[[Node], T], length: int | None = None, *, or_none: bool = False
) -> tuple[T, ...]:
    if not isinstance(node, SequenceNode):
        raise _refuse(node, f"{name} must be a list with one entry for each GPU")
    found = len(node.value)
    if (found == 0 and not or_none) or found > GPUS_MAX:
        raise _refuse(node, f"{name} has {found} entries: expected 1 to {GPUS_MAX}")
    if length is not None and found != length and not (or_none and found == 0):
        raise _refuse(
            node, f"{name} has {count(found, 'entry')} for {count(length, 'GPU')} (one for each of the sockets)"
        )
    return tuple(read(each) for each in node.value)


def _links(node: Node, gpus: int) -> tuple[tuple[Link, ...], ...]:
    rows = _list(node, "links", lambda row: row, gpus)
    cells: list[Sequence[Node]] = [_list(row, f"links[{a}]", lambda cell: cell, gpus) for a, row in enumerate(rows)]
    links = tuple(tuple(_link(cell) for cell in row) for row in cells)
    for a in range(gpus):
        if links[a][a].kind is not LinkKind.SELF:
            raise _refuse(cells[a][a], f"links[{a}][{a}] must be X, got {word(links[a][a])}")
    for b, a in combinations(range(gpus), 2):
        if links[a][b].kind is LinkKind.SELF:
            raise _refuse(cells[a][b], f"links[{a}][{b}] is X, which stands for a GPU and itself")
        if links[a][b][:2] != links[b][a][:2]:
            other = f"links[{b}][{a}] is {word(links[b][a])}: the two must be the same"
            raise _refuse(cells[a][b], f"links[{a}][{b}] is {word(links[a][b])}, but {other}")
    return links


def _link(node: Node) -> Link:
    """Read `NV2`, or `[NV, 2, bytes per second]`."""
    if isinstance(node, ScalarNode):
        found = _NVLINK.fullmatch(node.value)
        return Link(LinkKind.NVLINK, int(found[1])) if found else Link(_kind(node))
    if not isinstance(node, SequenceNode) or not 1 <= len(node.value) <= 3:
        raise _refuse(node, "expected a link as NV2, or as [NV, 2, bytes per second]")
    kind = _kind(node.value[0], bare=True)
    lanes = _whole(node.value[1], 0, 1000) if len(node.value) > 1 else 0
    if (kind is LinkKind.NVLINK) != (lanes > 0):
        raise _refuse(node, f"{kind.value} has {lanes} NVLinks: NV needs at least 1, others have 0")
    return Link(kind, lanes, _bandwidth(node.value[2]) if len(node.value) > 2 else 0.0)


def _kind(node: Node, *, bare: bool = False) -> LinkKind:
    kind = _KINDS.get(node.value) if isinstance(node, ScalarNode) else None
    if kind is None or (kind is LinkKind.NVLINK and not bare):
        raise _refuse(
            node, f"unknown link {_shown(node)}; known are X, NV1 (NV2, ...), PIX, PXB, PHB, NODE, SYS or SOC"
        )
    return kind


def _socket(node: Node) -> int:
    if isinstance(node, ScalarNode) and node.value in {"", "null", "~"}:
        raise _refuse(node, "a GPU has no socket here: write the number of its socket (NUMA node)")
    return _whole(node, 0, 65_536)


def _switch(node: Node) -> int:
    return _whole(node, -1, 65_536)


def _whole(node: Node, least: int, most: int) -> int:
    try:
        return parse_count(_given(node), least, most)
    except ValueError as error:
        raise _refuse(node, str(error)) from error


def _bandwidth(node: Node) -> float:
    """Bytes per second, 0 where unknown; a bare number may be written as Python writes large ones."""
    given = _given(node)
    try:
        parse = parse_number if _PLAIN.fullmatch(given) else parse_bandwidth_bytes_per_s
        return parse(given)
    except ValueError as error:
        raise _refuse(node, str(error)) from error


def _flag(node: Node) -> bool:
    if not isinstance(node, ScalarNode) or node.value not in {"true", "false"}:
        raise _refuse(node, f"nvswitch must be true or false, got {_shown(node)}")
    return bool(node.value == "true")


def _given(node: Node) -> str:
    return str(node.value) if isinstance(node, ScalarNode) else "a list or mapping"


def _shown(node: Node) -> str:
    return repr(node.value) if isinstance(node, ScalarNode) else "a list or mapping"
