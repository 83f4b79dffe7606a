"""The screen of `colane top` as lines, for a terminal of any size: it opens with a sentence and what needs a look.

Colour never stands alone: own jobs have a `*`, what needs a look ▲, what is broken ✕, what waits on its device ‖.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from rich.cells import cell_len
from rich.text import Text

from colane.cli import output
from colane.cli.jobs import objects as jobs
from colane.cli.nodes.command import ranges
from colane.cli.top.texts import (
    BROKEN,
    LOOK,
    OTHERS,
    OWN,
    WAITS,
    cut,
    cut_end,
    gigabytes,
    left,
    right,
    short_span,
    spark,
)
from colane.client.told import facts_of
from colane.facts.node import booked_by, lanes_of
from colane.model.words import count, plural

if TYPE_CHECKING:
    from colane.api.jobs import JobObject
    from colane.api.nodes import GpuObject, NodeObject
    from colane.api.seeing import LookObject
    from colane.cli.top.snapshot import ClusterShot

OWN_STYLE, LOOK_STYLE, BROKEN_STYLE, QUIET, HEADING = "blue", "yellow", "bold red", "dim", "bold"
PROGRAM: Final = "colane top  "
WIDE: Final = 120
WIDE_ROWS: Final = 40
DEVICES_IN_ROW: Final = 8
JOB_ROWS_MIN: Final = 6
KEYS: Final = "/ filter  s sort  u mine  Enter why+log  k cancel  PgDn nodes  q quit"
SORTS: Final = ("state", "age", "speed", "user", "left")  # by what jobs may be sorted

STATES: Final[Mapping[str, str]] = {
    "assigned": "starts", "launching": "starts", "running-protected": "run", "running": "run", "paused": "waits",
    "suspended": "waits",     "checkpointing": "saves", "stopping": "leaves", "queued": "wait",
}  # fmt: skip
ORDER: Final = ("run", "turns", "idle", "starts", "saves", "leaves", "parked", "waits", "wait")


@dataclass(frozen=True, slots=True)
class TopView:
    """What of a shot is to be seen, and how."""

    width: int = 80  # of the screen
    height: int | None = None  # of it; None for as many lines as there is to say
    user: str = ""  # whose jobs are marked as own
    mine: bool = False  # whether only these are listed
    sort: str = "state"  # one of `SORTS`
    filter: str = ""  # only jobs whose name, user, id, state or reason has this
    chosen: int | None = None  # the job that the cursor is on; None where there is no cursor
    node_first: int = 0  # how many nodes are scrolled by
    stale_s: float = 0.0  # for how long there was no answer; 0 where all is well
    keys: bool = False  # whether the keys are named

    @property
    def is_wide(self) -> bool:
        """Whether there is room for a line a lane."""
        return self.width >= WIDE and (self.height is None or self.height >= WIDE_ROWS)


class DeviceCell(NamedTuple):
    """A device of a node, and the jobs on it, lane by lane."""

    gpu: GpuObject
    lanes: list[list[int]]
    paused: frozenset[int]

    @property
    def ids(self) -> list[int]:
        """Its jobs."""
        return [job for lane in self.lanes for job in lane]


@dataclass
class TopPicture:
    """A shot drawn."""

    shot: ClusterShot  # what is drawn
    view: TopView  # how
    listed: list[int] = field(default_factory=list)  # jobs of the list, in its order; filled by `lines`
    nodes_shown: list[str] = field(default_factory=list)  # names of the nodes that are drawn; filled by `lines`

    @cached_property
    def by_id(self) -> dict[int, JobObject]:
        """Jobs by id."""
        return {job["id"]: job for job in self.shot.jobs}

    @cached_property
    def looks(self) -> set[object]:
        """Jobs and devices that need a look."""
        items = self.shot.overview["look"]
        return {one[key] for one in items for key in ("job", "gpu")}

    @cached_property
    def looked_nodes(self) -> set[str]:
        """Nodes that need a look themselves, not only what is on them."""
        items = self.shot.overview["look"]
        return {one["node"] for one in items if one["node"] and one["job"] is None and one["gpu"] is None}

    @cached_property
    def idle(self) -> dict[int, float]:
        """For how long jobs are idle."""
        return {one["job"]: one["idle_s"] for one in self.shot.overview["idle"]}

    @cached_property
    def kept(self) -> dict[str, int | None]:
        """For which job devices are kept."""
        return {one["gpu"]: one["job"] for one in self.shot.overview["kept"]}

    # -- all of it

    def lines(self) -> list[Text]:
        """Draw; what does not fit is counted."""
        view = self.view
        head = [self._title(), *self._look_lines()]
        foot = [self._waiting(), self._headings()]
        rows = self._chosen_jobs()
        room = None if view.height is None else view.height - len(head) - len(foot) - 1 - view.keys
        nodes = self._nodes(None if room is None else max(3, room - min(len(rows), JOB_ROWS_MIN)))
        left_rows = None if room is None else max(0, room - len(nodes))
        shown = self._window(rows, left_rows)
        self.listed = [job["id"] for job in shown]
        lines = [*head, *nodes, *foot, *[self._row(job) for job in shown], self._more(len(rows) - len(shown), rows)]
        if view.keys:
            pad = 0 if view.height is None else view.height - len(lines) - 1
            lines += [*[Text("")] * pad, Text(cut(KEYS, view.width), QUIET)]
        return lines

    def _window(self, rows: list[JobObject], room: int | None) -> list[JobObject]:
        """The rows around the chosen one."""
        if room is None or len(rows) <= room:
            return rows
        place = next((place for place, job in enumerate(rows) if job["id"] == self.view.chosen), 0)
        first = min(max(0, place - room + 1), len(rows) - room)
        return rows[first : first + room]

    def _title(self) -> Text:
        devices, width = self.shot.overview["devices"], self.view.width
        parts = [f"{devices['working']} of {count(devices['total'], 'GPU')} work"]
        counts = (devices["broken"], devices["lost"], devices["kept"], devices["closed"])
        parts += [
            f"{size} {word}" for size, word in zip(counts, ("broken", "lost", "kept", "closed"), strict=True) if size
        ]
        gain = self.shot.overview["sharing_gain"]
        if gain is not None:
            parts.append(f"sharing gives {gain:.2f} on {self.shot.overview['sharing_devices']}")
        counted = f"   {self.shot.overview['running']} run, {self.shot.overview['waiting']} wait"
        clock = time.strftime("%H:%M:%S", time.localtime(self.shot.at_s))
        stale = self.view.stale_s
        end = f"live  {clock}" if stale < 15 else f"{LOOK} no word for {short_span(stale)}; of {clock}"
        gap = width - len(end)
        while len(parts) > 1 and len(", ".join(parts)) + len(counted) + len(PROGRAM) + 1 > gap:
            parts.pop()
        text = f"{PROGRAM}{', '.join(parts)}{counted}"
        return Text.assemble((left(text, gap), HEADING), (end, "" if stale < 15 else LOOK_STYLE))

    def _look_lines(self) -> Iterator[Text]:
        """Needs a look: as much as fits a line, or two on a large screen, and how much more there is."""
        items = self.shot.overview["look"]
        if not self.shot.nodes:
            said = "no node has registered yet: colane up on this machine, or colane agent on others"
            yield Text(cut(said, self.view.width), LOOK_STYLE)
        if not items:
            if self.shot.nodes:
                yield Text("Nothing needs a look.", QUIET)
            return
        line, used = Text(), 0
        for place, item in enumerate(items):
            is_broken = item["level"] == "broken"
            said = item["sentence"] if self.view.is_wide else self._short(item)
            text = f"{BROKEN if is_broken else LOOK} {output.clean(said)}"
            more = f"  +{len(items) - place}"
            rest = len(items) - place - 1
            if used and used + len(text) + 2 + (len(more) if rest else 0) > self.view.width:
                line.append(more, LOOK_STYLE)
                break
            text = cut(text, self.view.width - (len(more) if rest else 0))
            line.append(("  " if used else "") + text, BROKEN_STYLE if is_broken else LOOK_STYLE)
            used = line.cell_len
        yield line

    def _short(self, item: LookObject) -> str:
        """What needs a look in a few words, where there is no room for its sentence."""
        job = item["job"]
        if job is not None:
            idle = f" {short_span(self.idle[job])}" if item["code"] == "idle" and job in self.idle else ""
            return f"{job}{OWN * self._is_own(job)} {SHORT.get(item['code'], item['code'])}{idle}"
        thing = item["gpu"] or item["node"]
        return item["sentence"] if thing is None else f"{thing} {SHORT.get(item['code'], item['code'])}"

    # -- nodes

    def _nodes(self, room: int | None) -> list[Text]:
        nodes = self.shot.nodes[self.view.node_first :]
        lines: list[Text] = []
        self.nodes_shown = []
        if nodes and not self.view.is_wide:
            width = self._cell_width()
            numbers = "".join(left(str(index), width) for index in range(self.columns))
            lines.append(Text(" " * NARROW_NAME + numbers, QUIET))
        for node in nodes:
            block = self._wide_node(node) if self.view.is_wide else self._narrow_node(node)
            if room is not None and len(lines) + len(block) + 1 > room and lines:
                break
            lines += block
            self.nodes_shown.append(node["name"])
        hidden = len(self.shot.nodes) - len(self.nodes_shown)
        if hidden:
            before = self.view.node_first
            said = f"{count(hidden, 'more node')}" + (f", {before} of them above" if before else "")
            lines.append(Text(cut(said, self.view.width), QUIET))
        return lines

    @cached_property
    def columns(self) -> int:
        """Devices in a row: no node has more than eight in one."""
        most = max((len(node["gpus"]) for node in self.shot.nodes), default=1)
        return min(DEVICES_IN_ROW, max(1, most))

    def _cell_width(self) -> int:
        space = self.view.width - (WIDE_NAME if self.view.is_wide else NARROW_NAME)
        return min(CELL_MAX, max(6, space // self.columns))

    def _cells(self, node: NodeObject) -> list[DeviceCell]:
        lanes, paused = lanes_of(node), frozenset(job["id"] for job in node["jobs"] if job["paused"])
        found = ((gpu, lanes.get(gpu["index"], {}).values()) for gpu in node["gpus"])
        return [DeviceCell(gpu, [[job["id"] for job in here] for here in every], paused) for gpu, every in found]

    def _narrow_node(self, node: NodeObject) -> list[Text]:
        width, cells = self._cell_width(), self._cells(node)
        mark = LOOK if node["name"] in self.looked_nodes else ""
        lines = []
        for first in range(0, max(1, len(cells)), DEVICES_IN_ROW):
            part = cells[first : first + DEVICES_IN_ROW]
            name = Text(
                left(f"{mark}{node['name']}" if not first else "", NARROW_NAME - 1) + " ", LOOK_STYLE if mark else ""
            )
            who, how = name, Text(" " * NARROW_NAME)
            for text, style, cells_wide in self._merged(node, part, width):
                who.append(left(text, cells_wide - 1) + " ", style)
            for cell in part:
                text, style = self._use(node, cell, width - 1)
                how.append(left(text, width - 1) + " ", style)
            lines += [who, how]
        return lines

    def _merged(self, node: NodeObject, part: Sequence[DeviceCell], width: int) -> Iterator[tuple[str, str, int]]:
        """Devices with their jobs, a gang in one over all of its devices that stand beside one another."""
        place = 0
        while place < len(part):
            cell, end = part[place], place + 1
            while len(cell.ids) == 1 and end < len(part) and part[end].ids == cell.ids:
                end += 1
            text, style = self._who(node, cell)
            cells_wide = (end - place) * width
            if end - place > 1:
                text = f"{text} {'═' * (cells_wide - len(text) - 3)}╡"
            yield text, style, cells_wide
            place = end

    def _who(self, node: NodeObject, cell: DeviceCell) -> tuple[str, str]:
        """What is on a device, in a few characters."""
        gpu, ids = cell.gpu, cell.ids
        name = f"{node['name']}/{gpu['index']}"
        if node["lost"]:
            return "lost", BROKEN_STYLE
        if not gpu["healthy"]:
            return f"{BROKEN} broken", BROKEN_STYLE
        if not ids and name in self.kept:
            job = self.kept[name]
            return ("┄kept┄" if job is None else f"┄{job}┄"), QUIET
        foreign = OTHERS if gpu["foreign_bytes"] or gpu["others_ratio"] else ""
        if not ids:
            closed = node["drain"] or node["notice"] or node["closed"]
            return ("· closed" if closed else "·") + foreign, QUIET
        first = next((job for job in ids if job in self.looks), ids[0])
        is_look, is_own = first in self.looks, self._is_own(first)
        mark = LOOK if is_look else WAITS if first in cell.paused else ""
        more = f"+{len(ids) - 1}" if len(ids) > 1 else ""
        if more and len(f"{mark}{first}{OWN * is_own} {more}{foreign}") < self._cell_width():
            more = f" {more}"
        style = LOOK_STYLE if is_look else OWN_STYLE if is_own else ""
        return f"{mark}{first}{OWN * is_own}{more}{foreign}", style

    def _use(self, node: NodeObject, cell: DeviceCell, width: int) -> tuple[str, str]:
        """How a device is used: its last hour, and now."""
        busy, course, _ = self._sampled(node["name"], cell.gpu["index"])
        if node["lost"] or not cell.gpu["healthy"]:
            return "", QUIET
        now = "   -" if busy is None else f"{100 * busy:3.0f}%"
        return f"{spark(course, max(0, min(width - 5, 12)))} {now}", QUIET

    def _sampled(self, node: str, index: int) -> tuple[float | None, Sequence[float | None], float | None]:
        """Busy now, busy over the last hour, and memory used now."""
        known = self.shot.samples.get(node)
        if known is None:
            return None, (), None
        now = next((one for one in known["now"] if one["index"] == index), None)
        course = next((one["busy_ratio"] for one in known["devices"] if one["index"] == index), [])
        return (None if now is None else now["busy_ratio"]), course[:-1], None if now is None else now["used_bytes"]

    # -- a line a lane, on a large screen

    def _wide_node(self, node: NodeObject) -> list[Text]:
        cells = self._cells(node)
        width = self._cell_width()
        lines: list[Text] = []
        for first in range(0, max(1, len(cells)), DEVICES_IN_ROW):
            part = cells[first : first + DEVICES_IN_ROW]
            facts = list(self._facts(node)) if not first else []
            depth = max([len(cell.lanes) for cell in part] + [1, len(facts) - 1])
            for row in range(depth + 1):
                text, style = facts[row] if row < len(facts) else ("", "")
                line = Text(left(text, WIDE_NAME - 1) + " ", style)
                for text, style in self._wide_row(node, part, row, width):
                    line.append(text, style)
                lines.append(line)
        return [*lines, Text("")]

    def _wide_row(
        self, node: NodeObject, part: Sequence[DeviceCell], row: int, width: int
    ) -> Iterator[tuple[str, str]]:
        if row == 0:
            for cell in part:
                yield left(self._device_head(node, cell), width - 1) + " ", QUIET
            return
        place = 0
        while place < len(part):
            cell, end = part[place], place + 1
            while row == 1 and len(cell.ids) == 1 and end < len(part) and part[end].ids == cell.ids:
                end += 1
            text, style = self._lane(node, cell, row - 1)
            wide = (end - place) * width - 1
            text = f"{text} {'═' * (wide - len(text) - 1)}" if end - place > 1 else text
            yield left(text, wide) + " ", style
            place = end

    def _device_head(self, node: NodeObject, cell: DeviceCell) -> str:
        gpu = cell.gpu
        busy, course, used = self._sampled(node["name"], gpu["index"])
        if node["lost"] or not gpu["healthy"]:
            return str(gpu["index"])
        now = "  -" if busy is None else f"{100 * busy:.0f}%"
        return f"{gpu['index']} {spark(course, 4)} {now} {gigabytes(used)}/{gigabytes(gpu['memory_bytes'])}G"

    def _lane(self, node: NodeObject, cell: DeviceCell, lane: int) -> tuple[str, str]:
        if lane >= len(cell.lanes):
            return self._who(node, cell) if not lane else ("", "")
        ids = cell.lanes[lane]
        first = next((job for job in ids if job in self.looks), ids[0])
        text, style = self._who(node, cell._replace(lanes=[ids]))
        job = self.by_id.get(first)
        if job is None or len(ids) > 1:
            return f"▌{text}", style
        rate = job["rate"]
        speed = f" {rate['ratio']:.2f}" if rate is not None else ""
        idle = f" idle {short_span(self.idle[first])}" if first in self.idle else ""
        return f"▌{text} {idle.strip() or cut(job['name'], 18) + speed}", style

    def _facts(self, node: NodeObject) -> Iterator[tuple[str, str]]:
        mark = LOOK if node["name"] in self.looked_nodes else ""
        yield f"{node['name']}{mark}", LOOK_STYLE if mark else HEADING
        kinds = sorted({gpu["type"] for gpu in node["gpus"]})
        yield f"{len(node['gpus'])} {'/'.join(kinds)}", QUIET
        yield f"{booked_by(node['jobs'])['cores']}/{len(node['cores'])} {plural(len(node['cores']), 'core')}", QUIET
        beside = [str(job["id"]) for job in node["jobs"] if not job["slots"]]
        if beside:
            yield f"CPU {'·'.join(beside)}", ""
        hosts = [str(job["id"]) for job in node["jobs"] if job["on_host"]]
        if hosts:
            yield f"{WAITS}{'·'.join(hosts)} on host", ""
        if node["drain"] or node["notice"]:
            yield f"{LOOK} drains", LOOK_STYLE

    # -- jobs

    def _waiting(self) -> Text:
        reasons = self.shot.overview["why_waiting"]
        if not reasons:
            return Text("no job waits", QUIET)
        text = f"wait {self.shot.overview['waiting']}: "
        for place, one in enumerate(reasons):
            said = ("" if not place else " · ") + f"{one['count']} {one['why'].replace('-', ' ')}"
            rest = sum(other["count"] for other in reasons[place:])
            if len(text) + len(said) + 8 > self.view.width:
                return Text(f"{text} · +{rest}")
            text += said
        return Text(cut(text, self.view.width))

    def _chosen_jobs(self) -> list[JobObject]:
        view, wanted = self.view, self.view.filter.casefold()
        found = [job for job in self.shot.jobs if not view.mine or self._is_own(job["id"])]
        if wanted:
            found = [job for job in found if wanted in self._searched(job)]
        return sorted(found, key=self._sort_key)

    def _searched(self, job: JobObject) -> str:
        parts = (jobs.name_of(job), job["name"][:400], job["user"], self._state(job), job["why"], ",".join(job["gpus"]))
        return " ".join(part or "" for part in parts).casefold()

    def _sort_key(self, job: JobObject) -> tuple[object, ...]:
        state = self._state(job).rstrip("0123456789mshd")
        by_state = ORDER.index(state) if state in ORDER else len(ORDER)
        needs = 0 if job["id"] in self.looks else 1
        if self.view.sort == "age":
            return (job["submit_s"], job["id"])
        if self.view.sort == "speed":
            speed = facts_of(job)["speed_ratio"]
            return (2.0 if speed is None else speed, job["id"])
        if self.view.sort == "user":
            return (job["user"], by_state, job["id"])
        if self.view.sort == "left":
            left_s = facts_of(job)["left_s"]
            return (float("inf") if left_s is None else left_s, job["id"])
        return (job["node"] is None, needs, not self._is_own(job["id"]), by_state, job["id"])

    def _is_own(self, job: int) -> bool:
        known = self.by_id.get(job)
        return known is not None and known["user"] == self.view.user

    def _state(self, job: JobObject) -> str:
        if job["id"] in self.idle:
            return f"idle{short_span(self.idle[job['id']])}"
        word = facts_of(job)["word"] or job["state"]
        if word in {"running", "running-protected"} and job["sharing"] is not None and job["sharing"]["lane_mates"]:
            return "turns"
        return STATES.get(word, word)

    def _headings(self) -> Text:
        wide = self.view.is_wide
        cells = [left(heading, size) if is_left else right(heading, size) for heading, size, is_left in self._columns()]
        return Text(cut("  " + " ".join(cells), self.view.width), f"{QUIET} underline" if not wide else QUIET)

    def _columns(self) -> tuple[tuple[str, int, bool], ...]:
        """Heading, width, and whether it is set to the left."""
        extra = self.view.width - 80
        name, where = 14 + max(0, extra // 4), 12 + max(0, min(12, extra // 6))
        columns: tuple[tuple[str, int, bool], ...] = (
            ("JOB", 6, False), ("NAME", name, True), ("USER", 8, True), ("STATE", 7, True), ("WHERE", where, True),
            ("DONE", 5, False), ("STEPS/s", 7, False), ("SPEED", 5, False), ("LEFT", 6, False),
        )  # fmt: skip
        if self.view.is_wide:
            columns = (*columns, ("GOT/ASKED", 11, False), ("TOLD/SEEN", 11, False))
        return columns

    def _row(self, job: JobObject) -> Text:
        is_look, is_own = job["id"] in self.looks, self._is_own(job["id"])
        mark = LOOK if is_look else WAITS if job["state"] == "paused" else " "
        cursor = ">" if job["id"] == self.view.chosen else " "
        style = LOOK_STYLE if is_look else OWN_STYLE if is_own else ""
        (_, id_width, _), (_, name, _), (_, user, _), (_, state, _), *rest = self._columns()
        cells = [
            right(jobs.name_of(job), id_width), left(job["name"], name), left(job["user"] + OWN * is_own, user),
            left(self._state(job), state),
        ]  # fmt: skip
        if job["node"] is None:
            used = cell_len(" ".join(cells)) + 3
            cells.append(cut_end(self._why(job), max(0, self.view.width - used)))
        else:
            told = self._numbers(job)
            cells += [
                left(text, size) if is_left else right(text, size)
                for text, (_, size, is_left) in zip(told, rest, strict=True)
            ]
        line = Text(cut(f"{cursor if mark == ' ' else mark} {' '.join(cells)}", self.view.width), style)
        if job["id"] == self.view.chosen:
            line.stylize("reverse")
        return line

    def _why(self, job: JobObject) -> str:
        array = job.get("elements")
        if array is not None:
            return jobs.elements_text(array)
        return (job["reason"] or "").partition(": ")[2] or (job["reason"] or "")

    def _numbers(self, job: JobObject) -> list[str]:
        facts = facts_of(job)
        ratio, left_s, speed = facts["done_ratio"], facts["left_s"], facts["speed_ratio"]
        done = "-" if ratio is None else f"{'~' * facts['is_length_guessed']}{100 * ratio:.0f}%"
        told = [
            _where(job), done, output.number(facts["now_steps_per_s"]),
            "-" if speed is None else f"{speed:.2f}", "?" if left_s is None else short_span(left_s),
        ]  # fmt: skip
        if self.view.is_wide:
            told += [jobs.share_text(job) or "all", jobs.slowdown_text(job) or "alone"]
        return told

    def _more(self, hidden: int, rows: Sequence[JobObject]) -> Text:
        view = self.view
        hidden += self.shot.left_out
        if not self.shot.jobs:
            return Text("no job waits or runs", QUIET)
        parts = [f"{hidden} more"] if hidden else []
        parts.append(f"sorted by {view.sort}")
        if view.filter:
            parts.append(f"{len(rows)} with {cut(view.filter, 20)!r}")
        if view.mine:
            parts.append("mine")
        return Text(cut(" · ".join(parts), view.width), QUIET)


SHORT: Final[Mapping[str, str]] = {
    "node-lost": "lost", "node-silent": "silent", "gpu-broken": "broken", "gpu-error": "Xid", "gpu-hot": "hot",
    "node-closed": "taken out", "draining": "drains", "stalled": "no steps", "in-vain": "gets nowhere",
    "others": "used by others",
}  # fmt: skip
CELL_MAX: Final = 36
NARROW_NAME: Final = 8
WIDE_NAME: Final = 12


def _where(job: JobObject) -> str:
    """Devices of a job, those of one node together: `n1/0-3 n2/3`."""
    by_node: dict[str, list[int]] = {}
    for gpu in facts_of(job)["gpus"]:
        node, _, number = gpu.rpartition("/")
        by_node.setdefault(node, []).append(int(number))
    return " ".join(f"{node}/{ranges(numbers)}" for node, numbers in by_node.items()) or (job["node"] or "")
