"""Beside others in the company that is worth most: where the sum of speeds rises most.

A company is worth the sum of its speeds, each over that of the job alone at its best (Gavel's normalised throughput,
Narayanan et al., OSDI 2020, section 3.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

from colane.core.load import GpuLoad
from colane.model.job import Job, JobSpec
from colane.model.reason import Reason, Why
from colane.policies.companies import (
    CompanyValues,
    has_room_beside,
    may_share,
)
from colane.policies.parts import Desk, Offer, Order
from colane.policies.refusals import no_place
from colane.policies.sources.beside import is_known
from colane.policies.usual import UsualFinder


@dataclass(frozen=True, slots=True)
class BesideBest:
    """Beside those with whom the sum of speeds rises most.

    Attributes:
        company_max: Jobs on one GPU at most.
        rise_min: The sum of speeds must rise by so much.
    """

    company_max: int = 2
    rise_min: float = 0.0

    def bind(self, desk: Desk) -> BestCompanyFinder | None:
        """See `Source`."""
        return BestCompanyFinder(self, desk) if self.company_max > 1 else None

    def spares_s(self, _order: Order) -> float:
        """Nobody is stopped."""
        return inf


class _Company(NamedTuple):
    """A GPU to come to, by how much the sum of speeds rises, and the speed of who comes."""

    rise: float
    ratio: float
    load: GpuLoad


class BestCompanyFinder(UsualFinder):
    """See `BesideBest`."""

    def __init__(self, source: BesideBest, desk: Desk) -> None:
        self.grows = True
        self._draft = desk.draft
        self._pool = desk.pool
        self._jobs_max = source.company_max - 1
        self._rise_min = source.rise_min
        self._values = CompanyValues(desk.draft)

    def offers(self, job: Job, spec: JobSpec) -> Iterator[Offer]:
        """See `Finder`."""
        for kind in self._draft.view.gpu_types(self._pool, spec.gpu_type):
            best = self._best(job, spec, kind)
            if best is not None and best.rise > self._rise_min:
                yield self._offer(best)

    def refusal(self, job: Job, spec: JobSpec) -> Reason | None:
        """Company that would not pay, or a first run alone."""
        if not may_share(spec):
            return None
        kinds = self._draft.view.gpu_types(self._pool, spec.gpu_type)
        found = [best for kind in kinds if (best := self._best(job, spec, kind)) is not None]
        if found:
            best = max(found, key=_rise)
            return Reason(Why.NOT_WORTH_SHARING, _facts(best, self._rise_min), best.load.jobs)
        lacking, known = no_place(self._draft, spec), any(is_known(self._draft, spec, kind) for kind in kinds)
        return None if known or lacking.why is not Why.NO_FREE_GPU else replace(lacking, why=Why.UNKNOWN_ALONE_FIRST)

    def _best(self, job: Job, spec: JobSpec, kind: str) -> _Company | None:
        terms = self._draft.beliefs.terms(spec, kind)
        if not may_share(spec) or terms.memory is None or terms.load is None:
            return None
        need_bytes, values, best = sum(terms.memory), self._values, None
        for load in self._draft.open_gpus((self._pool, kind), self._jobs_max):
            if not has_room_beside(self._draft, spec, load, need_bytes):
                continue
            mine = values.booking(job, spec, load)
            rise = values.total(load, (*load.bookings, mine)) - values.total(load, load.bookings)
            if (best is None or rise > best.rise) and not values.hurts(spec, load, load.bookings, mine):
                best = _Company(rise, values.rate(spec, load, load.bookings).ratio, load)
        return best

    def _offer(self, best: _Company) -> Offer:
        reason = Reason(Why.SHARES_BEST, _facts(best, self._rise_min), best.load.jobs)
        return Offer((best.load,), reason, utility=best.rise, ratio=best.ratio, harm=best.ratio - best.rise)


def _facts(best: _Company, rise_min: float) -> dict[str, str | int | float]:
    return {"gpu": str(best.load.id), "rise": best.rise, "least": rise_min, "speed": best.ratio}


def _rise(best: _Company) -> float:
    return best.rise
