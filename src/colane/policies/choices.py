"""Which of its offers a job takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from colane.model.job import Job, JobSpec
from colane.policies.parts import Desk, Offer


@dataclass(frozen=True, slots=True)
class First:
    """The first acceptable one: sources are asked in turn, each names its best first. What all papers do."""

    def choose(self, _desk: Desk, _job: Job, _spec: JobSpec, offers: Iterator[Offer]) -> Offer | None:
        """See `Choice`."""
        return next(offers, None)


FIRST: Final = First()


@dataclass(frozen=True, slots=True)
class BestUtility:
    """The one of highest utility among all; of equal ones the first."""

    def choose(self, _desk: Desk, _job: Job, _spec: JobSpec, offers: Iterator[Offer]) -> Offer | None:
        """See `Choice`."""
        return max(offers, key=_utility, default=None)


def _utility(offer: Offer) -> float:
    return offer.utility
