"""Who is to run in the present round, and on which GPU type: Gavel's mechanism (OSDI 2020, section 5).

Wishes, each of one job for one type, are gone through in order; a job gets the first of its wishes for which there are
GPUs left. Jobs that started in this round, or may not be stopped, stay where they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from colane.core.cluster.draft import Draft
from colane.model.job import Job, JobId, JobState
from colane.scheduling.engine.aim import Aim, Members, Site, TypeWish
from colane.scheduling.engine.times import gpu_type_of


def aim(draft: Draft, members: Members, wishes: Iterable[TypeWish], until_s: float) -> Aim:
    """Who is to run where, if these are all wishes."""
    ordered = sorted(wishes)
    return Aim(members, ordered, _placed(draft, members, _chosen(draft, members, ordered)), until_s)


def _chosen(draft: Draft, members: Members, wishes: Iterable[TypeWish]) -> dict[JobId, str]:
    """By the GPUs of each type alone."""
    left: dict[str, int] = {}
    for (_, kind), count in members.gpus.items():
        left[kind] = left.get(kind, 0) + count
    chosen: dict[JobId, str] = {}
    for wish in wishes:
        gpus = draft.view.job(wish.job).gpu_count
        if wish.job not in chosen and gpus <= left.get(wish.gpu_type, 0):
            chosen[wish.job] = wish.gpu_type
            left[wish.gpu_type] -= gpus
    return chosen


def _placed(draft: Draft, members: Members, chosen: Mapping[JobId, str]) -> dict[JobId, str]:
    """Those chosen for whom there is room on one node, or on several where they may lie so.

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
    rooms = [(count, site) for site, count in left.items() if site[1] == kind and count >= gpus]
    if rooms:
        return {min(rooms)[1]: gpus}
    if not job.spec.multi_node or sum([count for site, count in left.items() if site[1] == kind]) < gpus:
        return None
    sites: dict[Site, int] = {}
    for site in sorted([site for site in left if site[1] == kind], key=lambda site: (-left[site], site)):
        sites[site] = min(gpus, left[site])
        gpus -= sites[site]
    return sites
