"""Puts the gate into a thread of its own, so that no look at disks or devices makes a job wait for its turn.

The thread alone asks for a higher priority: what the agent starts must not inherit one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from colane.agent.gate.gate import Follow, LaneGate
from colane.agent.gate.values import GateTimeouts, Seen

log = logging.getLogger(__name__)

T = TypeVar("T")

NICE = -10  # priority of the thread, where that is allowed
ANSWER_MAX_S = 2.0  # a gate that answers later than this is not reported of


class GateThread:
    """A gate that can be used from another thread."""

    def __init__(
        self, path: Path, bounds: GateTimeouts | None = None, nudge: Callable[[], None] = lambda: None
    ) -> None:
        """Begin to listen at `path`; where that is impossible jobs run without turns, and it is said so.

        `nudge` is called in the gate's thread when a job is held.
        """
        self._path = path
        self._nudge = nudge
        self._bounds = bounds
        self._gate: LaneGate | None = None
        self._trouble = ""
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gate", daemon=True)
        self._thread.start()
        self._ready.wait()

    def follow(self, follow: Follow) -> None:
        """Take what shall run here; does not wait."""
        gate = self._gate
        if gate is not None:
            self._loop.call_soon_threadsafe(gate.follow, follow)

    async def sync(self, follow: Follow) -> None:
        """Take what shall run here before any of it is started; a gate that is slow to do so is not waited for."""
        gate = self._gate
        if gate is None:
            return

        async def take() -> None:
            gate.follow(follow)

        taken = asyncio.run_coroutine_threadsafe(take(), self._loop)
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.wrap_future(taken), ANSWER_MAX_S)

    def seen(self) -> dict[int, Seen]:
        """Say how the jobs fare that share lanes."""
        return self._ask(lambda gate: gate.seen(), {})

    def messages(self) -> list[str]:
        """Say which jobs are left out of the turns, or why there are none."""
        nothing: list[str] = []
        return [self._trouble] if self._trouble else self._ask(lambda gate: gate.messages(), nothing)

    def close(self) -> None:
        """Let all jobs run freely and end the thread."""
        self._ask(lambda gate: gate.close(), None)
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(ANSWER_MAX_S)

    def _run(self) -> None:
        with suppress(OSError):
            thread = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, thread, min(NICE, os.getpriority(os.PRIO_PROCESS, thread)))
        asyncio.set_event_loop(self._loop)
        self._loop.call_soon(self._open)
        self._loop.run_forever()
        self._loop.close()

    def _open(self) -> None:
        try:
            self._gate = LaneGate(self._path, self._bounds, nudge=self._nudge)
        except OSError as error:
            self._trouble = f"jobs in one lane run without turns: {self._path} cannot be used: {error.strerror}"
            log.warning("%s", self._trouble)
        self._ready.set()

    def _ask(self, question: Callable[[LaneGate], T], otherwise: T) -> T:
        gate = self._gate
        if gate is None:
            return otherwise

        async def answer() -> T:
            return question(gate)

        try:
            return asyncio.run_coroutine_threadsafe(answer(), self._loop).result(ANSWER_MAX_S)
        except TimeoutError:
            return otherwise
