"""Processes that are event loops of their own, stepped in the order of one virtual clock: they may freeze and die."""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Callable, Coroutine, Iterable
from itertools import count
from typing import Any

UNWIND_STEPS_MAX = 100
STEPS_MAX = 400_000
"""A world that takes more steps than this goes round in circles."""


class _NothingToSelect:
    """No file is ever ready: everything comes from other loops and from the clock."""

    def select(self, _timeout: float | None) -> list[Any]:
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop in the time of a `VirtualClock`; what is left to threads is done at once."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock
        self._selector = _NothingToSelect()
        self.is_dead = False
        self.not_begun: set[Coroutine[Any, Any, None]] = set()

    def time(self) -> float:
        """Virtual seconds."""
        return self._clock.now_s

    def _process_events(self, events: object) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """No process sleeps in `select`."""

    def run_in_executor(  # type: ignore[override]
        self,
        executor: object,  # noqa: ARG002 - there is none
        func: Callable[..., Any],
        *args: Any,
    ) -> asyncio.Future[Any]:
        """Call the function here and now; what it raises goes to who awaits it."""
        future: asyncio.Future[Any] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - as an executor does
            future.set_exception(error)
        return future

    @property
    def due_s(self) -> float:
        """When it has something to do; infinite while it waits for others."""
        if self._ready:  # type: ignore[attr-defined]
            return self._clock.now_s
        scheduled = self._scheduled  # type: ignore[attr-defined]
        while scheduled and scheduled[0].cancelled():
            heapq.heappop(scheduled)._scheduled = False
            self._timer_cancelled_count -= 1  # type: ignore[attr-defined]
        return float(scheduled[0].when()) if scheduled else math.inf

    def step(self) -> None:
        """Do what is due."""
        asyncio._set_running_loop(self)
        try:
            self._run_once()  # type: ignore[attr-defined]
        finally:
            asyncio._set_running_loop(None)

    def abandon(self) -> None:
        """Its process has died: what was under way is unwound, and nothing of it reaches anybody."""
        self.is_dead = True
        for doing in self.not_begun:
            doing.close()
        for task in asyncio.all_tasks(self):
            task.cancel()
        for _ in range(UNWIND_STEPS_MAX):
            if not asyncio.all_tasks(self):
                break
            self.step()
        self._ready.clear()  # type: ignore[attr-defined]
        self.close()


class VirtualProcess:
    """A process of one machine: dead, alive, or frozen for a while."""

    def __init__(self, clock: VirtualClock, name: str) -> None:
        self.name = name
        self.frozen_until_s = 0.0
        self._clock = clock
        self._loop: VirtualLoop | None = None

    @property
    def is_alive(self) -> bool:
        """Whether it is there, frozen or not."""
        return self._loop is not None

    @property
    def loop(self) -> VirtualLoop:
        """Its loop; only while it is alive."""
        assert self._loop is not None
        return self._loop

    @property
    def due_s(self) -> float:
        """When it goes on."""
        if self._loop is None:
            return math.inf
        due_s, frozen_until_s = self._loop.due_s, self.frozen_until_s
        return max(frozen_until_s, due_s)

    def start(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begin anew; what `main` raises is a fault of what is tested."""
        self._loop, self.frozen_until_s = VirtualLoop(self._clock), 0.0
        self.spawn(main(), is_main=True)

    def spawn(self, doing: Coroutine[Any, Any, None], *, is_main: bool = False) -> None:
        """Begin a task in it."""

        def begin() -> None:
            if loop.is_dead:  # it died before, and what was not begun was closed
                return
            loop.not_begun.discard(doing)
            task = loop.create_task(doing)
            task.add_done_callback(lambda done: None if loop.is_dead else self._clock.note(self, done, is_main=is_main))

        loop = self.loop
        loop.not_begun.add(doing)
        loop.call_soon(begin)

    def kill(self) -> None:
        """It is gone at once; a step that is under way is its last."""
        if self._loop is not None:
            self._clock.reap(self._loop)
            self._loop = None


class VirtualClock:
    """Seconds that pass when nothing is left to do in this one."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.processes: list[VirtualProcess] = []
        self.problems: list[str] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._dead: list[VirtualLoop] = []
        self._number = count()
        self._steps = 0

    def process(self, name: str) -> VirtualProcess:
        """A process that is not started yet."""
        self.processes.append(VirtualProcess(self, name))
        return self.processes[-1]

    def at(self, at_s: float, do: Callable[[], None]) -> None:
        """Let something happen then."""
        heapq.heappush(self._events, (max(at_s, self.now_s), next(self._number), do))

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        """Let something happen so much later."""
        self.at(self.now_s + seconds, do)

    def run(self, until_s: float, is_over: Callable[[], bool] = lambda: False) -> None:
        """Let time pass."""
        while not is_over() and not self.problems:
            event_s = self._events[0][0] if self._events else math.inf
            dues_s = [process.due_s for process in self.processes]
            due_s = min(dues_s)
            next_s = min(event_s, due_s)
            if next_s > until_s:
                break
            self.now_s = max(self.now_s, next_s)
            self._steps += 1
            assert self._steps < STEPS_MAX, f"at {self.now_s} s it goes round in circles"
            if event_s <= due_s:
                heapq.heappop(self._events)[2]()
            else:
                self.processes[dues_s.index(due_s)].loop.step()
            if self._dead:
                self._remove_dead()
        self.now_s = max(self.now_s, until_s) if not is_over() else self.now_s

    def note(self, process: VirtualProcess, done: asyncio.Task[None], *, is_main: bool) -> None:
        """A task of a process has ended: what it raised is a problem, and so is that a process ends by itself."""
        error = None if done.cancelled() else done.exception()
        if error is not None:
            self.problems.append(f"{process.name} raised {error!r}")
        elif is_main:
            self.problems.append(f"{process.name} ended by itself")

    def reap(self, loop: VirtualLoop) -> None:
        """It may be the one that runs at this moment: it is abandoned afterwards."""
        self._dead.append(loop)

    def close(self) -> None:
        """End everything."""
        for process in self.processes:
            process.kill()
        self._remove_dead()

    def _remove_dead(self) -> None:
        dead: Iterable[VirtualLoop] = self._dead
        self._dead = []
        for loop in dead:
            loop.abandon()
