"""The processes of one job as the gate sees them: which run, which wait at which step, and how a gang is parked.

A gang (several ranks that talk to each other) must stop at one step, or the ranks that run would wait for ever for
those that are parked. Each is told the same step number, two beyond the last that any has published. A rank publishes
its step before it reads the page, so one that is seen below that number after it was written cannot miss it.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from colane.adaptor import turns
from colane.agent.gate.page import ControlPage, pages_of
from colane.agent.gate.pipes import ask_to_watch
from colane.agent.gate.values import TurnTimes

log = logging.getLogger(__name__)

MARGIN_STEPS = 2
LISTED_AGO_NS = 1_000_000_000  # a directory that has not changed for so long is not listed again until it does
AIMS_MAX = 16  # how often a target is put further while ranks outrun it; then the next look goes on


class RankConnection:
    """A job's connection."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self.connection = connection
        self.pid = pid
        self.rank: Rank | None = None
        self.serial = 0

    def answer(self, kind: int) -> None:
        """Send an answer; a job that is gone needs none, its end is seen otherwise."""
        with suppress(OSError):
            self.connection.send(turns.answer(kind, self.serial))


@dataclass(eq=False, slots=True)
class Rank:
    """One process that reports steps."""

    gang: Gang  # its job
    page: ControlPage  # its control page
    pid: int  # its process, as this machine numbers it
    claimed: int  # its process, as it numbers itself
    unwatch: Callable[[], None]  # what ends the watch of its end
    link: RankConnection | None = None  # its connection once it has asked
    waiting: int | None = None  # the step it waits at, None while it runs

    @property
    def steps(self) -> int:
        """Steps it has published, or says it waits at."""
        return self.page.counters()[1] if self.waiting is None else self.waiting

    def release(self) -> None:
        """Let it go."""
        self.waiting = None
        if self.link is not None:
            self.link.answer(turns.GO)


@dataclass(eq=False)
class Gang:
    """One job's processes; most jobs have one."""

    job: int  # its id
    steps_path: Path  # its first rank's steps file
    ranks: dict[int, Rank] = field(default_factory=dict)  # its processes, by number
    expected: int = 1  # how many there will be
    flag: bool = False  # whether they ask at their boundaries
    flush: bool = False  # whether they give cached memory back when they yield
    shares: int = 0  # whether the job shares a lane, see `turns.SHARES`
    held: bool = False  # whether all of them wait, and go on by our word alone: their devices may be another job's
    rested: bool = False  # whether none of them used a device before it asked when they were held as they stood
    watched: bool = False  # whether each is to be watched whether it stands still
    stalled_s: float | None = None  # since when some wait for others
    is_told: bool = False  # whether those that wait know when their turn is expected
    _pages: dict[int, ControlPage] = field(default_factory=dict)
    _target: int = 0
    _listed_ns: int = 0

    def open_pages(self) -> Sequence[tuple[int, ControlPage]]:
        """Open the pages that are there by now; a gang that an earlier agent has held whole is held still."""
        changed_ns = _changed_ns(self.steps_path.parent)
        if self._pages and changed_ns and changed_ns == self._listed_ns:
            return sorted(self._pages.items())
        # What comes within the granularity of file times after this look must be seen by the next one.
        self._listed_ns = changed_ns if time.time_ns() > changed_ns + LISTED_AGO_NS else 0
        is_first, fresh = not self._pages, []
        for index, path in pages_of(self.steps_path).items():
            if index not in self._pages:
                with suppress(OSError):
                    self._pages[index] = page = ControlPage(path)
                    fresh.append(page)
        if is_first and fresh:
            self.held = all(page.is_held() for page in fresh)
            self.watched = all(page.is_watched() for page in fresh)
            self.rested = self.held and self.watched
        for page in fresh:
            self._order_page(page)
        return sorted(self._pages.items())

    def hold(self) -> None:
        """All wait: keep them there, also without us."""
        self.held = True
        self._order()
        self.held = all(page.is_held() for page in self._pages.values())  # a full disk may refuse a page

    def unhold(self) -> None:
        """They wait on, but would go on without us."""
        self.held = self.rested = False
        self._order()

    def is_gang(self) -> bool:
        """Whether several processes must stop at one step."""
        return self.expected > 1 or len(self.ranks) > 1

    def has_stepped(self) -> bool:
        """Whether any rank has done a step."""
        return self._top() > 0

    def watch(self, *, watch: bool) -> None:
        """Have each process watched whether it stands still; one that does not know yet is asked each time."""
        if watch != self.watched:
            self.watched = watch
            self._order()
        asked = watch and {page.counters().pid for page in self._pages.values() if page.is_to_be_asked()}
        if asked:
            ask_to_watch(self.steps_path.parent, asked)

    def hold_at_rest(self, *, must_rest: bool) -> bool:
        """Keep all of them as they stand, also without us; whether they are.

        Args:
            must_rest: Only where none of them uses a device before it asks: else what they do next would not be seen.
        """
        if must_rest and not self.rests():
            return False
        self.hold()
        self.rested = self.rests()  # once more: what stirs after this finds itself held, and asks
        if must_rest and not self.rested:
            self.unhold()
        return self.held

    def rests(self) -> bool:
        """Whether none of its ranks uses a device before it asks."""
        return bool(self._pages) and all(page.rests() for page in self._pages.values())

    def asks(self) -> bool:
        """Whether any rank waits for the word to go on, or was held at rest and rests no more."""
        return any(rank.waiting is not None for rank in self.ranks.values()) or (self.rested and not self.rests())

    def tell(self, *, shares: int) -> None:
        """Say whether the job shares a lane."""
        if shares != self.shares:
            self.shares = shares
            self._order()

    def raise_flag(self) -> None:
        """Have all ranks ask, a gang's at one step."""
        if not self.flag:
            self.flag = True
            self._aim(self._top() + MARGIN_STEPS if self.is_gang() and not self.held else 0)

    def lower_flag(self) -> None:
        """Let them run freely; a process that is parked alone goes on."""
        if self.flag:
            self.flag, self._target = False, 0
            self._order()
            self.gather()

    def go(self, *, flag: bool) -> None:
        """Let all ranks go, which are parked at one step; with the flag up for one step more."""
        self._target = self._top() + 1 if flag and self.is_gang() else 0
        self.flag, self.held, self.rested, self.watched, self.is_told = flag, False, False, False, False
        self._order()
        for rank in self.ranks.values():
            rank.release()

    def last_step_s(self) -> float:
        """When the last of its ranks ended its latest step."""
        return max((rank.page.last_step_s() for rank in self.ranks.values()), default=0.0)

    def expect(self, due_s: float) -> None:
        """Tell those that wait when their turn is expected."""
        self.is_told = True
        for rank in self.ranks.values():
            if rank.waiting is not None and rank.link is not None:
                rank.page.expect(due_s)
                rank.link.answer(turns.SOON)

    def gather(self) -> int | None:
        """Say at which step all ranks are parked; None while they are not, and see to it that they will be."""
        ranks = list(self.ranks.values())
        waiting = [rank for rank in ranks if rank.waiting is not None]
        if not waiting:
            return None
        if len(waiting) == len(ranks) >= self.expected and len({rank.waiting for rank in waiting}) == 1:
            self.stalled_s = None
            return waiting[0].waiting
        if not self.held:
            self._correct(ranks)
        return None

    def times(self) -> TurnTimes:
        """When the last of its ranks gave its turn up, and the last got it."""
        seen = [rank.page.times() for rank in self.ranks.values()]
        return TurnTimes(max(one.yielded_s for one in seen), max(one.resumed_s for one in seen))

    def retry(self) -> None:
        """Put the step further: some rank has run past it, and waits for those that are parked."""
        if self.flag and self.is_gang() and not self.held:
            self._aim(self._top() + MARGIN_STEPS)
            self._release_below()

    def close(self) -> None:
        """Let go of everything; the pages are left so that the job runs freely, unless it is held."""
        for rank in list(self.ranks.values()):
            rank.unwatch()
        if not self.held:
            self.flag, self.shares, self._target = False, 0, 0
            self._order()
            for rank in self.ranks.values():
                rank.release()
        for page in self._pages.values():
            page.close()

    def _correct(self, ranks: Sequence[Rank]) -> None:
        """Some wait and others do not, or elsewhere; all wait for each other before their first step."""
        if not self.flag or (len(ranks) < self.expected and self.has_stepped()):
            for rank in ranks:
                if rank.waiting is not None:
                    rank.release()
            return
        if all(rank.waiting is not None for rank in ranks):
            self._target = self._top()
            self._order()
        elif any(rank.steps > self._target for rank in ranks):
            self._aim(self._top() + MARGIN_STEPS)
        self._release_below()

    def _release_below(self) -> None:
        for rank in self.ranks.values():
            if rank.waiting is not None and rank.waiting < self._target:
                rank.release()

    def _top(self) -> int:
        return max((rank.steps for rank in self.ranks.values()), default=0)

    def _aim(self, target: int) -> None:
        """Write a target that no running rank has reached."""
        for _ in range(AIMS_MAX):
            self._target = target
            self._order()
            reached = [rank.steps for rank in self.ranks.values() if rank.waiting is None]
            if not target or max(reached, default=0) < target:
                return
            target = max(reached) + MARGIN_STEPS
        log.warning("the ranks of job %d outrun every step they could be parked at", self.job)

    def _order(self) -> None:
        for page in self._pages.values():
            self._order_page(page)

    def _order_page(self, page: ControlPage) -> None:
        flag, pause_at = self.flag or self.held, self._target
        page.watch(watch=self.watched)
        page.order(flag=flag, pause_at=pause_at, flush=self.flush, hold=self.held, shares=self.shares)


def _changed_ns(folder: Path) -> int:
    """When anything came to or went from a directory (Unix time); 0 where that is not known."""
    try:
        return os.stat(folder).st_mtime_ns  # noqa: PTH116 - looked at often while jobs take turns
    except OSError:
        return 0
