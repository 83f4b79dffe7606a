"""What needs a look: made here once, so that page, `colane top` and notes say the same, in the same order."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from colane.api.seeing import IdleObject, LookObject
from colane.core.cluster.co_runners import Pacing
from colane.facts.job import stalled
from colane.model.device_use import THERMAL, DeviceUsage
from colane.model.hardware import Gpu
from colane.model.job import Job, JobId
from colane.model.progress import STALLED_MIN_S, Progress
from colane.model.words import count, percent
from colane.server.board.read_model import NodeRecord
from colane.server.writer.driver import LiveDriver

BROKEN: Final = "broken"
LOOK: Final = "look"
SILENT_MIN_S: Final = 10.0
"""A node that is silent for so long, and for `SILENT_REPORTS` reports, is worth a look before it counts as lost."""
SILENT_REPORTS: Final = 3
SLOW_RATIO_MAX: Final = 0.6
"""Below this part of its speed alone a job is worth a look, what its turns and its size make of it aside."""

VAIN_MOVES: Final = 20  # a job that was stopped and started so often, and has kept no step, gets nowhere

ORDER: Final = (
    "store", "policy", "node-lost", "gpu-broken", "node-silent", "gpu-error", "records", "node-closed", "draining",
    "idle", "stalled", "in-vain", "gpu-hot", "slow", "others", "no-node",
)  # fmt: skip
"""Worst first."""


def look_item(
    level: str,
    code: str,
    sentence: str,
    *,
    node: str | None = None,
    gpu: str | None = None,
    job: Job | None = None,
    since_s: float | None = None,
    act: str = "none",
) -> LookObject:
    """Return one thing that needs a look."""
    return {
        "level": level,
        "code": code,
        "sentence": sentence,
        "node": node,
        "gpu": gpu,
        "job": None if job is None else job.id,
        "user": None if job is None else job.spec.user,
        "since_s": since_s,
        "act": act,
    }


def in_order(items: Iterable[LookObject]) -> list[LookObject]:
    """Worst first."""
    return sorted(items, key=lambda one: ORDER.index(one["code"]))


def silent_s(last_seen_s: float | None, now_s: float, heartbeat_s: float) -> float | None:
    """Return for how long nothing was heard of a node; None where that is not worth a look, or not known."""
    passed_s = 0.0 if last_seen_s is None else now_s - last_seen_s
    return passed_s if passed_s >= max(SILENT_MIN_S, SILENT_REPORTS * heartbeat_s) else None


def silent_node(record: NodeRecord, last_seen_s: float | None, passed_s: float) -> LookObject:
    """Tell of a node that may be lost."""
    name = record.node.name
    then = "its jobs are queued again once its lease is over" if record.leased else "its jobs wait for it"
    text = f"nothing is heard of {name} for {span(passed_s)}: {then}"
    return look_item(LOOK, "node-silent", text, node=name, since_s=last_seen_s)


def of_node(
    record: NodeRecord, last_seen_s: float | None, uses: Iterable[DeviceUsage], odd: Collection[int], now_s: float
) -> Iterator[LookObject]:
    """Yield what needs a look on a node; of its devices only `odd` ones are looked at."""
    node, name = record.node, record.node.name
    if record.lost:
        silent = "" if last_seen_s is None else f", silent for {span(now_s - last_seen_s)}"
        level, text = (BROKEN, f"{name} is lost{silent}") if node.agent_id else (LOOK, f"{name} waits for its agent")
        yield look_item(level, "node-lost", text, node=name, since_s=last_seen_s)
        return
    if node.closed is not None:
        yield look_item(LOOK, "node-closed", f"{name} takes no jobs: {node.closed.why}", node=name, act="why")
    for drain in node.drains:
        left = "" if drain.deadline_s is None else f", {span(max(0.0, drain.deadline_s - now_s))} left"
        text = f"{name} drains{left}, {drain.because}"
        yield look_item(LOOK, "draining", text, node=name, since_s=drain.since_s, act="undrain")
    if odd:
        seen = {use.index: use for use in uses if use.index in odd}
        for gpu in node.gpus:
            if gpu.index in odd:
                yield from _of_gpu(name, gpu, seen.get(gpu.index))


def _of_gpu(name: str, gpu: Gpu, use: DeviceUsage | None) -> Iterator[LookObject]:
    said = f"{name}/{gpu.index}"
    xid = "" if use is None or use.xid is None else f"Xid {use.xid}"
    if not gpu.healthy:
        error = f" ({xid})" if xid else ""
        yield look_item(BROKEN, "gpu-broken", f"{said} does not work any more{error}", node=name, gpu=said)
        return
    if xid:
        yield look_item(LOOK, "gpu-error", f"{said}: its driver told of {xid}", node=name, gpu=said)
    hot = sorted(THERMAL.intersection(() if use is None else use.throttle or ()))
    if hot:
        yield look_item(LOOK, "gpu-hot", f"{said} is slowed down: {', '.join(hot)}", node=name, gpu=said)
    if gpu.is_disturbed:
        text = f"work that is not Colane's uses {percent(gpu.others_ratio)} of {said}"
        yield look_item(LOOK, "others", text, node=name, gpu=said)


def of_job(driver: LiveDriver, job: Job, idle: IdleObject | None, pacing: Pacing | None) -> Iterator[LookObject]:
    """Yield what needs a look of a job that has a place."""
    where = None if job.placement is None else job.placement.node
    if is_in_vain(job):
        text = f"job {job.said} gets nowhere: stopped and started {count(job.moves, 'time')}, no step kept"
        yield look_item(LOOK, "in-vain", text, node=where, job=job, act="why")
    if idle is not None:
        text = f"job {job.said} is idle for {span(idle['idle_s'])}: no step, no kernel, {_held(job)} held"
        if idle["problem"]:
            text += f"; not parked: {idle['problem']}"
        yield look_item(LOOK, "idle", text, node=where, job=job, since_s=idle["since_s"], act="cancel")
        return
    progress = driver.progress.get(job.id)
    stalls = stalled(job, progress) if progress is not None and may_stall(progress) else None
    if stalls is not None:
        text = f"job {job.said} has made no step for {span(stalls.no_step_s)} (usually {stalls.step_s:.2g} s)"
        yield look_item(LOOK, "stalled", text, node=where, job=job, act="why")
        return
    if pacing is not None and progress is not None:
        yield from _slow(job, where, pacing)


def is_in_vain(job: Job) -> bool:
    """Whether it is stopped and started again and again, by the policy or whatever else, and begins anew each time."""
    return job.moves >= VAIN_MOVES and not job.totals.steps_kept


def may_stall(progress: Progress) -> bool:
    """Whether its last step is long enough ago: that of most jobs is not, and there are thousands."""
    return progress.last_step_s is not None and progress.at_s >= progress.last_step_s + STALLED_MIN_S


def may_have_stalled(samples: Mapping[JobId, Progress]) -> set[JobId]:
    """Return the jobs of which that holds."""
    return {
        job
        for job, one in samples.items()
        if one.last_step_s is not None and one.at_s >= one.last_step_s + STALLED_MIN_S
    }


def beside_others(pacing: Pacing) -> float:
    """Speed of a job of that alone, what its turns and its size make of it aside."""
    factors = pacing.rate.factors
    return 1 / max(1e-9, factors.cores.slowdown * max(factors.bus.slowdown, factors.gpu.slowdown))


def _slow(job: Job, where: str | None, pacing: Pacing) -> Iterator[LookObject]:
    factors, ratio = pacing.rate.factors, beside_others(pacing)
    if ratio < SLOW_RATIO_MAX:
        slowdowns = {"cores": factors.cores, "neighbours": factors.bus, "jobs on its GPU": factors.gpu}
        by = max(slowdowns, key=lambda name: slowdowns[name].slowdown)
        text = f"job {job.said} runs at {ratio:.2f} of its speed alone, for its {by}"
        yield look_item(LOOK, "slow", text.replace("its jobs", "other jobs"), node=where, job=job, act="why")


def nowhere(ids: list[JobId]) -> LookObject:
    """That jobs wait for nodes that are not there, or take none."""
    verb = "waits" if len(ids) == 1 else "wait"
    return look_item(LOOK, "no-node", f"{count(len(ids), 'job')} {verb} for nodes that are not there", act="why")


def _held(job: Job) -> str:
    return count(len(job.gpus_held), "GPU")


def span(seconds: float) -> str:
    """Return a time as it is told in passing: `42 s`, `42 min`, `3.5 h`."""
    if seconds < 100:
        return f"{max(0.0, seconds):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
