"""A cluster for `colane top` to draw: four nodes of eight devices, or of any size."""

from __future__ import annotations

import math
from typing import Any

from colane.cli.top.snapshot import ClusterShot
from colane.client.told import facts_of

AT_S = 1_800_000_000.0
GB = 10**9


def job(number: int, name: str, user: str = "wren", **fields: Any) -> Any:
    return {
        "id": number, "array_id": None, "array_index": None, "elements": None, "name": name, "user": user,
        "state": "running", "node": "h100-1", "gpus": [], "lanes": [], "holds": [], "sharing": None,
        "rate": {"ratio": 1.0, "steps_per_s": 10.0}, "on_host_bytes": None, "steps": 610, "steps_total": 1000,
        "steps_total_learned": None, "progress": {"step_mean_s": 0.1, "turn": "", "turn_share_ratio": None},
        "stalled": None, "submit_s": AT_S - 3600 + number, "start_s": AT_S - 3000, "saved_s": None, "why": None,
        "reason": None, "facts": told(number, fields), **fields,
    }  # fmt: skip


def told(number: int, fields: dict[str, Any]) -> Any:
    """As the scheduler tells of such a job."""
    job: Any = {"steps": 610, "steps_total": 1000}
    runs = {"now_steps_per_s": 10.0, "left_s": 39.0, "done_ratio": 0.61, "speed_ratio": 0.55 if number == 4088 else 1.0}
    word = "held" if fields.get("holds") else fields.get("state", "running")
    return {**facts_of(job), **runs, "word": word, "gpus": fields.get("gpus", [])}


def waiting(number: int, name: str, user: str = "wren", why: str = "no-free-gpu", **fields: Any) -> Any:
    reason = "Resources: needs 8 GPUs over any nodes, 0 free; GPUs are held by jobs 4098, 4121, 4117 and 9 more"
    empty = {"node": None, "rate": None, "progress": None, "start_s": None, "steps": 0}
    return job(number, name, user, state="queued", why=why, reason=reason, **empty, **fields)


def node(name: str, on: dict[int, list[list[int]]], gpus: int = 8, **fields: Any) -> Any:
    placed: dict[int, list[dict[str, int]]] = {}
    for gpu, lanes in on.items():
        for lane, ids in enumerate(lanes):
            for number in ids:
                placed.setdefault(number, []).append({"gpu": gpu, "lane": lane})
    devices = [
        {"index": index, "type": "H100", "memory_bytes": 80 * GB, "healthy": True, "foreign_bytes": 0}
        | {"others_ratio": 0.0}
        for index in range(gpus)
    ]  # fmt: skip
    return {
        "name": name, "gpus": devices, "cores": list(range(96)), "drain": None, "notice": None, "closed": None,
        "lost": False, "jobs": [
            {"id": number, "slots": slots, "cores": [number % 96], "paused": False, "on_host": False}
            for number, slots in placed.items()
        ], **fields,
    }  # fmt: skip


def sampled(name: str, gpus: int = 8) -> Any:
    course = [[0.5 + 0.5 * math.sin(point / 40 + gpu) for point in range(360)] for gpu in range(gpus)]
    return {
        "node": name, "start_s": AT_S - 3600, "step_s": 10.0,
        "devices": [{"index": gpu, "busy_ratio": values} for gpu, values in enumerate(course)],
        "now": [{"index": gpu, "busy_ratio": 0.97, "used_bytes": 71 * GB} for gpu in range(gpus)],
    }  # fmt: skip


def look(code: str, sentence: str, level: str = "look", **where: Any) -> Any:
    return {"level": level, "code": code, "sentence": sentence, "node": None, "gpu": None, "job": None, **where}


def empty_overview(**fields: Any) -> Any:
    devices = dict.fromkeys(("total", "lost", "broken", "working", "suspended", "kept", "closed", "free"), 0)
    return {
        "at_s": AT_S, "devices": devices, "running": 0, "waiting": 0, "sharing_devices": 0, "sharing_gain": None,
        "why_waiting": [], "kept": [], "look": [], "idle": [], **fields,
    }  # fmt: skip


def empty_shot() -> ClusterShot:
    return ClusterShot(AT_S, empty_overview(), [], [], 0)


def busy_shot() -> ClusterShot:
    """As the design has it."""
    nodes = [
        node("h100-1", {0: [[4098]], 1: [[4098]], 2: [[4098]], 3: [[4098]], 4: [[4121]], 5: [[4121]],
                        6: [[4127, 4128], [4103], [4157]], 7: [[4131], [4132]]}),
        node("h100-2", {0: [[4098]], 1: [[4098]], 2: [[4098]], 3: [[4098]], 4: [[4117]], 5: [[4117]],
                        6: [[4109], [4140, 4141]], 7: [[4115], [4144]]}),
        node("a100-1", {0: [[4150, 4151]], 2: [[4135]], 3: [[4088]], 4: [[4088]], 5: [[4136]]}),
        node("a100-2", {0: [[4090]], 1: [[4091]], 2: [[4160], [4161]], 5: [[4162]]}, drain={"by": "op"}),
    ]  # fmt: skip
    nodes[3]["gpus"][3]["healthy"] = False
    nodes[2]["gpus"][5]["foreign_bytes"] = 6 * GB
    nodes[3]["jobs"][1]["paused"] = True
    placed: dict[int, list[str]] = {}
    for one in nodes:
        for held in one["jobs"]:
            for slot in held["slots"]:
                placed.setdefault(held["id"], []).append(f"{one['name']}/{slot['gpu']}")
    names = {
        4121: ("vit-h-sweep", "heron"),
        4131: ("unet-seg-a", "heron"),
        4115: ("nb-explore", "heron"),
        4088: ("diffusion-512", "finch"),
        4098: ("llm-7b-pretrain", "kestrel"),
    }
    listed = [
        job(number, *names.get(number, (f"bert-ft-{number % 100}", "wren")), gpus=gpus, node=gpus[0].partition("/")[0])
        for number, gpus in sorted(placed.items())
    ]
    by_id = {one["id"]: one for one in listed}
    by_id[4088]["rate"] = {"ratio": 0.55, "steps_per_s": 2.2}
    by_id[4140]["sharing"] = {
        "lane_mates": [4141],
        "others": [],
        "share_asked_ratio": 0.33,
        "slowdown_predicted": 3.02,
        "slowdown_measured": 3.2,
    }
    listed += [waiting(number, f"llama-lora-r64-alpaca-ctx8k-{number}", "heron") for number in range(4170, 4190)]
    overview = empty_overview(
        devices={"total": 32, "lost": 0, "broken": 1, "working": 26, "suspended": 0, "kept": 2, "closed": 2, "free": 1},
        running=40, waiting=120, sharing_devices=10, sharing_gain=1.95,
        why_waiting=[{"why": why, "count": size, "jobs": [], "sentence": ""} for why, size in (("no-free-gpu", 74), ("behind", 21), ("limit", 9), ("not-worth-sharing", 7), ("held", 4), ("postponed", 3))],  # noqa: E501
        kept=[{"gpu": "a100-1/6", "job": 4170, "why": "reserved"}, {"gpu": "a100-1/7", "job": None, "why": "reserved"}],
        look=[
            look("gpu-broken", "a100-2/3 does not work any more (Xid 79)", "broken", node="a100-2", gpu="a100-2/3"),
            look("draining", "a100-2 drains, 6 min left, by op", node="a100-2"),
            look("idle", "job 4115 is idle for 42 min: no step, no kernel, 1 GPU held", job=4115, node="h100-2"),
            look("slow", "job 4088 runs at 0.55 of its speed alone, for its neighbours", job=4088, node="a100-1"),
        ],
        idle=[{"job": 4115, "since_s": AT_S - 2520, "idle_s": 2520.0}],
    )  # fmt: skip
    return ClusterShot(AT_S, overview, nodes, listed, 120, {one["name"]: sampled(one["name"]) for one in nodes})
