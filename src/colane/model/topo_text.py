"""Reads what `nvidia-smi topo -m` prints, of any driver, into a `Topology`.

The text is made for people: cells are separated by tabs, blanks or nothing, the affinity of a GPU may be empty, NIC
columns and the legend come and go. So cells are known by their words, never by their width.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

from colane.model.hardware import Link, LinkKind, Topology

NVLINKS_MAX = 18
"""NVLinks of one GPU, at most (Hopper and Blackwell). More in sum towards its peers means a switch between them."""

_CPU, _NUMA = "CPU Affinity", "NUMA Affinity"
_WORDS: Mapping[str, LinkKind] = {kind.value: kind for kind in LinkKind if kind is not LinkKind.NVLINK} | {
    "SOC": LinkKind.SYS  # drivers before 2017
}
_WORD = "X|NV[1-9][0-9]{0,2}|PIX|PXB|PHB|NODE|SYS|SOC"
_CELL = re.compile(rf"\s*({_WORD})(?=\s|$|{_WORD})")
_LAST_CELL = re.compile(rf"\s*({_WORD}|PI|PX|PH|NOD?|SY|SO)(?=\s|$|[0-9])")
"""The last one may run into the affinity behind it, which may cost it its end (`PH0-115`)."""
_ANY = re.compile(r"\s*(\S*)")
_COLOUR = re.compile("\x1b\\[[0-9;]*[A-Za-z]")
_HEADING = re.compile(r"CPU\s+Affinity|NUMA\s+Affinity|GPU\s+NUMA\s+ID")
_DEVICE = re.compile(r"GPU[0-9]+|NIC[0-9]+|mlx[0-9]+_[0-9]+|\S+")
_GPU = re.compile(r"GPU[0-9]+")
_ROW = re.compile(r"\s*(GPU[0-9]+)")
_CORES = re.compile(r"[0-9]{1,6}(-[0-9]{1,6})?(,[0-9]{1,6}(-[0-9]{1,6})?)*")
_WITHIN_SOCKET = frozenset({LinkKind.PIX, LinkKind.PXB, LinkKind.PHB, LinkKind.NODE})


class TopologyTextError(ValueError):
    """The text is no such matrix; says where.

    Attributes:
        line: From 1.
        column: Character of the line, from 1.
        problem: What is wrong, and the fix.
    """

    def __init__(self, problem: str, line: int, column: int) -> None:
        super().__init__(f"line {line}, column {column}: {problem}")
        self.problem, self.line, self.column = problem, line, column


class ReadTopology(NamedTuple):
    """A topology that was read."""

    topology: Topology  # the graph; bandwidths are unknown
    names: tuple[str, ...]  # what the text calls its GPUs
    notes: tuple[str, ...] = ()  # what had to be worked out, for people


@dataclass(frozen=True, slots=True)
class _Header:
    line: int
    devices: tuple[str, ...]
    headings: tuple[tuple[str, int], ...]  # what stands behind the devices, each with its place in the line

    @property
    def gpus(self) -> tuple[str, ...]:
        return tuple(name for name in self.devices if _GPU.fullmatch(name))


class _Field(NamedTuple):
    text: str
    column: int


@dataclass(frozen=True, slots=True)
class _Row:
    name: str
    line: int
    cells: Mapping[str, tuple[Link, int]]  # by device: the way to it, and where that stands
    fields: Mapping[str, _Field]
    behind: int  # where the links end

    def kind(self, device: str) -> LinkKind:
        return self.cells[device][0].kind


def parse_matrix(text: str) -> ReadTopology:
    """Read the whole output, or its matrix alone.

    Raises TopologyTextError: there is no matrix, it is cut off, a link word is unknown, a pair is said to be connected
    in two ways, or a GPU has no socket.
    """
    lines = _COLOUR.sub("", text).splitlines()
    header = _read_header(lines)
    rows = {row.name: row for row in _read_rows(lines, header)}
    _judge_symmetry(rows)
    sockets, notes = _sockets(list(rows.values()))
    missing = [name for name in header.gpus if name not in rows]
    if missing:
        return _completed(header, rows, sockets, missing, len(lines))
    in_order = [rows[name] for name in header.gpus]
    links = tuple(tuple(row.cells[name][0] for name in header.gpus) for row in in_order)
    topology = Topology(links, sockets, _switches(in_order), is_switched(links))
    return ReadTopology(topology, header.gpus, notes)


def is_switched(links: Sequence[Sequence[Link]]) -> bool:
    """Whether NVLinks must go through a switch: all pairs have as many, and a GPU has not that many for itself."""
    pairs = {link for a, row in enumerate(links) for b, link in enumerate(row) if a != b}
    alike = len({(link.kind, link.lanes) for link in pairs}) == 1
    return alike and _needs_switch(pairs.pop(), len(links))


def _needs_switch(link: Link, gpus: int) -> bool:
    return link.kind is LinkKind.NVLINK and link.lanes * (gpus - 1) > NVLINKS_MAX


def _read_header(lines: Sequence[str]) -> _Header:
    for number, line in enumerate(lines, start=1):
        heading = _HEADING.search(line)
        devices = _DEVICE.findall(line[: heading.start()] if heading else line)
        if devices and _GPU.fullmatch(devices[0]) and "X" not in devices:
            found = ((" ".join(each.group().split()), each.start()) for each in _HEADING.finditer(line))
            return _Header(number, tuple(devices), tuple(found))
    raise TopologyTextError("no line names the GPUs (GPU0 GPU1 ...): is this the output of nvidia-smi topo -m?", 1, 1)


def _read_rows(lines: Sequence[str], header: _Header) -> list[_Row]:
    """Read the GPUs' rows; those of NICs say nothing that the GPUs' do not."""
    rows: dict[str, _Row] = {}
    for number, line in enumerate(lines[header.line :], start=header.line + 1):
        if "Legend" in line:
            break
        found = _ROW.match(line)
        if found is None:
            continue
        name = found[1]
        if name not in header.devices or name in rows:
            problem = "has a second row" if name in rows else f"is not named in line {header.line}"
            raise TopologyTextError(f"{name} {problem}", number, found.start(1) + 1)
        rows[name] = _read_row(line, number, found, header)
    if not rows:
        raise TopologyTextError("there is no row of a GPU below this one: the text is cut off", header.line, 1)
    return list(rows.values())


def _read_row(line: str, number: int, name: re.Match[str], header: _Header) -> _Row:
    cells: dict[str, tuple[Link, int]] = {}
    end = name.end()
    for place, device in enumerate(header.devices, start=1):
        pattern = _LAST_CELL if place == len(header.devices) else _CELL
        found = pattern.match(line, end)
        if found is None:
            raise _no_link(line, number, end, name[1], device)
        link = _link(found[1])
        if (link.kind is LinkKind.SELF) != (device == name[1]):
            raise TopologyTextError(_misplaced(found[1], name[1], device), number, found.start(1) + 1)
        cells[device], end = (link, found.start(1) + 1), found.end()
    return _Row(name[1], number, cells, _fields(line, end, header), end + 1)


def _link(word: str) -> Link:
    if word.startswith("NV"):
        return Link(LinkKind.NVLINK, int(word[2:]))
    whole = word if word in _WORDS else next(known for known in _WORDS if known.startswith(word))
    return Link(_WORDS[whole])


def _misplaced(word: str, name: str, device: str) -> str:
    if device == name:
        return f"{name} stands to itself as X, not {word}"
    return f"X stands for a GPU and itself, not for {name} and {device}"


def _no_link(line: str, number: int, end: int, name: str, device: str) -> TopologyTextError:
    found = _ANY.match(line, end)
    word, column = (found[1], found.start(1) + 1) if found else ("", end + 1)
    pair = f"between {name} and {device}"
    if not word:
        return TopologyTextError(f"the row ends before the link {pair}: the text is cut off", number, len(line) + 1)
    known = "X, NV1 (NV2, ...), PIX, PXB, PHB, NODE, SYS or SOC"
    return TopologyTextError(f"unknown link {word!r} {pair}; known are {known}", number, column)


def _fields(line: str, end: int, header: _Header) -> dict[str, _Field]:
    """Read what stands behind the links; with tabs a field may be empty, with blanks its place tells its heading."""
    headings = [name for name, _ in header.headings]
    rest = line[end:]
    if "\t" in rest:
        start = end + len(rest) - len(rest.lstrip(" ").removeprefix("\t"))
        parts = line[start:].split("\t")
        places = [start + sum(len(part) + 1 for part in parts[:i]) for i in range(len(parts))]
        found = [_Field(part.strip(), place + 1) for part, place in zip(parts, places, strict=True)]
        return dict(zip(headings, found, strict=False))
    found = [_Field(word.group(), word.start() + 1) for word in re.finditer(r"\S+", rest)]
    found = [field._replace(column=field.column + end) for field in found]
    if len(found) >= len(headings):
        return dict(zip(headings, found, strict=False))
    return {min(header.headings, key=lambda h: abs(h[1] + 1 - field.column))[0]: field for field in found}


def _judge_symmetry(rows: Mapping[str, _Row]) -> None:
    for row in rows.values():
        for name, (link, column) in row.cells.items():
            other = rows.get(name)
            if other is not None and other.line < row.line and other.cells[row.name][0] != link:
                said = f"{row.name} to {name} is {word(link)}, but {name} to {row.name} is"
                problem = f"{said} {word(other.cells[row.name][0])} in line {other.line}: the two must be the same"
                raise TopologyTextError(problem, row.line, column)


def word(link: Link) -> str:
    """Return a link as `nvidia-smi` writes it: `NV2`, `PIX`."""
    return f"{link.kind.value}{link.lanes}" if link.kind is LinkKind.NVLINK else link.kind.value


def distinct_links(topology: Topology) -> list[Link]:
    """Give the different links of a machine, best first; of those with one word the slowest."""
    slowest: dict[str, Link] = {}
    for a, b in combinations(range(topology.gpus), 2):
        link = topology.links[a][b]
        known = slowest.setdefault(word(link), link)
        slowest[word(link)] = min(known, link, key=lambda one: one.bandwidth_bytes_per_s)
    order = list(LinkKind)
    return sorted(slowest.values(), key=lambda link: (order.index(link.kind), -link.lanes))


def _sockets(rows: Sequence[_Row]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Take the NUMA node where it is told, else number the different sets of near cores."""
    cores = [_cores(row) for row in rows]
    numa = [_numa(row) for row in rows]
    by_cores = {own: node for own, node in zip(cores, numa, strict=True) if own and node is not None}
    if not by_cores and not any(node is not None for node in numa):
        by_cores = {own: rank for rank, own in enumerate(sorted(filter(None, set(cores)), key=_lowest))}
    found = []
    for row, own, node in zip(rows, cores, numa, strict=True):
        socket = node if node is not None else by_cores.get(own)
        if socket is None:
            raise _no_socket(row)
        found.append(socket)
    return _told_by_links(rows, tuple(found))


def _cores(row: _Row) -> str:
    text = row.fields.get(_CPU, _Field("", 0)).text
    return text if _CORES.fullmatch(text) else ""


def _lowest(cores: str) -> int:
    return int(re.split("[-,]", cores)[0])


def _numa(row: _Row) -> int | None:
    """Return the NUMA node; of several, as a virtual machine may say (`0-3`), the first."""
    text = row.fields.get(_NUMA, _Field("", 0)).text
    return _lowest(text) if _CORES.fullmatch(text) else None


def _no_socket(row: _Row) -> TopologyTextError:
    problem = f"{row.name} has no socket: neither its CPU affinity nor its NUMA affinity is given; write one of them"
    return TopologyTextError(
        problem, row.line, min((field.column for field in row.fields.values()), default=row.behind)
    )


def _told_by_links(rows: Sequence[_Row], sockets: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Where a shell that may use few cores shows the same ones for all GPUs, see which of them share a socket."""
    names = [row.name for row in rows]
    if any(_numa(row) is not None for row in rows) or len(set(sockets)) > 1:
        return sockets, ()
    if not any(row.kind(name) is LinkKind.SYS for row in rows for name in names):
        return sockets, ()
    groups = _groups(rows, _WITHIN_SOCKET)
    sizes = [groups.count(group) for group in groups]
    if len(set(groups)) == 1 or min(sizes) == 1:
        return sockets, ()
    numbers = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    note = "every GPU shows the same cores: which of them share a socket is told from their links"
    return tuple(numbers[group] for group in groups), (note,)


def _groups(rows: Sequence[_Row], kinds: Iterable[LinkKind]) -> list[int]:
    """Give each row the number of its group: rows joined by such links, also by way of a NIC."""
    groups = list(range(len(rows)))
    first: dict[str, int] = {}
    for place, row in enumerate(rows):
        for device in (row.name, *(name for name in row.cells if row.kind(name) in kinds)):
            mine, theirs = groups[place], groups[first.setdefault(device, place)]
            groups = [min(mine, theirs) if group in {mine, theirs} else group for group in groups]
    return groups


def _switches(rows: Sequence[_Row]) -> tuple[int, ...]:
    """Number the PCIe switches: GPUs that one bridge joins share it, else those that several join."""
    nearest = [
        LinkKind.PIX if _has(row, LinkKind.PIX) else LinkKind.PXB if _has(row, LinkKind.PXB) else None for row in rows
    ]
    found: dict[int, tuple[LinkKind, int]] = {}
    for kind in (LinkKind.PIX, LinkKind.PXB):
        places = [place for place, near in enumerate(nearest) if near is kind]
        groups = _groups([rows[place] for place in places], {kind})
        found |= {place: (kind, group) for place, group in zip(places, groups, strict=True)}
    numbers = {group: number for number, group in enumerate(dict.fromkeys(found[place] for place in sorted(found)))}
    return tuple(numbers[found[place]] if place in found else -1 for place in range(len(rows)))


def _has(row: _Row, kind: LinkKind) -> bool:
    return any(link.kind is kind for link, _ in row.cells.values())


def _completed(
    header: _Header, rows: Mapping[str, _Row], sockets: tuple[int, ...], missing: Sequence[str], lines: int
) -> ReadTopology:
    """Fill in rows that were cut off, where a switch connects all GPUs in the same way.

    Raises TopologyTextError: their links cannot be known.
    """
    known = {row.cells[name][0] for row in rows.values() for name in header.gpus if name != row.name}
    link = known.pop()
    if known or not _needs_switch(link, len(header.gpus)):
        raise TopologyTextError(f"{missing[0]} has no row: the text is cut off; copy it whole", lines + 1, 1)
    own = Link(LinkKind.SELF)
    links = tuple(tuple(own if a == b else link for b in header.gpus) for a in header.gpus)
    by_name = dict(zip(rows, sockets, strict=True))
    apart = len(set(sockets)) + any(_has(row, LinkKind.SYS) for row in rows.values())
    dealt = _dealt(header.gpus, by_name, max(apart, 1))
    switches = dict(zip(rows, _switches(list(rows.values())), strict=True))
    note = (
        f"{missing[0]} to {missing[-1]} have no row: the NVSwitch connects them like the others, and GPUs are taken "
        "to be dealt out evenly over the sockets"
    )
    topology = Topology(links, dealt, tuple(switches.get(name, -1) for name in header.gpus), nvswitch=True)
    return ReadTopology(topology, header.gpus, (note,))


def _dealt(gpus: Sequence[str], known: Mapping[str, int], sockets: int) -> tuple[int, ...]:
    evenly = {name: place * sockets // len(gpus) for place, name in enumerate(gpus)}
    agrees = all(evenly[name] == socket for name, socket in known.items())
    return tuple(evenly[name] if agrees else known.get(name, max(known.values())) for name in gpus)
