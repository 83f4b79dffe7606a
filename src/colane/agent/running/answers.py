"""Hears at once from jobs that were asked to save their state and cannot, or go on as fewer ranks.

No request waits for them any longer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from colane.adaptor import wire
from colane.agent import processes
from colane.agent.files.jobdir import RANKS_MAX
from colane.agent.measuring.telemetry import read_steps, save_problem
from colane.agent.reconcile import DesiredJob, Key, SaveRequest

LOOK_EVERY_S: Final = 0.05  # their pages are looked at so often while any job is to save, and not at all else


class SaveAnswers:
    """Looks for answers of jobs that were asked to save."""

    def __init__(self, find: Callable[[Key], Path]) -> None:
        """Begin with none.

        Args:
            find: Gives the file of a job's steps.
        """
        self._find = find
        self._asked: dict[Key, SaveRequest] = {}
        self._heard: dict[Key, int] = {}

    async def rest(self, seconds: float, *events: asyncio.Event) -> None:
        """Wait until one of these happens, a job has answered, or the time is over."""
        until_s, is_over = time.monotonic() + seconds, False
        waits = {asyncio.ensure_future(event.wait()) for event in events}
        while not is_over and (left_s := until_s - time.monotonic()) > 0:
            look_s = min(left_s, LOOK_EVERY_S) if self.are_due else left_s
            done, _ = await asyncio.wait(waits, timeout=look_s, return_when=asyncio.FIRST_COMPLETED)
            is_over = bool(done) or self.look()
        for wait in waits:
            wait.cancel()

    @property
    def are_due(self) -> bool:
        """Whether any job has been asked and has not answered."""
        return any(self._heard.get(key) != request.number for key, request in self._asked.items())

    def follow(self, jobs: Iterable[DesiredJob]) -> None:
        """These are to save; one that has answered since the last look has been reported by now, or is next."""
        self._asked = {job.key: job.save for job in jobs if job.save is not None and job.run}
        self._heard = {key: number for key, number in self._heard.items() if key in self._asked}

    def look(self) -> bool:
        """Whether any has said by now that it cannot, or that it goes on."""
        news = False
        for key, request in self._asked.items():
            if self._heard.get(key) != request.number and self._has_answered(self._find(key), request):
                self._heard[key] = request.number
                news = True
        return news

    @staticmethod
    def _has_answered(path: Path, request: SaveRequest) -> bool:
        steps = read_steps(path)
        if steps is None:
            return False
        goes_on = 0 < request.ranks == steps.ranks and not _is_left(path, request.ranks)
        return goes_on or save_problem(path, steps)[0] == request.number


def _is_left(path: Path, ranks: int) -> bool:
    """Whether any process that is one too many has not ended, as far as the numbers they gave say."""
    for rank in range(ranks, RANKS_MAX):
        own = wire.rank_path(path, rank)
        if not own.exists():
            return False
        steps = read_steps(own)
        if steps is not None and processes.identify(steps.pid) is not None:
            return True
    return False
