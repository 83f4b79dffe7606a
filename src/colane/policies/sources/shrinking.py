"""Room for a waiting job by taking GPUs off running elastic ones that are to have fewer (paper E, section 3).

They save their state, stop and go on with fewer; what they give up is kept for the job, with what is free there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf

from colane.core.load import GpuLoad
from colane.model.hardware import GpuId
from colane.model.job import Job, JobId, JobSpec
from colane.model.placement import Placement
from colane.model.plan import Resize
from colane.model.reason import Reason, Why
from colane.policies.elastic.fair_throughput import USUAL_SIZES, FairThroughput, elastic_jobs, is_resizable
from colane.policies.elastic.rebalancing import kept
from colane.policies.parts import Classes, Desk, Offer, Order, Rank
from colane.policies.usual import UsualFinder


@dataclass(frozen=True, slots=True)
class ByShrinking:
    """See the module.

    Attributes:
        sizes: How many GPUs each is to have.
    """

    sizes: FairThroughput = USUAL_SIZES

    def bind(self, desk: Desk) -> ShrinkFinder | None:
        """See `Source`; where nothing elastic runs there is nothing to shrink."""
        sites = _sites(self.sizes, desk)
        return ShrinkFinder(desk, sites) if sites else None

    def spares_s(self, _order: Order) -> float:
        """A job that is resized is stopped, as soon as it is not protected."""
        return 0.0


@dataclass(slots=True)
class _Site:
    """A node on which GPUs come free, or would.

    Attributes:
        coming: GPUs that jobs which are being resized give up.
        shrinkable: Running jobs with what each would keep and give up.
    """

    coming: list[GpuId] = field(default_factory=list)
    shrinkable: list[tuple[Job, tuple[GpuLoad, ...], tuple[GpuLoad, ...]]] = field(default_factory=list)


def _sites(sizes: FairThroughput, desk: Desk) -> dict[str, _Site]:
    sites: dict[str, _Site] = {}
    for job in elastic_jobs(desk):
        if job.placement is None or len(job.placement.nodes) != 1:
            continue
        if job.resizes_to is not None:
            given = set(job.placement.gpus) - set(job.resizes_to.gpus)
            if given:
                sites.setdefault(job.placement.node, _Site()).coming += sorted(given)
        elif is_resizable(job):
            target = max(sizes.targets(desk).get(job.id, 0), job.spec.gpus_min)
            size = max([n for n in job.spec.sizes if n <= target], default=job.gpu_count)
            if size < job.gpu_count:
                keeps = kept(desk, job, size)
                gives = tuple([desk.draft.load(g) for g in job.gpus_held if g not in {load.id for load in keeps}])
                sites.setdefault(job.placement.node, _Site()).shrinkable.append((job, keeps, gives))
    return sites


class ShrinkFinder(UsualFinder):
    """See `ByShrinking`."""

    def __init__(self, desk: Desk, sites: dict[str, _Site]) -> None:
        self.single = True
        self._desk = desk
        self._draft = desk.draft
        self._sites = sites
        desk.draft.ask_again(desk.pool, inf)

    def offers(self, _job: Job, spec: JobSpec) -> Iterator[Offer]:
        """See `Finder`: on the node where fewest jobs have to shrink."""
        best: tuple[int, str, tuple[GpuLoad, ...], list[JobId]] | None = None
        for name, site in self._sites.items():
            found = self._on(name, site, spec)
            if found is not None and (best is None or (len(found[1]), name) < best[:2]):
                best = (len(found[1]), name, *found)
        if best is not None:
            yield self._offer(best[1], best[2], best[3])

    def worth(self, classes: Classes) -> Classes:
        """See `Finder`."""
        return classes if self._sites else {}

    def has_hope(self, _rank: Rank) -> bool:
        """See `Finder`."""
        return bool(self._sites)

    def _on(self, name: str, site: _Site, spec: JobSpec) -> tuple[tuple[GpuLoad, ...], list[JobId]] | None:
        """GPUs for a job on a node, and who has to shrink for them; None where all together are too few.

        Cores and host memory it must find free already: what those who shrink give up of these is not counted.
        """
        draft, node = self._draft, self._draft.view.nodes[name]
        is_barred = node.node.pool != spec.pool or bool(node.node.drains) or spec.anti_collocation
        if is_barred or not draft.has_room(node, spec):
            return None
        for kind in draft.view.gpu_types(spec.pool, spec.gpu_type):
            free = list(draft.free_gpus(node, kind))
            coming = [draft.load(gpu) for gpu in site.coming if gpu not in draft.held]
            loads, shrinks = [load for load in (*free, *coming) if load.gpu.type == kind], list[JobId]()
            for job, _, gives in site.shrinkable:
                if len(loads) >= spec.gpus:
                    break
                if gives[0].gpu.type == kind:
                    loads += gives
                    shrinks.append(job.id)
            fitting = [load for load in loads if draft.fits_alone(load, spec)]
            if len(fitting) >= spec.gpus:
                return tuple(fitting[: spec.gpus]), shrinks
        return None

    def _offer(self, name: str, gpus: tuple[GpuLoad, ...], shrinks: list[JobId]) -> Offer:
        site = self._sites[name]
        room = tuple([self._resize(job, keeps) for job, keeps, _ in site.shrinkable if job.id in shrinks])

        def accepted() -> None:
            gone = [gives for job, _, gives in site.shrinkable if job.id in shrinks]
            site.coming += [load.id for gives in gone for load in gives]
            site.shrinkable = [entry for entry in site.shrinkable if entry[0].id not in shrinks]

        waits_for = tuple(sorted({job for load in gpus for job in load.jobs}))
        reason = Reason(Why.MAKING_ROOM, {}, tuple(shrinks))
        return Offer(gpus, reason, room=room, waits_for=waits_for, accepted=accepted, is_later=True)

    @staticmethod
    def _resize(job: Job, keeps: tuple[GpuLoad, ...]) -> Resize:
        assert job.placement is not None  # noqa: S101 - for the type checker
        had = {slot.gpu: slot for slot in job.placement.slots}
        placement = Placement(tuple([had[load.id] for load in keeps]))
        return Resize(job.id, placement, Reason(Why.SHRUNK, {"had": job.gpu_count, "gpus": len(keeps)}))
