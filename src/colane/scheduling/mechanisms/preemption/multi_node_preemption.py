"""Preemption on several nodes, for a job that may span them: all of its ranks find a GPU, or no job leaves.

Where one node is not enough, of all jobs whose place it may take the least valuable leave, on any nodes, until their
GPUs with those that are free or come free are enough; then jobs that need not go are spared.
"""

from __future__ import annotations

from typing import NamedTuple

from colane.core.cluster.load import GpuLoad
from colane.model.job import Job, JobId, JobSpec
from colane.scheduling.engine.contracts import Rank, SchedulingContext
from colane.scheduling.mechanisms.preemption.node_preemption import EVERY_JOB, NodePreemption, Takers
from colane.scheduling.mechanisms.preemption.victims import NodeVictims, Unit, VictimSurvey
from colane.scheduling.mechanisms.topology.free import emptiest_first

Pieces = list[tuple[NodeVictims, Unit]]
"""Jobs that leave together: what each of their nodes gains by it."""


class NodePart(NamedTuple):
    """GPUs of one node for a job, or for some of its ranks."""

    site: NodeVictims
    gpus: tuple[GpuLoad, ...]


class Vacancy(NamedTuple):
    """GPUs for a job, node by node, and the jobs that have to leave for them."""

    parts: tuple[NodePart, ...]
    units: tuple[Unit, ...] = ()

    @property
    def gpus(self) -> tuple[GpuLoad, ...]:
        """One a rank."""
        return tuple([gpu for part in self.parts for gpu in part.gpus])


class MultiNodePreemption:
    """See the module."""

    def __init__(self, context: SchedulingContext, survey: VictimSurvey, room: NodePreemption) -> None:
        self._context = context
        self._survey = survey
        self._room = room

    def on_coming(self, job: Job, spec: JobSpec) -> Vacancy | None:
        """Where GPUs come free, without any job leaving for it: where some were made free for it, else anywhere."""
        sites = self._survey.open_nodes if _may_span(job, spec) else []
        mine = [site for site in sites if job.id in site.cores]
        for some in filter(None, (mine, sites)):
            for kind in self._room.kinds(job, spec):
                parts = self._tally(job, spec, kind, some).parts()
                if parts is not None:
                    return Vacancy(parts)
        return None

    def by_leaving(self, job: Job, spec: JobSpec, rank: Rank) -> Vacancy | None:
        """Where the least valuable leave."""
        if not _may_span(job, spec) or not self._may_be_enough(spec, rank):
            return None
        for kind in self._room.kinds(job, spec):
            tally = self._tally(job, spec, kind, self._survey.open_nodes)
            units = self._least(tally, kind, rank)
            parts = tally.parts() if units else None
            if parts is not None:
                return Vacancy(parts, tuple(units))
        return None

    def _may_be_enough(self, spec: JobSpec, rank: Rank) -> bool:
        """Whether as many GPUs as it asks for are free, come free, or belong to jobs whose place it may take."""
        draft, survey, pool = self._context.draft, self._survey, self._context.pool
        count = sum(self._room.without_leaving(site) for site in survey.open_nodes)
        for kind in draft.view.gpu_types_for(spec):
            count += draft.free((pool, kind)).count
        for worst, _, site in reversed(survey.stoppable() if survey.may_displace(rank) else ()):
            if count >= spec.gpus or not survey.displaces(rank, worst):
                break
            count += site.gpus
        return count >= spec.gpus

    def _tally(self, job: Job, spec: JobSpec, kind: str, sites: list[NodeVictims]) -> _Tally:
        """Of these nodes, and of as many others with free GPUs as it takes, the emptiest first."""
        draft, survey = self._context.draft, self._survey
        tally = _Tally(self._room, job, spec, kind)
        for site in sites:
            tally.count(site)
        at_hand = tally.total
        for node in emptiest_first(draft, draft.free((self._context.pool, kind))):
            if tally.total - at_hand >= spec.gpus:
                break
            tally.count(survey.site(node.node.name))
        return tally

    def _least(self, tally: _Tally, kind: str, rank: Rank) -> list[Unit]:
        """Let the least valuable leave until there is room, then spare those that need not; none if that fails."""
        chosen, seen = list[tuple[Unit, Pieces]](), set[tuple[JobId, ...]]()
        for unit in self._survey.least_first(rank):
            if unit.jobs in seen:
                continue
            seen.add(unit.jobs)
            pieces = self._survey.everywhere(unit)
            if self._helps(pieces, kind):
                chosen.append((unit, pieces))
                tally.add(pieces)
            if tally.is_enough:
                break
        return _needed(tally, chosen) if tally.is_enough else []

    def _helps(self, pieces: Pieces, kind: str) -> bool:
        load = self._context.draft.load
        return any(load(gpu).gpu.type == kind for _, piece in pieces for gpu in piece.gpus)


class _Tally:
    """How many ranks of a job its nodes can be made to hold, on GPUs of one type."""

    def __init__(self, room: NodePreemption, job: Job, spec: JobSpec, kind: str) -> None:
        self._room = room
        self._job = job
        self._spec = spec
        self._kind = kind
        self._sites: dict[str, NodeVictims] = {}
        self._ranks: dict[str, int] = {}
        self._leaving: dict[str, list[Unit]] = {}
        self.total = 0

    @property
    def is_enough(self) -> bool:
        """Whether all of its ranks find a GPU."""
        return self.total >= self._spec.gpus

    def count(self, site: NodeVictims) -> None:
        """Count a node, anew if it is known."""
        name = site.node.node.name
        ranks = self._most(site, EVERY_JOB)
        self.total += ranks - self._ranks.get(name, 0)
        self._sites[name], self._ranks[name] = site, ranks

    def add(self, pieces: Pieces) -> None:
        """Let some leave."""
        for site, piece in pieces:
            self._leaving.setdefault(site.node.node.name, []).append(piece)
            self.count(site)

    def drop(self, pieces: Pieces) -> None:
        """Let them stay."""
        for site, piece in pieces:
            self._leaving[site.node.node.name].remove(piece)
            self.count(site)

    def parts(self) -> tuple[NodePart, ...] | None:
        """What it takes of each node; None where that is not enough.

        What is free and what was freed for it goes first, then what is not kept, then what is kept for others:
        so it has the same GPUs in the next plan, whichever jobs leave for others meanwhile.
        """
        if not self.is_enough:
            return None
        taken, left, mine = dict[str, int](), self._spec.gpus, {self._job.id}
        takers: Takers
        for takers in (mine, {None, *mine}, EVERY_JOB):
            most = {name: self._most(site, takers) for name, site in self._sites.items()}
            for _, _, _, name in sorted([self._place(name, ranks) for name, ranks in most.items()]):
                more = min(left, most[name] - taken.get(name, 0))
                if more > 0:
                    taken[name] = taken.get(name, 0) + more
                    left -= more
        return tuple([self._part(name, ranks) for name, ranks in taken.items()])

    def _place(self, name: str, ranks: int) -> tuple[bool, int, int, str]:
        """Nodes that are emptied for it go first, then those that hold most of its ranks."""
        site = self._sites[name]
        return not (self._leaving.get(name) or self._job.id in site.cores), -ranks, site.node.order, name

    def _part(self, name: str, ranks: int) -> NodePart:
        return NodePart(self._sites[name], tuple(self._loads(self._sites[name], EVERY_JOB)[:ranks]))

    def _most(self, site: NodeVictims, takers: Takers) -> int:
        """As many ranks as a node has GPUs, cores and host memory for, a whole group where it lies in such."""
        room, spec, leaving = self._room, self._spec, self._leaving.get(site.node.node.name, ())
        ranks = spec.ranks_of(len(self._loads(site, takers)))
        while ranks and not room.has_host(site, self._job, spec, ranks, takers, leaving):
            ranks = spec.ranks_of(ranks - 1)
        return ranks

    def _loads(self, site: NodeVictims, takers: Takers) -> list[GpuLoad]:
        leaving = self._leaving.get(site.node.node.name, ())
        return self._room.loads(site, self._job, self._spec, self._kind, takers, leaving)


def _may_span(job: Job, spec: JobSpec) -> bool:
    """One that waits parked goes on where it is."""
    return spec.multi_node and spec.gpus > 1 and not job.home


def _needed(tally: _Tally, chosen: list[tuple[Unit, Pieces]]) -> list[Unit]:
    """Those of the chosen that have to go, the most valuable spared first; without the last there was no room."""
    needed = [unit for unit, _ in chosen]
    for unit, pieces in reversed(chosen[:-1]):
        tally.drop(pieces)
        if tally.is_enough:
            needed.remove(unit)
        else:
            tally.add(pieces)
    return needed
