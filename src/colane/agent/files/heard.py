"""What an agent has heard of its cluster: the newest start of a scheduler, and how far its store had come."""

from __future__ import annotations

import json
from typing import NamedTuple

from colane.api.nodes import ClusterObject, EpochObject
from colane.api.reports import HeardObject

_DIGITS_MAX = 16


class KnownHistory(NamedTuple):
    """The newest that was heard."""

    epoch: int = 0  # number of the scheduler's start; 0 where none was told, as by an older scheduler
    epoch_id: str = ""  # its id
    events: int = 0  # how many events the cluster had had
    version: int = 0  # how many transactions its store had had, as that start counts them

    def with_news(self, told: KnownHistory) -> KnownHistory:
        """What is known once this was told, too."""
        events = max(self.events, told.events)
        if not told.epoch:
            return self._replace(events=events)
        is_same = told.epoch_id == self.epoch_id
        version = max(self.version, told.version) if is_same else told.version
        return KnownHistory(told.epoch, told.epoch_id, events, version)

    def as_told(self) -> HeardObject:
        """As a report has it."""
        epoch: EpochObject | None = {"number": self.epoch, "id": self.epoch_id} if self.epoch else None
        return {"epoch": epoch, "events_seen": self.events}


def told_by(answer: ClusterObject) -> KnownHistory:
    """Read it from a node object, or the answer to an end; an older scheduler says less."""
    epoch, events, version = answer.get("epoch"), answer.get("events") or 0, answer.get("store_version") or 0
    if not epoch:
        return KnownHistory(events=events)
    return KnownHistory(epoch.get("number") or 0, epoch.get("id") or "", events, version)


def as_text(heard: KnownHistory) -> str:
    """Write it for a file."""
    return json.dumps(heard._asdict())


def from_text(text: str | None) -> KnownHistory:
    """Read it from a file, also of an older agent, which kept the number of events alone; what is neither is none."""
    try:
        found = json.loads(text or "")
    except ValueError:
        return KnownHistory()
    if isinstance(found, int) and 0 <= found < 10**_DIGITS_MAX:
        return KnownHistory(events=found)
    if not isinstance(found, dict):
        return KnownHistory()
    heard = KnownHistory(**{name: found[name] for name in KnownHistory._fields if name in found})
    numbers = (heard.epoch, heard.events, heard.version)
    is_whole = isinstance(heard.epoch_id, str) and all(isinstance(number, int) for number in numbers)
    return heard if is_whole else KnownHistory()
