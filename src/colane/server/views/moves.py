"""What became of jobs around a moment, of the story of all events: found by halving, as times in it ascend."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from colane.api.seeing import MoveObject, MovesAnswer
from colane.server.board.read_model import ReadModel
from colane.server.ground.sight import Sight
from colane.server.store.store import AuditLine, Store
from colane.server.writer.feed import lines_for

READ_MAX: Final = 2_000  # lines looked through on each side of the moment: of others than these nothing is told

PAGE_ROWS: Final = 200
KIND: Final = "job"


def moves_around(store: Store, read_model: ReadModel, sight: Sight, at_s: float, limit: int) -> MovesAnswer:
    """Return the last moves of jobs up to a moment, and the first after it, at most `limit` of each.

    Raises StoreError: the store cannot be read.
    """
    place = _last_until(store, at_s)
    before: list[AuditLine] = []
    first = place
    while first > 0 and place - first < READ_MAX and len(before) < limit:
        start = max(0, first - PAGE_ROWS)
        lines = [line for line in store.audit(start, first - start) if line.number <= first]
        before = [*_seen(sight, lines, read_model, store), *before]
        first = start
    after: list[AuditLine] = []
    last = place
    while last - place < READ_MAX and len(after) < limit and (lines := store.audit(last, PAGE_ROWS)):
        last = lines[-1].number
        after += _seen(sight, lines, read_model, store)
    shown = before[-limit:] if limit else []
    return {"at_s": at_s, "before": [_move(line) for line in shown], "after": [_move(line) for line in after[:limit]]}


def _last_until(store: Store, at_s: float) -> int:
    """Number of the last line that is not after a moment; 0 where none is."""
    low, high = 0, store.last_audit_number()
    while low < high:
        middle = (low + high) // 2
        lines = store.audit(middle, 1)
        if not lines or lines[0].at_s > at_s:
            high = middle
        else:
            low = lines[0].number
    return low


def _seen(sight: Sight, lines: Iterable[AuditLine], read_model: ReadModel, store: Store) -> list[AuditLine]:
    return lines_for(sight, [line for line in lines if line.kind == KIND and "state" in line.body], read_model, store)


def _move(line: AuditLine) -> MoveObject:
    body = line.body
    return {
        "number": line.number,
        "at_s": line.at_s,
        "job": int(body["job"]),
        "name": str(body.get("name", "")),
        "state": str(body["state"]),
        "sentence": str(body.get("sentence", "")),
    }
