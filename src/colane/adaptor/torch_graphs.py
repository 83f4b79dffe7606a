"""CUDA graphs of a PyTorch job: what is captured does not run, and is run by each replay.

A graph holds the steps that were seen while it was captured, of the best kind among them: an optimizer's, calls of a
root module, passes backward. Each replay makes these again. Of one that holds none, a replay that comes again with no
step in between is a step.
"""

from __future__ import annotations

import functools

from . import capture, recorder
from .aside import replace
from .cycle import Cycle

HELD = "_colane_held"  # kept on each CUDA graph: the steps in it

TYPE_CHECKING = False  # as `typing` has it, which costs milliseconds to import
if TYPE_CHECKING:
    from typing import Any, Protocol

    from .torch_first import FirstUse

    class GraphWatcher(Protocol):
        """Hears of captures and replays, and has hooks on modules."""

        graphs: Graphs
        first: FirstUse

        def captures(self, graph: Any) -> None:
            """Hear that a graph begins to be captured."""

        def replays(self, graph: Any) -> None:
            """Hear that a graph is about to be replayed."""

        def replayed(self, graph: Any) -> None:
            """Hear that it was."""

        def root(self, module: Any) -> None:
            """Hook a module that a job calls."""

        def unhook(self, module: Any) -> bool:
            """Take the hooks off one; whether there were any."""


class HeldSteps:
    """Steps in a graph.

    Attributes:
        rank: Of which kind, 0 of none.
        steps: How many.
        key: What made the last.
        is_open: Whether a pass backward could follow a call.
    """

    __slots__ = ("_cycle", "is_open", "key", "rank", "steps")

    def __init__(self) -> None:
        self.rank = self.steps = 0
        self.key: object = None
        self.is_open = False
        self._cycle = Cycle()

    def add(self, rank: int, key: object, *, is_open: bool) -> None:
        """Take a step in, unless a better kind was seen."""
        if rank > self.rank:
            self.rank, self.steps, self._cycle = rank, 0, Cycle()
        if rank == self.rank:
            self.key, self.is_open = key, is_open
            self.steps += self._cycle.event(key)


class Graphs:
    """What the graphs of this process hold; PyTorch captures one at a time."""

    def __init__(self) -> None:
        self._captured: HeldSteps | None = None
        self._unclaimed = HeldSteps()

    def begins(self, graph: Any) -> None:
        """Hear that a graph begins to be captured."""
        self._captured = graph.__dict__[HELD] = HeldSteps()

    def ends(self) -> None:
        """Hear that it has ended."""
        self._captured = None

    def captured(self, rank: int, key: object, *, is_open: bool = True) -> None:
        """Hear that a step was captured; by a call that is not watched, it is of the graph that is replayed first."""
        (self._captured or self._unclaimed).add(rank, key, is_open=is_open)

    def held(self, graph: Any) -> HeldSteps:
        """What a graph holds."""
        state = graph.__dict__
        if self._unclaimed.rank and HELD not in state:
            state[HELD], self._unclaimed = self._unclaimed, HeldSteps()
        found: HeldSteps = state.get(HELD) or HeldSteps()
        return found


def attach(torch: Any, others: GraphWatcher) -> None:
    """Watch captures and replays."""
    graph = getattr(torch.cuda, "CUDAGraph", None)
    own = getattr(graph, "replay", None)
    if graph is None or own is None:
        return
    capture.watch(graph, functools.partial(recorder.safely, others.captures), others.graphs.ends)

    @functools.wraps(own)
    def replay(self: Any) -> Any:
        recorder.safely(others.replays, self)
        try:
            return own(self)
        finally:
            others.replayed(self)

    graph.replay = replay
    _let_graph(torch, others)


def _let_graph(torch: Any, others: GraphWatcher) -> None:
    """Take our hooks off modules while they are made into graphs: PyTorch refuses one with any."""
    own = torch.cuda.make_graphed_callables

    @functools.wraps(own)
    def make_graphed_callables(callables: Any, *args: Any, **kwargs: Any) -> Any:
        all_of = callables if isinstance(callables, tuple) else (callables,)
        modules = [one for one in all_of if isinstance(one, torch.nn.Module)]
        recorder.safely(others.first.used)
        hooked = [one for one in modules if others.unhook(one)]
        try:
            return own(callables, *args, **kwargs)
        finally:
            for one in hooked:
                recorder.safely(others.root, one)

    replace(torch.cuda, "make_graphed_callables", make_graphed_callables)
