"""Room for a waiting job by taking GPUs off running elastic ones that are to have fewer (paper E, section 3).

They save their state, stop and go on with fewer; what they give up is kept for the job, with what is free there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from colane.core.cluster.load import GpuLoad
from colane.core.planners.means import shrink_s
from colane.model.hardware import GpuId
from colane.model.job import Job, JobSpec
from colane.model.placement import Placement
from colane.model.plan import Resize
from colane.model.reason import Reason, Why
from colane.scheduling.engine.contracts import Candidate, Classes, Order, SchedulingContext
from colane.scheduling.engine.sized_rates import steps_per_s
from colane.scheduling.engine.usual import BoundSourceDefaults, SourceDefaults
from colane.scheduling.mechanisms.elastic.planned import PlannedSizes
from colane.scheduling.mechanisms.elastic.reach import kept, on_fewest_nodes
from colane.scheduling.mechanisms.elastic.running import elastic_jobs, is_resizable


@dataclass(frozen=True, slots=True)
class ByShrinking(SourceDefaults):
    """The source of GPUs that elastic jobs are to give up."""

    sizes: PlannedSizes  # how many GPUs each is to have

    def bind(self, context: SchedulingContext) -> BoundShrink | None:
        """Where nothing elastic runs there is nothing to shrink."""
        sites = _sites(self.sizes, context)
        return BoundShrink(self.sizes, context, sites) if sites else None

    def min_runtime_before_preemption_s(self, _order: Order) -> float:
        """A job that is resized is stopped, as soon as it is not protected."""
        return 0.0


@dataclass(slots=True)
class _Site:
    """A node on which GPUs come free, or would."""

    coming: list[GpuId] = field(default_factory=list)  # GPUs that jobs which are being resized give up
    shrinkable: list[_Giver] = field(default_factory=list)  # jobs that could give GPUs up, the first to do so first


@dataclass(frozen=True, slots=True)
class _Giver:
    """A running job that has more GPUs than it is to have."""

    job: Job
    keeps: tuple[GpuLoad, ...]  # with which it goes on
    gives: tuple[GpuLoad, ...]  # the others
    loss: float  # what its speed counts less by it


def _sites(sizes: PlannedSizes, context: SchedulingContext) -> dict[str, _Site]:
    sites: dict[str, _Site] = {}
    for job in elastic_jobs(context):
        if job.placement is not None and job.resizes_to is not None:
            for gpu in sorted(set(job.gpus_held) - set(job.resizes_to.gpus)):
                sites.setdefault(gpu.node, _Site()).coming.append(gpu)
        elif (giver := _giver(sizes, context, job)) is not None:
            for node in dict.fromkeys([load.id.node for load in giver.gives]):
                sites.setdefault(node, _Site()).shrinkable.append(giver)
    return sites


def _giver(sizes: PlannedSizes, context: SchedulingContext, job: Job) -> _Giver | None:
    """What a job that may be resized can give up, down to the size it is to have; None where that is nothing."""
    target = max(sizes.targets(context).get(job.id, 0), job.effective.gpus_min)
    size = max([n for n in job.effective.sizes if n <= target], default=job.gpu_count)
    if size >= job.gpu_count or context.draft.is_spared(job.id) or not is_resizable(context.draft, job):
        return None
    keeps = kept(context, job, size)
    stays = {load.id for load in keeps}
    gives = tuple([context.draft.load(gpu) for gpu in job.gpus_held if gpu not in stays])
    loss = sizes.rate(context.draft, job, job.gpu_count) - sizes.rate(context.draft, job, size)
    return _Giver(job, keeps, gives, loss)


class BoundShrink(BoundSourceDefaults):
    """`ByShrinking` for one plan."""

    def __init__(self, sizes: PlannedSizes, context: SchedulingContext, sites: dict[str, _Site]) -> None:
        self.single = True
        self._sizes = sizes
        self._context = context
        self._draft = context.draft
        self._sites = sites
        context.draft.plan_after_moves(context.pool)

    def candidates(self, job: Job, spec: JobSpec) -> Iterator[Candidate]:
        """On the node where fewest jobs have to shrink; else over several."""
        best: tuple[tuple[int, str], tuple[GpuLoad, ...], list[_Giver]] | None = None
        for name, site in self._sites.items():
            found = self._on(name, site, spec)
            if found is not None:
                shrink = len(found[1])
                if best is None or (shrink, name) < best[0]:
                    best = ((shrink, name), *found)
        over = self._over_nodes(spec) if best is None and spec.multi_node else None
        if best is not None:
            yield self._candidate(job, spec, best[1], best[2])
        elif over is not None:
            yield self._candidate(job, spec, *over)

    def may_help(self, classes: Classes) -> Classes:
        return classes if self._sites else {}

    def _on(self, name: str, site: _Site, spec: JobSpec) -> tuple[tuple[GpuLoad, ...], list[_Giver]] | None:
        """GPUs for a job on a node, and the jobs that shrink for them; None where all together are too few.

        Cores and host memory it must find free already: what the shrinking jobs give up of these is not counted.
        """
        draft, node = self._draft, self._draft.view.nodes[name]
        is_barred = node.node.pool != spec.pool or not node.node.takes_jobs or not spec.fits_one_node
        if is_barred or not draft.has_room(node, spec):
            return None
        for kind in draft.view.gpu_types_for(spec):
            loads, shrinks = self._there(name, site, kind), list[_Giver]()
            for giver in site.shrinkable:
                if len(loads) >= spec.gpus:
                    break
                if giver.gives[0].gpu.type == kind and is_resizable(draft, giver.job):
                    loads += [load for load in giver.gives if load.id.node == name]
                    shrinks.append(giver)
            fitting = [load for load in loads if draft.fits_alone(load, spec)]
            if len(fitting) >= spec.gpus:
                return tuple(fitting[: spec.gpus]), shrinks
        return None

    def _there(self, name: str, site: _Site, kind: str) -> list[GpuLoad]:
        """GPUs of a type on a node that are free, or come free."""
        draft = self._draft
        coming = [draft.load(gpu) for gpu in site.coming if gpu not in draft.held]
        return [*draft.free_gpus(draft.view.nodes[name], kind), *[load for load in coming if load.gpu.type == kind]]

    def _over_nodes(self, spec: JobSpec) -> tuple[tuple[GpuLoad, ...], list[_Giver]] | None:
        """The same over several nodes: one after the other shrinks until there are enough."""
        draft = self._draft
        for kind in draft.view.gpu_types_for(spec):
            found, shrinks = self._everywhere(spec, kind), list[_Giver]()
            gpus = on_fewest_nodes(draft, spec, found, {})
            for giver in self._givers(kind) if gpus is None else ():
                shrinks.append(giver)
                for load in giver.gives:
                    found.setdefault(load.id.node, []).append(load)
                if (gpus := on_fewest_nodes(draft, spec, found, {})) is not None:
                    break
            if gpus is not None:
                return gpus, [giver for giver in shrinks if not set(giver.gives).isdisjoint(gpus)]
        return None

    def _everywhere(self, spec: JobSpec, kind: str) -> dict[str, list[GpuLoad]]:
        """GPUs of a type, by node, that are free or come free and have the memory it needs."""
        draft = self._draft
        free = [draft.view.node_at(order).node.name for order in draft.free((spec.pool, kind)).nodes_with(1)]
        found: dict[str, list[GpuLoad]] = {}
        for name in dict.fromkeys([*free, *self._sites]):
            node = draft.view.nodes[name].node
            if node.takes_jobs and node.pool == spec.pool:
                there = self._there(name, self._sites.get(name) or _Site(), kind)
                found[name] = [load for load in there if draft.fits_alone(load, spec)]
        return found

    def _givers(self, kind: str) -> list[_Giver]:
        """Jobs that may shrink, each once, in the order in which they are asked."""
        givers = {giver.job.id: giver for site in self._sites.values() for giver in site.shrinkable}
        return [one for one in givers.values() if one.gives[0].gpu.type == kind and is_resizable(self._draft, one.job)]

    def _candidate(self, job: Job, spec: JobSpec, gpus: tuple[GpuLoad, ...], shrinks: list[_Giver]) -> Candidate:
        def accepted() -> None:
            for giver in shrinks:
                for load in giver.gives:
                    self._sites[load.id.node].coming.append(load.id)

        whole = steps_per_s(self._draft, job, job.effective.gpus)
        return Candidate(
            gpus, Reason(Why.PREEMPTING, {}, tuple([giver.job.id for giver in shrinks])),
            room=tuple([self._resize(giver.job, giver.keeps) for giver in shrinks]),
            waits_for=tuple(sorted({other for load in gpus for other in load.jobs})), accepted=accepted, is_later=True,
            ratio=steps_per_s(self._draft, job, spec.gpus) / whole if whole > 0 else 0.0,
            harm=sum([giver.loss for giver in shrinks]) / self._context.queue.weigh(job),
            cost_s=max([shrink_s(giver.job) for giver in shrinks], default=0.0),
        )  # fmt: skip

    @staticmethod
    def _resize(job: Job, keeps: tuple[GpuLoad, ...]) -> Resize:
        assert job.placement is not None  # noqa: S101 - for the type checker
        had = {slot.gpu: slot for slot in job.placement.slots}
        placement = Placement(tuple([had[load.id] for load in keeps]))
        return Resize(job.id, placement, Reason(Why.SHRUNK, {"had": job.gpu_count, "gpus": len(keeps)}))
