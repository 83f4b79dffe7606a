"""How long records of finished jobs are kept. Old ones are removed in turns of the driver, each with an audit line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from colane.server.store.store import FINISHED_JOBS, Delete, Store
from colane.server.store.unreadable import keyed
from colane.settings.readers import Retention

REMOVED_AT_ONCE: Final = 1_000
"""Records looked at, and at most removed, in one turn: bounds how long others wait for its commit."""


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
            ended = keyed(store, FINISHED_JOBS, page, lambda body: _end_s(body["job"]["end_s"]))
            old = [key for key, end_s in ended if _is_old(end_s, keep, now_s)]
        if not old:
            return
        yield [Delete(FINISHED_JOBS, key) for key in old]
        after = page[-1][0]


def _end_s(known: float | None) -> float | None:
    return None if known is None else float(known)


def _is_old(end_s: float | None, keep: Retention, now_s: float) -> bool:
    return keep.age_s is not None and end_s is not None and end_s + keep.age_s < now_s
