"""All devices of a large cluster, a letter each: what a screen draws where it cannot draw which job is on which."""

from __future__ import annotations

from typing import Final

from colane.api.seeing import CellsObject, DeviceNowObject
from colane.model.hardware import GpuId
from colane.model.job import JobState
from colane.model.words import by_name
from colane.server.board.read_model import ReadModel
from colane.server.ground.sight import Sight
from colane.server.parts import Parts

NODES_DRAWN_MAX: Final = 12
"""Of so many nodes a screen draws which job is on which device, and asks for them whole."""

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
