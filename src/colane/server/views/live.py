"""What a screen shows, once whole and then only what of it has become another: `/live`.

At most once a second, and as much more seldom as a watcher takes no more than a small part of a core: finding the rows
of ten thousand jobs takes some milliseconds. Nothing is looked at where neither an event has happened nor a row that is
shown runs.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, cast

from colane.api.seeing import CellsObject, DeviceNowObject, LiveChangeObject, OverviewAnswer, RowsAnswer
from colane.model.hardware import GpuId
from colane.model.job import JobState
from colane.model.words import by_name
from colane.server.board.read_model import ReadModel
from colane.server.ground.problems import RefusedError
from colane.server.ground.sight import Sight
from colane.server.parts import Parts
from colane.server.views.overview import OverviewMaker
from colane.server.views.rows import RowsWanted, page_rows

# -- All devices of a large cluster, a letter each: what a screen draws where it cannot draw which job is on which.

NODES_DRAWN_MAX: Final = 12  # of so many nodes a screen draws which job is on which device, and asks for them whole

FREE, HELD, SUSPENDED, CLOSED, BROKEN, LOST = "fhscbl"


def cells(board: ReadModel, sight: Sight) -> CellsObject | None:
    """Return a letter for each device, and which of them carry jobs of the caller's; None of a small cluster."""
    nodes = board.nodes
    if len(nodes) <= NODES_DRAWN_MAX:
        return None
    on: dict[GpuId, str] = {}
    own: list[str] = []
    user, is_paused = sight.caller.name, JobState.PAUSED
    for job in board.jobs.values():
        if job.placement is None:
            continue
        for gpu in job.gpus_held:
            if job.state is not is_paused:
                on[gpu] = HELD
            else:
                on.setdefault(gpu, SUSPENDED)
            if job.spec.user == user:
                own.append(str(gpu))
    names, letters = list[str](), list[str]()
    for name in sorted(nodes, key=by_name):
        record = nodes[name]
        names.append(name)
        if record.lost:
            letters.append(LOST * len(record.node.gpus))
            continue
        empty = FREE if record.node.takes_jobs else CLOSED
        letters.append(
            "".join([on.get(GpuId(name, gpu.index), empty) if gpu.healthy else BROKEN for gpu in record.node.gpus])
        )
    return {"nodes": names, "devices": letters, "own": sorted(set(own))}


def uses(parts: Parts) -> dict[str, list[DeviceNowObject]]:
    """Return how the devices of each node were used last; of those of which that is known."""
    now_s = parts.driver.now()
    return {
        name: [
            {"index": one.index, "busy_ratio": one.busy_ratio, "used_bytes": one.used_bytes}
            for one in parts.samples.devices_now(name, now_s)
        ]
        for name, record in parts.read_model.nodes.items()
        if not record.lost
    }


PERIOD_S: Final = 1.0
BEAT_S: Final = 5.0  # a sign of life this often, so that a page can tell a quiet cluster from a scheduler that is gone
WHOLE_S: Final = 30.0  # what changes without an event, as an age, is never older
WATCHER_RATIO_MAX: Final = 0.002  # part of a core that one watcher takes at most
OVERVIEW: Final = "overview"


@dataclass(frozen=True, slots=True)
class ScreenWanted:
    """What a screen shows."""

    rows: RowsWanted  # which rows
    overview: bool = False  # the cluster in numbers, too
    cells: bool = False  # each device, too


def screen(overviews: OverviewMaker, sight: Sight, wanted: ScreenWanted) -> RowsAnswer:
    """Return what a screen shows now. Raises RefusedError: 503 while the store cannot be read."""
    found = page_rows(overviews, sight, wanted.rows)
    if wanted.overview:
        event, found["overview"] = overviews.shared(sight)
        found["event"] = min(found["event"], event)  # so that what has happened since is asked for next time
    if wanted.cells and (drawn := cells(overviews.parts.read_model, sight)) is not None:
        found["cells"] = drawn
    elif wanted.cells:
        found["uses"] = uses(overviews.parts)
    return found


def changed(before: RowsAnswer, now: RowsAnswer) -> LiveChangeObject:
    """Return what of a screen has become another; empty where nothing has."""
    found: dict[str, object] = {
        name: value
        for name, value in now.items()
        if name not in {"rows", OVERVIEW, "event"} and value != before.get(name)
    }
    known, ids = {row["id"]: row for row in before["rows"]}, [row["id"] for row in now["rows"]]
    if rows := [row for row in now["rows"] if row != known.get(row["id"])]:
        found["rows"] = rows
    if ids != [row["id"] for row in before["rows"]]:
        found["ids"] = ids
    if OVERVIEW in now and OVERVIEW in before and (parts := _parts(before["overview"], now["overview"])):
        found[OVERVIEW] = {**parts, "at_s": now["overview"]["at_s"]}
    if found or now["event"] != before["event"]:
        found["event"] = now["event"]
    return cast("LiveChangeObject", found)


def _parts(before: OverviewAnswer, now: OverviewAnswer) -> dict[str, object]:
    known: Mapping[str, object] = dict(before)
    return {name: value for name, value in now.items() if name != "at_s" and value != known.get(name)}


async def live(
    overviews: OverviewMaker, sight: Sight, wanted: ScreenWanted, whole: RowsAnswer, is_known: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """Yield server-sent events: `whole`, then `change` and `beat`, until the caller's token is revoked.

    It ends also where the store cannot be read: a caller that asks again is told why.
    """
    before, told_s, looked_s, cost_s = whole, time.monotonic(), time.monotonic(), 0.0
    yield _event("whole", whole)
    while not await _is_over(overviews.parts, max(PERIOD_S, cost_s / WATCHER_RATIO_MAX)) and is_known():
        now_s = time.monotonic()
        change: LiveChangeObject = {}
        if _may_have_changed(overviews.parts, before) or now_s >= looked_s + WHOLE_S:
            try:
                now = screen(overviews, sight, wanted)
            except RefusedError:
                return
            change, before, looked_s = changed(before, now), now, now_s
            cost_s = time.monotonic() - now_s
        if change or now_s >= told_s + BEAT_S:
            yield _event("change", change) if change else _event("beat", {})
            told_s = now_s


def _may_have_changed(parts: Parts, before: RowsAnswer) -> bool:
    return before["event"] != parts.feed.last_number or any(row["run"] is not None for row in before["rows"])


async def _is_over(parts: Parts, rest_s: float) -> bool:
    """Wait so long; whether the scheduler stops."""
    with suppress(TimeoutError):
        async with asyncio.timeout(rest_s):
            await parts.stopping.wait()
    return parts.stopping.is_set()


def _event(kind: str, data: Mapping[str, object]) -> bytes:
    return f"event: {kind}\r\ndata: {json.dumps(data)}\r\n\r\n".encode()
