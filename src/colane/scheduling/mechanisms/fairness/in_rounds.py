"""Rounds on several GPU types: in each, jobs get the types they have had too little of, and move there.

Gavel's mechanism (Narayanan et al., OSDI 2020, section 5). A round is looked at whenever anything happens, not only
when it begins; a job is moved once a round at most. The orders that use it say what each job asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import floor, inf
from typing import Final, NamedTuple

import numpy as np

from colane.core.cluster.contents import NodesMatterNot
from colane.core.cluster.draft import Draft
from colane.core.cluster.view import ClusterView
from colane.facts.ran import present_s
from colane.model.job import Job, JobId, JobSpec, JobState, NeedClass
from colane.model.plan import Action, Stop
from colane.scheduling.engine.contracts import BoundOrder, Rank
from colane.scheduling.engine.live import Kept, LiveJobs
from colane.scheduling.engine.times import gpu_type_of
from colane.scheduling.engine.walks import each_ranked, priority_of, ranked
from colane.scheduling.mechanisms.fairness.aim import Aim, Members, Site, TypeRequest
from colane.scheduling.mechanisms.fairness.allocation import max_min
from colane.scheduling.mechanisms.fairness.shares import FairShares

ROUND_MIN_S: Final = 1.0  # no round is shorter: at the end of each the whole pool is planned anew


class Round(NamedTuple):
    """When a round began, and when it ends."""

    start_s: float
    end_s: float


def present_round(draft: Draft, pool: str, quantum_s: float) -> Round:
    """The round of a pool, whose rounds are counted from when its oldest live job was submitted.

    So what is decided depends on no clock's zero, and a restarted scheduler goes on in the same round.
    """
    oldest = next(iter(draft.view.derived(LiveJobs).pool(pool).jobs.values()), None)
    return round_of(draft.now_s, quantum_s, draft.now_s if oldest is None else oldest.submit_s)


def round_of(now_s: float, quantum_s: float, since_s: float) -> Round:
    """The last one that begins at `since_s + n * quantum_s` and not after now; it ends after now."""
    quantum_s = max(quantum_s, ROUND_MIN_S)
    number = floor((now_s - since_s) / quantum_s)
    if since_s + (number + 1) * quantum_s <= now_s:
        number += 1
    elif since_s + number * quantum_s > now_s:
        number -= 1
    return Round(since_s + number * quantum_s, since_s + (number + 1) * quantum_s)


# -- time in rounds, for orders that would otherwise change from one moment to the next


TypeRequests = Callable[[Job, float], Iterable[TypeRequest]]  # what a job asks for in the round that began then

Parts = Mapping[NeedClass, Mapping[str, float]]  # parts of its time that a job of a class is to spend on each GPU type


def in_rounds(draft: Draft, pool: str, quantum_s: float, requests: TypeRequests) -> BoundOrder:
    """Jobs in the order of what they ask for, each on the type it is to have."""
    round_s, end_s = present_round(draft, pool, quantum_s)
    members = Members(draft, pool, round_s)
    wanted = [request for job in members.all for request in requests(job, round_s)]
    found = aim(draft, members, wanted, end_s)
    keys: dict[int, Rank] = {}
    for request in found.requests:
        keys.setdefault(request.job, request.key)

    def rank(job: Job) -> Rank:
        return keys.get(job.id, (priority_of(job.spec), inf))

    def preferred(job: Job, _spec: JobSpec, types: list[str]) -> list[str]:
        """What it is to have; any type once nothing more comes free for that."""
        aimed = found.types.get(job.id)
        if members.going or any(map(_stops, draft.actions)):
            return [kind for kind in types if kind == aimed]
        return sorted(types, key=lambda kind: kind != aimed)

    return BoundOrder(
        walk=ranked(draft, each_ranked(draft, rank)),
        rank=rank,
        displaces=_no_job,
        quantum_s=quantum_s,
        preferred=preferred,
        aim=found,
    )


def _stops(action: Action) -> bool:
    return isinstance(action, Stop)


def _no_job(_waiting: Rank, _running: Rank) -> bool:
    """Which jobs are to leave is part of the aim."""
    return False


def requests_for_lacks(draft: Draft, pool: str, quantum_s: float, shares: FairShares) -> TypeRequests:
    """By what the linear program gives each job of a type over what it has had of it."""
    parts = draft.view.derived(Allocations).parts(draft.view, pool, shares)

    def requests(job: Job, round_s: float) -> Iterable[TypeRequest]:
        had_s, age_s = _had_s(draft.view, job, round_s), max(0.0, round_s - job.submit_s)
        for kind, speed in shares.usable(job.effective):
            lacks = parts[job.effective.need][kind] * (age_s + quantum_s) / (had_s.get(kind, 0.0) + quantum_s / 2)
            key = (priority_of(job.spec), -round(lacks, 9), -round(speed, 9), job.submit_s)
            yield TypeRequest(key, job.id, kind, speed)

    return requests


def _had_s(view: ClusterView, job: Job, now_s: float) -> dict[str, float]:
    """How long it has run on each type."""
    had_s = {served.gpu_type: served.run_s for served in job.totals.served}
    here = gpu_type_of(view, job)
    if here is not None:
        had_s[here] = had_s.get(here, 0.0) + present_s(job, now_s)
    return had_s


class _Known(NamedTuple):
    version: int
    kept: Kept
    parts: Parts


class Allocations(NodesMatterNot):
    """Solutions of the linear program, kept while jobs, beliefs and GPUs stay as they are."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def parts(self, view: ClusterView, pool: str, shares: FairShares) -> Parts:
        """What each class of need is to have."""
        live = view.derived(LiveJobs)
        version, kept, known = live.pool(pool).version, live.kept(view, pool), self._known.get(pool)
        if known is None or known.version != version or known.kept is not kept:
            known = self._known[pool] = _Known(version, kept, _solved(view, pool, shares))
        return known.parts


def _solved(view: ClusterView, pool: str, shares: FairShares) -> Parts:
    live, types = view.derived(LiveJobs), shares.types
    needs, gpus = live.pool(pool).needs, live.gpus(view, pool)
    if not needs:
        return {}
    speeds = np.array([[shares.speed_if_any(need.spec, kind) for kind in types] for need in needs.values()])
    jobs, size = [need.jobs for need in needs.values()], [need.spec.gpus for need in needs.values()]
    parts = max_min(speeds, jobs, size, [gpus[kind] for kind in types])
    return {need: dict(zip(types, map(float, row), strict=True)) for need, row in zip(needs, parts, strict=True)}


# -- which job is to run in the present round, and on which GPU type: Gavel's mechanism (OSDI 2020, section 5)
#
# Requests, each of one job for one type, are gone through in order; a job gets the first of its own for which there
# are GPUs left. Jobs that started in this round, or may not be stopped, stay where they are.


def aim(draft: Draft, members: Members, requests: Iterable[TypeRequest], until_s: float) -> Aim:
    """Which job is to run where, if these are all requests."""
    ordered = sorted(requests)
    return Aim(members, ordered, _placed(draft, members, _chosen(draft, members, ordered)), until_s)


def _chosen(draft: Draft, members: Members, requests: Iterable[TypeRequest]) -> dict[JobId, str]:
    """By the GPUs of each type alone."""
    left: dict[str, int] = {}
    for (_, kind), count in members.gpus.items():
        left[kind] = left.get(kind, 0) + count
    chosen: dict[JobId, str] = {}
    for request in requests:
        gpus = draft.view.job(request.job).gpu_count
        if request.job not in chosen and gpus <= left.get(request.gpu_type, 0):
            chosen[request.job] = request.gpu_type
            left[request.gpu_type] -= gpus
    return chosen


def _placed(draft: Draft, members: Members, chosen: Mapping[JobId, str]) -> dict[JobId, str]:
    """Those chosen for which there is room on one node, or on several where they may lie so.

    The largest are placed first, on the fullest node; of those alike the ones that stay where they are.
    """
    view, left, placed = draft.view, dict(members.gpus), dict[JobId, str]()
    staying = {job for job, kind in chosen.items() if gpu_type_of(view, view.job(job)) == kind}
    staying = {job for job in staying if view.job(job).state is JobState.RUNNING}
    for job in sorted(map(view.job, chosen), key=lambda job: (-job.gpu_count, job.id not in staying)):
        kind = chosen[job.id]
        sites = _stays(job, kind, left) if job.id in staying else None
        sites = _fits(job, kind, left) if sites is None else sites
        if sites is not None:
            placed[job.id] = kind
            for site, gpus in sites.items():
                left[site] -= gpus
    return placed


def _stays(job: Job, kind: str, left: Mapping[Site, int]) -> dict[Site, int] | None:
    sites: dict[Site, int] = {}
    for gpu in job.gpus_held:
        sites[gpu.node, kind] = sites.get((gpu.node, kind), 0) + 1
    return sites if all(left[site] >= gpus for site, gpus in sites.items()) else None


def _fits(job: Job, kind: str, left: Mapping[Site, int]) -> dict[Site, int] | None:
    gpus = job.gpu_count
    spec = job.effective
    rooms = [(count, site) for site, count in left.items() if site[1] == kind and count >= gpus]
    if rooms and spec.fits_one_node:
        return {min(rooms)[1]: gpus}
    most = {site: spec.ranks_of(count) for site, count in left.items() if site[1] == kind}
    if not job.spec.multi_node or sum(most.values()) < gpus:
        return None
    sites: dict[Site, int] = {}
    for site in sorted(most, key=lambda site: (-left[site], site)):
        sites[site] = min(gpus, most[site])
        gpus -= sites[site]
    return sites
