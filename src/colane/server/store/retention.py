"""How long records of finished jobs are kept. Old ones are removed in turns of the driver, each with an audit line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from colane.model.quantities import parse_duration_s
from colane.server.store.store import FINISHED_JOBS, Delete, Store

REMOVED_AT_ONCE: Final = 1_000
"""Records looked at, and at most removed, in one turn: bounds how long others wait for its commit."""


@dataclass(frozen=True, slots=True)
class Retention:
    """What is kept of finished jobs; without either bound, everything.

    Attributes:
        age_s: Records of jobs that ended longer ago are removed.
        jobs: At most so many records are kept, those with the highest ids.
    """

    age_s: float | None = None
    jobs: int | None = None

    def __str__(self) -> str:
        """As it is written on the command line."""
        if self.jobs is not None:
            return str(self.jobs)
        return "all" if self.age_s is None else f"{self.age_s:g}s"


def parse_retention(text: str) -> Retention:
    """Return what `all`, a duration such as `30d`, or a number of jobs means.

    Raises:
        ValueError: It is none of these.
    """
    wanted = text.strip().lower()
    if wanted == "all":
        return Retention()
    if wanted.isascii() and wanted.isdecimal():
        return Retention(jobs=int(wanted))
    try:
        return Retention(age_s=parse_duration_s(wanted))
    except ValueError:
        raise ValueError(f"must be all, a duration such as 30d, or a number of jobs, got {text[:40]!r}") from None


def outdated(store: Store, keep: Retention, now_s: float) -> Iterator[list[Delete]]:
    """Yield, in order of id, the records to remove, at most `REMOVED_AT_ONCE` at a time.

    Jobs end about in the order of their ids, so the search by age ends with the first page that holds nothing old: what
    is kept is never read as a whole, and a record that is passed over goes later.
    """
    surplus = max(0, store.count(FINISHED_JOBS) - keep.jobs) if keep.jobs is not None else 0
    after = ""
    while page := store.page(FINISHED_JOBS, after, REMOVED_AT_ONCE):
        if keep.jobs is not None:
            old = [key for key, _ in page[:surplus]]
            surplus -= len(old)
        else:
            old = [key for key, body in page if _is_old(body["job"]["end_s"], keep, now_s)]
        if not old:
            return
        yield [Delete(FINISHED_JOBS, key) for key in old]
        after = page[-1][0]


def _is_old(end_s: float | None, keep: Retention, now_s: float) -> bool:
    return keep.age_s is not None and end_s is not None and end_s < now_s - keep.age_s
