"""Places by utility: of all nodes of a pool, the free GPUs on which a job lies best (paper C, sections 4.2 to 4.4)."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import groupby
from operator import itemgetter, or_
from typing import Final, NamedTuple

from colane.core.cluster.bookings import NodeState
from colane.core.cluster.draft import Draft
from colane.core.cluster.free import bits
from colane.core.cluster.load import GpuLoad
from colane.model.job import Job, JobId, JobSpec
from colane.model.profile import ProfileKey
from colane.perf.estimates import profile_key
from colane.perf.topology import Comm, Shape, comm_of, excess, shape_of_node
from colane.perf.utility import NEUTRAL, Measure, Weights, harm_beside, job_utility, system_utility
from colane.scheduling.engine.choices import speeds_by_type
from colane.scheduling.engine.contracts import SchedulingContext
from colane.scheduling.mechanisms.topology.free import shares_of
from colane.scheduling.mechanisms.topology.node_fit import (
    Fit,
    Question,
    exact,
    harm_over_nodes,
    left_free,
    spread_excess,
)
from colane.scheduling.mechanisms.topology.sites import (
    Ranking,
    Resident,
    Row,
    Site,
    Sites,
    question,
    residents,
    site_of,
)

Search = Callable[[Question], tuple[Fit, ...]]  # maps a job onto a node: the best ways, the best first

DIGITS = 12  # utilities that agree to so many digits are equal, so that rounding decides nothing

ANSWER_LOOKS: Final = 2  # what it is to judge a site for a class of jobs (`Draft.looks`)

ROWS_DEAD_MAX = 64
"""A ranking may have so many rows beyond twice the living sites before those of dead sites are dropped."""


def least_utility(context: SchedulingContext, job: Job) -> float:
    """Least utility a job asks for now."""
    return 0.0 if context.is_overdue(job) else job.spec.utility_min


class Harmed(NamedTuple):
    """A neighbour that would fall below its own least utility."""

    job: JobId
    utility: float
    least: float


class Part(NamedTuple):
    """Ranks of a job on one node."""

    node: NodeState
    gpus: tuple[int, ...]  # in rank order


class UtilityPlace(NamedTuple):
    """Where a job lies best."""

    node: NodeState  # the node, the first of several
    fit: Fit  # utilities, and the GPUs on that node
    loads: tuple[GpuLoad, ...]  # all its GPUs in rank order
    parts: tuple[Part, ...] = ()  # on each of its nodes; empty where it is one

    @property
    def everywhere(self) -> tuple[Part, ...]:
        """Its GPUs node by node."""
        return self.parts or (Part(self.node, self.fit.gpus),)


@dataclass(slots=True)
class BestRefused:
    """The best that was not taken, to explain a wait."""

    node: NodeState | None = None  # of the place with the best utility, None where there is no room at all
    fit: Fit | None = None  # it
    harmed: Harmed | None = None  # jobs that it would harm on the best place that is good enough for itself

    @property
    def has_room(self) -> bool:
        """Whether any place at all was found."""
        return self.node is not None

    def note(self, node: NodeState, fit: Fit) -> None:
        """Remember a place that was passed over."""
        if self.fit is None or fit.job > self.fit.job:
            self.node, self.fit = node, fit


class _Asked(NamedTuple):
    """All of a job that its utility depends on."""

    key: ProfileKey
    comm: Comm


class BestPlaces:
    """Places in one pool for one pass.

    Args:
        draft: Where decisions are made.
        pool: Which nodes.
        search: Maps a job onto a node.
        weights: Of the utility's terms.
        protects_neighbours: Whether no job may be pushed below its own least utility.
        measure: How slowdowns by neighbours count.
    """

    def __init__(
        self,
        draft: Draft,
        pool: str,
        search: Search = exact,
        weights: Weights = NEUTRAL,
        *,
        protects_neighbours: bool = False,
        measure: Measure = Measure.EXCESS,
    ) -> None:
        self._draft = draft
        self._pool = pool
        self._search = search
        self._weights = weights
        self._protects_neighbours = protects_neighbours
        self._measure = measure
        self._sites: dict[str, Sites] = {}
        self._changed: dict[str, NodeState] = {}
        self._followed = 0
        self._settings = (search, weights, measure, draft.beliefs.neighbours.version)
        self.refused = BestRefused()

    def best(self, spec: JobSpec, least: float) -> UtilityPlace | None:
        """Best place, of several GPU types by speed times utility, whose utility for the job is at least `least`.

        `refused` says what was passed over.

        Without a least utility the job goes to the best place there is and its neighbours have to bear it.
        """
        self.refused = BestRefused()
        self._follow()
        best: tuple[float, UtilityPlace] | None = None
        for kind, ratio in speeds_by_type(self._draft, spec, self._draft.view.gpu_types_for(spec)):
            for place in self._first(spec, kind, least):
                worth = ratio * place.fit.system
                if best is None or worth > best[0]:
                    best = worth, place
        return None if best is None else best[1]

    def _follow(self) -> None:
        """Look again at the nodes about which something was decided in this draft, by whichever part, since last time.

        What was decided before these places were first asked counts as well: they may be made in the middle of a plan.
        """
        touched = self._draft.touched
        nodes = dict.fromkeys([gpu.node for gpu in touched[self._followed :]]) if self._followed < len(touched) else ()
        self._followed = len(touched)
        for name in nodes:
            node = self._changed[name] = self._draft.view.nodes[name]
            for sites in self._sites.values():
                sites.changed(node)

    def _first(self, spec: JobSpec, gpu_type: str, least: float) -> Iterator[UtilityPlace]:
        """The best place on GPUs of one type, if any: on one node, else on several where the job may span them."""
        for place in self._places(spec, gpu_type, least):
            if place.fit.job >= least and not self._harms(place, spec, least):
                yield place
                return
            self.refused.note(place.node, place.fit)

    def _places(self, spec: JobSpec, gpu_type: str, least: float) -> Iterator[UtilityPlace]:
        if spec.fits_one_node:
            for row, node in self._candidates(spec, gpu_type, least):
                place = self._on(node, spec, gpu_type, row.fit)
                if place is not None:
                    yield place
        if spec.multi_node and spec.gpus > 1:
            spread = self._spread(spec, gpu_type)
            if spread is not None:
                yield spread

    def _spread(self, spec: JobSpec, gpu_type: str) -> UtilityPlace | None:
        """On as few nodes as possible, those with the most free GPUs first."""
        asked, shares = _Asked(profile_key(spec, gpu_type), comm_of(spec)), shares_of(self._draft, spec, gpu_type)
        if shares is None:
            return None
        found: list[tuple[Question, tuple[int, ...]]] = []
        for node, fitting, ranks in shares:
            on = self._question(site_of(self._draft, node, _numbers(fitting)), asked, ranks)
            found.append((on, self._search(on)[0].gpus))
        suffered, caused = harm_over_nodes(found)
        comm = spread_excess(_shaped(found), asked.comm, on_each=spec.gpus_per_node)
        left = sum(left_free(on, gpus) for on, gpus in found) / len(found)
        parts = tuple([Part(share.node, gpus) for share, (_, gpus) in zip(shares, found, strict=True)])
        fit = Fit(
            system_utility(comm, (suffered + caused) / 2, left, self._weights),
            job_utility(comm, suffered, self._weights),
            parts[0].gpus,
        )
        loads = [self._draft.load(part.node.ids[gpu]) for part in parts for gpu in part.gpus]
        return UtilityPlace(parts[0].node, fit, tuple(loads), parts)

    def _candidates(self, spec: JobSpec, gpu_type: str, least: float) -> Iterator[tuple[Row, NodeState]]:
        """Places, best first; of equally good nodes the lowest order number first.

        Places below the least utility are named only until one with room is found: they are not taken anyway.
        """
        sites = self._sites_of(gpu_type)
        rows = self._ranking(spec, gpu_type, sites).rows
        for (_, minus_job), equal in groupby(rows, key=itemgetter(0, 1)):
            if -minus_job < least and self.refused.fit is not None and self.refused.fit.job >= -minus_job:
                continue
            living = [(row, nodes) for row in equal if (nodes := sites.nodes(row.site))]
            for order in bits(reduce(or_, [nodes for _, nodes in living], 0)):
                if -minus_job < least and self.refused.fit is not None and self.refused.fit.job >= -minus_job:
                    break
                row = next(row for row, nodes in living if nodes >> order & 1)
                yield row, self._draft.view.node_at(order)

    def _sites_of(self, gpu_type: str) -> Sites:
        """Made when first asked for, with all that has been decided before, by other sources too."""
        sites = self._sites.get(gpu_type)
        if sites is None:
            sites = self._sites[gpu_type] = Sites(self._draft, (self._pool, gpu_type))
            for node in self._changed.values():
                sites.changed(node)
        return sites

    def _ranking(self, spec: JobSpec, gpu_type: str, sites: Sites) -> Ranking:
        """Answers of all living sites, best first."""
        asked, table = _Asked(profile_key(spec, gpu_type), comm_of(spec)), sites.table
        ranking = table.ranking((asked, self._settings))
        for number in table.log[ranking.seen :]:
            if number not in ranking.answered and sites.is_living(number):
                ranking.answered.add(number)
                self._draft.looks += ANSWER_LOOKS
                for fit in self._search(self._question(table.known[number], asked)):
                    insort(ranking.rows, Row(-round(fit.system, DIGITS), -round(fit.job, DIGITS), number, fit))
        ranking.seen = len(table.log)
        if len(ranking.rows) > 2 * sites.living + ROWS_DEAD_MAX:
            ranking.drop(sites.is_living)
        return ranking

    def _question(self, site: Site, asked: _Asked, ranks: int | None = None) -> Question:
        """For all ranks of a job, or for so many of them."""
        count = asked.key.gpus if ranks is None else ranks
        return question(self._draft.beliefs, site, asked.key, count, asked.comm, self._weights, self._measure)

    def _harm(self, key: ProfileKey, by: ProfileKey) -> float:
        return harm_beside(self._draft.beliefs, key, by, self._measure)

    def _on(self, node: NodeState, spec: JobSpec, gpu_type: str, fit: Fit) -> UtilityPlace | None:
        """The place on a node, if it has the cores and the memory; on other GPUs of it where some lack memory."""
        draft = self._draft
        if not draft.has_room(node, spec):
            return None
        loads = [draft.load(node.ids[gpu]) for gpu in fit.gpus]
        if draft.all_fit_alone(loads, spec):
            return UtilityPlace(node, fit, tuple(loads))
        return self._among_fitting(node, spec, gpu_type)

    def _among_fitting(self, node: NodeState, spec: JobSpec, gpu_type: str) -> UtilityPlace | None:
        fitting = [load for load in self._draft.free_gpus(node, gpu_type) if self._draft.fits_alone(load, spec)]
        site = site_of(self._draft, node, _numbers(fitting))
        fits = self._search(self._question(site, _Asked(profile_key(spec, gpu_type), comm_of(spec))))
        by_number = {load.id.number: load for load in fitting}
        return UtilityPlace(node, fits[0], tuple(by_number[gpu] for gpu in fits[0].gpus)) if fits else None

    # -- neighbours

    def _harms(self, place: UtilityPlace, spec: JobSpec, least: float) -> bool:
        """Whether a neighbour would fall below its own least utility; noted if so."""
        if not self._protects_neighbours or not least:
            return False
        key = profile_key(spec, place.loads[0].gpu.type)
        harmed = next((one for part in place.everywhere for one in self._harmed(part, key)), None)
        if harmed is not None and self.refused.harmed is None:
            self.refused.harmed = harmed
        return harmed is not None

    def _harmed(self, part: Part, key: ProfileKey) -> Iterator[Harmed]:
        shape = shape_of_node(part.node.node)
        sockets = shape.sockets_of(part.gpus)
        all_residents = residents(self._draft, part.node)
        for one in all_residents:
            spec = self._draft.view.job(one.job).effective
            if spec.utility_min and shape.sockets_of(one.gpus) & sockets and self._harm(one.key, key):
                now, then = self._utilities(shape, one, spec, all_residents, key)
                if then < spec.utility_min and then < now:
                    yield Harmed(one.job, then, spec.utility_min)

    def _utilities(
        self, shape: Shape, one: Resident, spec: JobSpec, all_residents: list[Resident], key: ProfileKey
    ) -> tuple[float, float]:
        """Utility of a job that runs, as it is and with the newcomer on one of its sockets."""
        mine, gpus = shape.sockets_of(one.gpus), self._draft.view.job(one.job).gpu_count
        near = [other for other in all_residents if other.job != one.job and shape.sockets_of(other.gpus) & mine]
        suffered = max((self._harm(one.key, other.key) for other in near), default=0.0)
        comm = excess(shape, one.gpus, comm_of(spec)) if len(one.gpus) == gpus else 0.0
        worse = max(suffered, self._harm(one.key, key))
        return job_utility(comm, suffered, self._weights), job_utility(comm, worse, self._weights)


# -- of GPUs that others leave


def best_emptied(
    draft: Draft, node: NodeState, spec: JobSpec, loads: Sequence[GpuLoad], least: float
) -> tuple[GpuLoad, ...] | None:
    """Of GPUs of a node, those on which a job's utility is highest once all are empty; None where it is below `least`.

    Args:
        draft: Decisions so far.
        node: Where they are.
        spec: A job of so many of them at most.
        loads: GPUs of one type that are free, or that all jobs on them leave.
        least: Utility that the job asks for.
    """
    by_number = {load.id.number: load for load in loads}
    best = max(exact(_once_empty(draft, node, spec, loads, spec.gpus)), key=lambda fit: fit.job, default=None)
    return None if best is None or best.job < least else tuple([by_number[gpu] for gpu in best.gpus])


def utility_over_nodes(draft: Draft, spec: JobSpec, parts: Iterable[tuple[NodeState, Sequence[GpuLoad]]]) -> float:
    """Utility of a job on GPUs of several nodes once these are empty."""
    found = [(_once_empty(draft, node, spec, loads, len(loads)), _numbers(loads)) for node, loads in parts]
    comm = spread_excess(_shaped(found), comm_of(spec), on_each=spec.gpus_per_node)
    return job_utility(comm, harm_over_nodes(found)[0])


def _once_empty(draft: Draft, node: NodeState, spec: JobSpec, loads: Sequence[GpuLoad], ranks: int) -> Question:
    site, key = site_of(draft, node, _numbers(loads)), profile_key(spec, loads[0].gpu.type)
    return question(draft.beliefs, site, key, ranks, comm_of(spec))


def _shaped(parts: Iterable[tuple[Question, tuple[int, ...]]]) -> list[tuple[Shape, tuple[int, ...]]]:
    return [(on.shape, gpus) for on, gpus in parts]


def _numbers(loads: Sequence[GpuLoad]) -> tuple[int, ...]:
    return tuple([load.id.number for load in loads])
