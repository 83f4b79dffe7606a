"""The names that dashboards have already: DCGM's of devices, slurmctld's of the cluster. Only what is true here."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from colane.api.nodes import BookedObject
from colane.api.seeing import OverviewAnswer
from colane.facts.job import waiting
from colane.facts.node import NodeWord, booked, node_word, slurm_word
from colane.model.device_use import DeviceUsage
from colane.model.hardware import Gpu
from colane.model.job import Job, JobState
from colane.server.board.read_model import NodeRecord
from colane.server.ground.sight import Sight
from colane.server.metrics.own import USERS_MAX
from colane.server.metrics.text import MetricKind, MetricText, labels_text
from colane.server.parts import Parts

GAUGE, COUNTER = MetricKind.GAUGE, MetricKind.COUNTER
MIB: Final = 2**20

CLOCK_REASONS: Final[Mapping[str, int]] = {
    "power-cap": 0x4, "hw-slowdown": 0x8, "sync-boost": 0x10, "thermal": 0x20, "hw-thermal": 0x40, "power-brake": 0x80,
}  # fmt: skip
"""NVML's bits of the words that agents report."""


def write_dcgm(text: MetricText, parts: Parts) -> None:
    """Write what NVML tells, by DCGM's names, of GPUs alone: a cpu device is none."""
    gpus = [(_dcgm_labels(name, gpu), use, gpu) for name, gpu, use in _gpus(parts)]
    families: tuple[tuple[str, str, Iterable[tuple[str, float | None]]], ...] = (
        ("GPU_UTIL", "GPU utilization (in %).", ((at, _scaled(row.busy_ratio, 100)) for at, row, _ in gpus)),
        ("FB_USED", "Frame buffer memory used (in MiB).", ((at, _mib(row.used_bytes)) for at, row, _ in gpus)),
        (
            "FB_FREE", "Frame buffer memory free (in MiB).",
            ((at, _mib(_free(one, row))) for at, row, one in gpus),
        ),
        ("POWER_USAGE", "Power draw (in W).", ((at, row.power_w) for at, row, _ in gpus)),
        ("GPU_TEMP", "GPU temperature (in C).", ((at, row.temperature_c) for at, row, _ in gpus)),
        ("XID_ERRORS", "Value of the last XID error encountered.", ((at, row.xid) for at, row, _ in gpus)),
        ("CLOCK_THROTTLE_REASONS", "Bits of what slows clocks.", ((at, _reasons(row.throttle)) for at, row, _ in gpus)),
    )  # fmt: skip
    for name, about, samples in families:
        text.family(f"DCGM_FI_DEV_{name}", GAUGE, about, samples)


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else round(value * factor, 6)


def _free(gpu: Gpu, use: DeviceUsage) -> float | None:
    return None if use.used_bytes is None else gpu.memory_bytes - use.used_bytes


def _mib(size: float | None) -> float | None:
    return None if size is None else round(size / MIB, 6)


def _reasons(words: tuple[str, ...] | None) -> float | None:
    return None if words is None else float(sum(CLOCK_REASONS[word] for word in words))


def _gpus(parts: Parts) -> Iterator[tuple[str, Gpu, DeviceUsage]]:
    """Yield the GPUs that were sampled of late."""
    now_s = parts.driver.now()
    for name, record in parts.read_model.nodes.items():
        seen = {} if record.lost else {use.index: use for use in parts.samples.devices_now(name, now_s)}
        for gpu in record.node.gpus:
            if gpu.index in seen and not gpu.is_cpu_device:
                yield name, gpu, seen[gpu.index]


def _dcgm_labels(node: str, gpu: Gpu) -> str:
    return labels_text({
        "gpu": str(gpu.index), "UUID": gpu.uuid, "device": f"nvidia{gpu.index}", "modelName": gpu.type,
        "Hostname": node,
    })  # fmt: skip


# -- slurmctld's


def write_slurm(text: MetricText, parts: Parts, sight: Sight, overview: OverviewAnswer) -> None:
    """Write slurmctld's names, as its /metrics/jobs, jobs-users-accts, nodes, partitions and scheduler have them."""
    jobs = [job for job in parts.read_model.jobs.values() if sight.has(job.spec.user)]
    _nodes(text, parts)
    _of_jobs(text, "slurm_jobs", "", jobs, parts)
    _of_users(text, jobs)
    pools = sorted({record.node.pool for record in parts.read_model.nodes.values()} | {job.spec.pool for job in jobs})
    text.family("slurm_partitions", GAUGE, "Total number of partitions", [("", len(pools))])
    _partitions(text, parts, jobs, pools)
    meters = parts.driver.meters
    text.family("slurm_schedule_cycle_cnt", GAUGE, "Scheduling cycle count", [("", meters.decisions.count)])
    text.family("slurm_schedule_queue_len", GAUGE, "Jobs pending queue length", [("", overview["waiting"])])
    for name, count in (
        ("submitted", meters.submitted), ("started", meters.started), ("completed", meters.ended["succeeded"]),
        ("failed", meters.ended["failed"]), ("canceled", meters.ended["cancelled"]),
    ):  # fmt: skip
        text.family(f"slurm_sdiag_jobs_{name}", GAUGE, f"Jobs {name} since reset", [("", count)])


def _counts(jobs: Iterable[Job], ended: Mapping[str, int]) -> dict[str, int]:
    """Live jobs by Slurm's states; those that have ended since the scheduler's start besides."""
    found = dict.fromkeys(("pending", "running", "suspended", "completing", "hold"), 0)
    for job in jobs:
        if job.state is JobState.QUEUED:
            found["pending"] += waiting(job)
            found["hold"] += bool(job.holds) and job.array is None
        else:
            found[_STATES.get(job.state, "running")] += 1
    found |= {"completed": ended.get("succeeded", 0), "failed": ended.get("failed", 0)}
    found |= {"cancelled": ended.get("cancelled", 0), "timeout": ended.get("timed-out", 0)}
    return found | {"outofmemory": ended.get("out-of-memory", 0)}


_STATES: Final = {
    JobState.PAUSED: "suspended", JobState.STOPPING: "completing", JobState.CHECKPOINTING: "completing",
}  # fmt: skip


def _of_jobs(text: MetricText, prefix: str, labels: str, jobs: Sequence[Job], parts: Parts) -> None:
    counts = _counts(jobs, parts.driver.meters.ended)
    text.family(prefix, GAUGE, "Total number of jobs", [(labels, len(jobs))])
    for state, count in counts.items():
        text.family(f"{prefix}_{state}", GAUGE, f"Number of jobs {state}", [(labels, count)])
    placed = [job for job in jobs if job.placement is not None]
    cores = sum(len(job.placement.cores) for job in placed if job.placement is not None)
    text.family(f"{prefix}_cpus_alloc", GAUGE, "Total number of Cpus allocated by jobs", [(labels, cores)])
    memory = sum(job.spec.host_memory_bytes for job in placed)
    text.family(f"{prefix}_memory_alloc", GAUGE, "Total memory bytes allocated by jobs", [(labels, memory)])
    text.family(f"{prefix}_gpus_alloc", GAUGE, "Total number of GPUs allocated by jobs", [(labels, _gpus_of(jobs))])
    if not labels:
        nodes = len({node for job in placed if job.placement is not None for node in job.placement.nodes})
        text.family(f"{prefix}_nodes_alloc", GAUGE, "Total number of nodes allocated by jobs", [("", nodes)])


def _gpus_of(jobs: Iterable[Job]) -> int:
    """GPUs that jobs hold, one that several share counted once."""
    return len({gpu for job in jobs for gpu in job.gpus_held})


LIVE_STATES: Final = ("pending", "running", "suspended", "completing", "hold")


def _of_users(text: MetricText, jobs: Sequence[Job]) -> None:
    """Live jobs of the users with most of them; there are no accounts, and whose jobs have ended is not counted."""
    of_user = defaultdict[str, list[Job]](list)
    for job in jobs:
        of_user[job.spec.user].append(job)
    most = sorted(of_user, key=lambda user: (-len(of_user[user]), user))[:USERS_MAX]
    labels = [labels_text({"username": user}) for user in most]
    counts = [_counts(of_user[user], {}) for user in most]
    totals = [sum(row[state] for state in LIVE_STATES[:-1]) for row in counts]
    prefix = "slurm_user_jobs"
    text.family(prefix, GAUGE, "Total number of jobs of the user", zip(labels, totals, strict=True))
    for state in LIVE_STATES:
        values = [row[state] for row in counts]
        text.family(f"{prefix}_{state}", GAUGE, f"Number of jobs {state} of the user", zip(labels, values, strict=True))
    cores = [sum(len(job.placement.cores) for job in of_user[user] if job.placement is not None) for user in most]
    text.family(f"{prefix}_cpus_alloc", GAUGE, "Cpus allocated by jobs of the user", zip(labels, cores, strict=True))
    memory = [sum(job.spec.host_memory_bytes for job in of_user[user] if job.placement is not None) for user in most]
    about = "Memory bytes allocated by jobs of the user"
    text.family(f"{prefix}_memory_alloc", GAUGE, about, zip(labels, memory, strict=True))
    gpus = [_gpus_of(of_user[user]) for user in most]
    text.family(f"{prefix}_gpus_alloc", GAUGE, "GPUs allocated by jobs of the user", zip(labels, gpus, strict=True))


NODE_STATES: Final = ("alloc", "mixed", "idle", "down", "drain", "drained", "draining")


def _node_states(parts: Parts, record: NodeRecord) -> list[str]:
    """Slurm's words for what a node does: of one that takes no jobs three, what jobs have of it first."""
    jobs = parts.read_model.assigned(record.node.name)
    word = node_word(record.node, is_lost=record.lost, has_jobs=bool(jobs))
    if word in {NodeWord.LOST, NodeWord.NO_AGENT}:
        return ["down"]
    held = slurm_word(NodeWord.UP, len(record.node.gpus), _booked(parts, record)["gpus"], has_jobs=bool(jobs))
    use = "mixed" if held == "mix" else held
    return [use] if word is NodeWord.UP else [use, "drain", "draining" if jobs else "drained"]


def _booked(parts: Parts, record: NodeRecord) -> BookedObject:
    name = record.node.name
    return booked(
        (
            [gpu.number for gpu in job.gpus_held if gpu.node == name],
            job.placement.cores_on(name),
            job.effective.part(job.spec.host_memory_bytes, len(job.placement.slots_on(name))),
        )
        for job in parts.read_model.assigned(name)
        if job.placement is not None
    )


def _nodes(text: MetricText, parts: Parts) -> None:
    records = list(parts.read_model.nodes.values())
    states = Counter(state for record in records for state in _node_states(parts, record))
    text.family("slurm_nodes", GAUGE, "Total number of nodes", [("", len(records))])
    for state in NODE_STATES:
        text.family(f"slurm_nodes_{state}", GAUGE, f"Number of nodes {state}", [("", states[state])])
    rows = [(labels_text({"node": record.node.name}), record, _booked(parts, record)) for record in records]
    for name, about, values in (
        ("cpus", "Total number of cpus in the node", [len(one.node.cores) for _, one, _ in rows]),
        ("cpus_alloc", "Allocated cpus in the node", [held["cores"] for _, _, held in rows]),
        ("cpus_idle", "Idle cpus in the node", [len(one.node.cores) - held["cores"] for _, one, held in rows]),
        ("memory_bytes", "Total memory of the node", [one.node.host_memory_bytes for _, one, _ in rows]),
        ("memory_alloc_bytes", "Bytes allocated to jobs in the node", [it["host_memory_bytes"] for _, _, it in rows]),
        ("gpus", "Total number of GPUs in the node", [len(one.node.gpus) for _, one, _ in rows]),
        ("gpus_alloc", "Allocated GPUs in the node", [held["gpus"] for _, _, held in rows]),
    ):
        samples = [(at, value) for (at, *_), value in zip(rows, values, strict=True)]
        text.family(f"slurm_node_{name}", GAUGE, about, samples)


def _partitions(text: MetricText, parts: Parts, jobs: Sequence[Job], pools: Sequence[str]) -> None:
    nodes: dict[str, Counter[str]] = {pool: Counter() for pool in pools}
    for record in parts.read_model.nodes.values():
        nodes[record.node.pool].update(["", *_node_states(parts, record)])
        nodes[record.node.pool].update(cpus=len(record.node.cores), gpus=len(record.node.gpus))
    labels = {pool: labels_text({"partition": pool}) for pool in pools}
    of_pool = {pool: [job for job in jobs if job.spec.pool == pool] for pool in pools}
    counts = {pool: _counts(of_pool[pool], {}) for pool in pools}
    prefix = "slurm_partition"
    text.family(f"{prefix}_nodes", GAUGE, "Partition total nodes", [(labels[pool], nodes[pool][""]) for pool in pools])
    for unit in ("cpus", "gpus"):
        totals = [(labels[pool], nodes[pool][unit]) for pool in pools]
        text.family(f"{prefix}_{unit}", GAUGE, f"Partition total {unit}", totals)
    gpus = [(labels[pool], _gpus_of(of_pool[pool])) for pool in pools]
    text.family(f"{prefix}_jobs_gpus_alloc", GAUGE, "GPUs allocated by jobs of the partition", gpus)
    for state in NODE_STATES:
        values = [(labels[pool], nodes[pool][state]) for pool in pools]
        text.family(f"{prefix}_nodes_{state}", GAUGE, f"Nodes {state}", values)
    text.family(f"{prefix}_jobs", GAUGE, "Number of jobs", [(labels[pool], len(of_pool[pool])) for pool in pools])
    for state in LIVE_STATES:
        values = [(labels[pool], counts[pool][state]) for pool in pools]
        text.family(f"{prefix}_jobs_{state}", GAUGE, f"Number of jobs {state}", values)
