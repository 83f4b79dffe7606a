"""Of every class of waiting jobs those that go first, kept in order from one plan to the next."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from colane.model.job import Job, JobId, NeedClass

Rank = tuple[float, ...]
ClassKey = tuple[int, NeedClass]

Entry = tuple[Rank, JobId]
"""A job where its rank puts it, equal ranks by arrival."""

Head = tuple[Rank, JobId, ClassKey]
"""One of the first jobs of a class."""


def entry_of(head: Head) -> Entry:
    """Without its class."""
    return head[:2]


@dataclass(frozen=True, slots=True)
class FirstOf:
    """Which jobs of a class are its first.

    Attributes:
        serves: Of which classes they are asked for.
        tell: Of those of which this is the same one is enough.
        among: So many are looked at.
    """

    serves: Callable[[NeedClass], bool]
    tell: Callable[[Job], int]
    among: int

    def of(self, jobs: Mapping[JobId, Job], line: Iterator[Entry], key: ClassKey) -> list[Head]:
        """Those of a line of one class, of these jobs."""
        found: dict[int, Head] = {}
        for rank, number in islice(line, self.among):
            found.setdefault(self.tell(jobs[number]), (rank, number, key))
        return list(found.values())


@dataclass(slots=True)
class Firsts:
    """The first jobs of every class of a pool, while `beliefs` and `gpu_types` hold.

    Attributes:
        beliefs: As said.
        gpu_types: As said.
        in_order: All of them.
        by_class: They by class.
        others: Classes of which they were not asked for.
        stale: Classes in which a job came or went.
    """

    beliefs: int
    gpu_types: int
    in_order: list[Head] = field(default_factory=list)
    by_class: dict[ClassKey, list[Head]] = field(default_factory=dict)
    others: dict[ClassKey, None] = field(default_factory=dict)
    stale: dict[ClassKey, None] = field(default_factory=dict)

    def put(self, key: ClassKey, heads: list[Head]) -> None:
        """Other jobs of a class go first, or none any more."""
        for head in self.by_class.pop(key, ()):
            del self.in_order[bisect_left(self.in_order, head[:2], key=entry_of)]
        if heads:
            self.by_class[key] = heads
        for head in heads:
            insort(self.in_order, head, key=entry_of)
