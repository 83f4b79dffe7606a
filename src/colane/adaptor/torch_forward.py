"""Steps of a PyTorch job without an optimizer that PyTorch knows: inference, and training by hand.

In this order, the first that is seen counts:

1. Calls of a root module (one that was moved, put into eval or train mode as a whole), by hooks on that one
   instance. Never global module hooks: they cost hundreds of microseconds a step and stop compilation.
   Without gradients a step ends with the call; with them, where the next call begins. Once a backward pass was seen
   the script trains, and calls without gradients are its evaluation; those before are not counted any more.
2. Replays of a CUDA graph that holds none of these; one that does makes them (`torch_graphs`).
3. Backward passes: training by hand, whose updates no hook sees.
4. Batches taken from a DataLoader; after a while only, since scripts also run through their data beforehand.

All of it is gone as soon as the script makes an optimizer.
"""

from __future__ import annotations

import atexit
import functools
import threading
import time
import weakref

from . import capture, recorder, side_threads, torch_first, torch_graphs, torch_rests
from .cycle import Cycle
from .writer import BETWEEN_STEPS

LOADER, BACKWARD, REPLAY, FORWARD = recorder.LOADER, recorder.BACKWARD, recorder.REPLAY, recorder.FORWARD
EVALUATING = frozenset({LOADER, FORWARD})
"""Kinds of steps that are an evaluation, or a run through the data, where training comes after them."""

ANSWERING = frozenset({FORWARD, recorder.EXPLICIT})
"""Kinds of steps at whose calls a job that has given its turn up waits for one."""

FORWARDS_FIRST = 3  # fewer passes may be a trial before training; they are counted when more follow, or at the end
LOADER_FIRST_S = 30.0  # running through the data beforehand (their mean, their tokens) takes less
ROOTS_MAX = 64

TYPE_CHECKING = False  # as `typing` has it, which costs milliseconds to import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class _Thread(threading.local):
    """What is under way in this thread.

    Attributes:
        is_whole: Whether a module is being moved or put into a mode as a whole.
        depth: Calls of root modules inside each other.
        is_loading: Whether a loader is asked for a batch.
        is_told: Whether the recorder knows of the call of a root module.
    """

    def __init__(self) -> None:
        self.is_whole = self.is_loading = self.is_told = False
        self.depth = 0


class Others:
    """Finds steps other than an optimizer's in one process, until there is an optimizer.

    Attributes:
        passes: Passes backward that were seen so far.
    """

    def __init__(self, torch: Any, to: recorder.Recorder) -> None:
        self.thread = _Thread()
        self.evaluations = torch_rests.Evaluations(torch, to)
        self.first = torch_first.FirstUse(torch, to, lambda: self.thread.is_loading)
        self._torch = torch
        self.to = to
        self._is_wanted = True
        self._in_backward = False
        self._roots: dict[int, weakref.ref[Any]] = {}
        self._handles: dict[int, tuple[Any, Any]] = {}
        self._pending: object = None
        self._rank = 0
        self._cycle = Cycle()
        self._early = 0
        self._first_s = 0.0
        self.graphs = torch_graphs.Graphs()
        self._replayed: set[int] = set()
        self._replays = 0
        self._giver: weakref.ref[Any] | None = None
        self._trains = False
        self.passes = 0

    def root(self, module: Any) -> None:
        """Take note of a module that was moved or put into a mode as a whole; hook it if that may be needed."""
        self.first.moved()
        if not self._is_wanted:
            if not module.training:
                save_whole(self._torch, self)
            self.evaluations.follow(module)
        may_step_in_backward = self.to.rank < recorder.OPTIMIZER
        if not (self._is_wanted or may_step_in_backward) or id(module) in self._handles:
            return
        self._roots[id(module)] = weakref.ref(module)
        if len(self._roots) > ROOTS_MAX:
            self._forget(next(iter(self._roots)))
        if self._is_wanted:
            self._hook(module)

    def optimizer_made(self) -> None:
        """Leave steps to the optimizers."""
        if self._is_wanted and not self._in_backward:
            self._is_wanted = False
            self._early = 0
            self._unhook_all()

    def steps_in_backward(self) -> None:
        """Take over: optimizers step for each parameter inside backward, which is no boundary."""
        if self._in_backward:
            return
        self._in_backward = self._is_wanted = True
        for root in list(self._roots.values()):
            module = root()
            if module is not None:
                self._hook(module)
        self._pending = next(iter(self._handles), None)  # the call before this backward

    def stepped(self) -> None:
        """Hear of an optimizer's step: what was replayed before belonged to it."""
        if self._replayed:
            self._replayed.clear()
        if self._handles:
            self._is_wanted = False
            self._unhook_all()

    def batch(self) -> None:
        """Hear that a loader is asked for another batch after one that it gave."""
        self._giver = None
        self.to.beat()
        self._event(LOADER, 0)

    def gave(self, loader: Any) -> None:
        """Hear that a loader gave a batch; a loop that knows their number (Lightning) asks for none after the last."""
        if self._giver is not None and self._giver() is None:
            self._event(LOADER, 0)
        self._giver = weakref.ref(loader)

    def captures(self, graph: Any) -> None:
        """Hear that a graph begins to be captured: the call before is no part of it."""
        if self._pending is not None:
            self._finish_pending()
        self.graphs.begins(graph)

    def replays(self, graph: Any) -> None:
        """Hear that a graph is about to be replayed, which uses the device as a call does."""
        if self.thread.depth or capture.takes_this():
            return
        if self.graphs.held(graph).rank == FORWARD:
            self._begin()
        elif self.to.has_left or self.to.rests:
            self.to.enter()

    def replayed(self, graph: Any) -> None:
        """Hear of a replay: the steps that the graph holds are made, unless a call does that of which it is a part.

        One that holds none and comes again with no step in between is the step itself.
        """
        held = self.graphs.held(graph)
        if capture.takes_this():
            return
        self.passes += 1  # it may hold one
        if held.rank == recorder.OPTIMIZER:
            self.to.step(held.rank, held.steps)
        elif self.thread.depth:
            return
        elif held.rank == FORWARD:
            self._called(held.key, None if held.steps == 1 else held.steps, is_open=held.is_open)
        elif held.rank:
            self._event(held.rank, held.key, held.steps)
        else:
            self._replayed_alone(id(graph))

    def _replayed_alone(self, graph: int) -> None:
        if graph in self._replayed:
            self._replayed = {graph}
            self._event(REPLAY, 0, 1 if self._replays else 2)
            self._replays += 1
        else:
            self._replayed.add(graph)

    def went_backward(self) -> None:
        """Hear of the end of a backward pass: the last that is seen of a step whose update is made by hand.

        From then on calls without gradients are evaluation, and no steps.
        """
        self.passes += 1
        self.trains()
        if capture.takes_this():
            self.graphs.captured(BACKWARD, 0)
        else:
            self._event(BACKWARD, 0)

    def trains(self) -> None:
        """Hear that the script trains: calls and batches that were counted before were none of its steps."""
        if not self._trains and self.to.rank in EVALUATING:
            self.to.uncount()
            self._rank, self._early = 0, 0
        self._trains = True

    def unhook(self, module: Any) -> bool:
        """Take the hooks off one module; whether it had any."""
        handles = self._handles.pop(id(module), ())
        for handle in handles:
            handle.remove()
        return self.evaluations.drop(id(module)) or bool(handles)

    def own_hooks(self) -> set[int]:
        """Return the ids of our hooks, to leave them out of what is saved."""
        own = {handle.id for handles in self._handles.values() for handle in handles}
        return own | self.evaluations.own_hooks() | self.first.own_hooks()

    def flush(self) -> None:
        """Count at the end of the process what was held back."""
        if self._pending is not None and self._is_wanted:
            self._finish_pending()
        if self._giver is not None:
            self._event(LOADER, 0)
        early, self._early = self._early, 0
        if early and self.to.wants(self._rank):
            self.to.boundary(early)
        self.to.flush()

    def _hook(self, module: Any) -> None:
        if id(module) in self._handles:
            return
        save_whole(self._torch, self)
        pre, post = self._hooks(id(module))
        first = module.register_forward_pre_hook(pre)
        self._handles[id(module)] = first, torch_rests.register_post(module, post)

    def _hooks(self, key: int) -> tuple[Callable[..., None], Callable[..., None]]:
        """Make the hooks of one module; a copy of the module has them too, but another id."""
        thread, is_compiling, grad = self.thread, torch_rests.compiling(self._torch), self._torch.is_grad_enabled

        def colane_forward_pre(module: object, _args: object) -> None:
            if is_compiling() or id(module) != key:
                return
            thread.depth += 1
            if thread.depth == 1:
                self.to.begins_beside()
                self._begin()

        def colane_forward_post(module: object, _args: object, _output: object) -> None:
            if is_compiling() or id(module) != key:
                return
            thread.depth -= 1
            if thread.depth == 0:
                self.to.ends_beside()
                self._end(key, is_open=grad())

        return colane_forward_pre, colane_forward_post

    def _begin(self) -> None:
        if capture.takes_this():
            return
        if self._pending is not None:
            self._finish_pending()
        if self.to.rank in ANSWERING or self.to.serves:
            self.thread.is_told = True
            self.to.sees_request()

    def _end(self, key: int, *, is_open: bool) -> None:
        if capture.takes_this():
            if is_open or not self._trains:
                self.graphs.captured(FORWARD, key, is_open=is_open)
        elif is_open and (self._trains or not self.to.serves):  # of an answer no pass backward follows
            self._forget_call()
            self._pending = key
        else:
            self._called(key, None, is_open=False)

    def _called(self, key: object, count: int | None, *, is_open: bool) -> None:
        """Count a call that is over: of one with gradients all of the step that it was captured with is."""
        self._forget_call()
        if is_open and (self._trains or not self.to.serves):
            self._event(FORWARD, key, count)
            return
        if self._trains:
            if self.to.rank == FORWARD:
                self.to.boundary(0, leaves=True)  # others may take their turn here all the same
            return
        self._event(FORWARD, key, count, leaves=True)
        if self.to.rank == FORWARD and not self.to.is_answering:
            self.to.set_phase(BETWEEN_STEPS)

    def _forget_call(self) -> None:
        if self.thread.is_told:
            self.thread.is_told = False
            self.to.call_ended()

    def _finish_pending(self) -> None:
        key, self._pending = self._pending, None
        self._event(FORWARD, key)

    def _event(self, rank: int, key: object, count: int | None = None, *, leaves: bool = False) -> None:
        """Count a step of one kind, unless a better kind has been seen; hold back what may not have been steps."""
        if rank < self._rank or not self._is_wanted or not self.to.wants(rank):
            return
        if self._torch.utils.data.get_worker_info() is not None:
            return
        if rank > self._rank:
            self._rank, self._cycle, self._early, self._first_s = rank, Cycle(), 0, time.monotonic()
        count = self._cycle.event(key) if count is None else count
        if self.to.rank != rank:
            self._early += count
            if not self._is_sure():
                return
            count, self._early = self._early, 0
        if count:
            self.to.step(rank, count, leaves=leaves)

    def _is_sure(self) -> bool:
        if self._rank == LOADER:
            return time.monotonic() >= self._first_s + LOADER_FIRST_S
        return self._early >= FORWARDS_FIRST or self.to.serves

    def _forget(self, key: int) -> None:
        module = self._roots.pop(key)()
        if module is not None:
            self.unhook(module)

    def _unhook_all(self) -> None:
        self._pending = None
        self._forget_call()
        for handles in self._handles.values():
            for handle in handles:
                handle.remove()
        self._handles.clear()


def attach(torch: Any, others: Others) -> None:
    """Watch for roots, loaders and graphs."""
    module = torch.nn.Module
    is_compiling = torch_rests.compiling(torch)
    for name in ("train", "_apply"):
        setattr(module, name, _as_a_whole(getattr(module, name), others, is_compiling))
    _watch_optimizers(torch, others)
    _watch_backward(torch, others)
    _watch_loaders(torch, others)
    torch_graphs.attach(torch, others)
    torch_rests.watch_saves(torch, others.to)
    side_threads.attach(others.to)
    others.first.watch()
    atexit.register(recorder.safely, others.flush)


def attach_compiler(dynamo: Any, others: Others) -> None:
    """Hook a compiled module in the place of the one inside it: outside of what is traced."""
    optimized = dynamo.eval_frame.OptimizedModule
    own = optimized.__init__

    @functools.wraps(own)
    def init(self: Any, mod: Any, *args: object, **kwargs: object) -> None:
        own(self, mod, *args, **kwargs)
        recorder.safely(_outside, others, mod, self)

    optimized.__init__ = init
    torch_first.attach_compiler(dynamo, others.first)


def _outside(others: Others, inner: Any, outer: Any) -> None:
    others.unhook(inner)
    others.evaluations.compiled(inner, outer)
    others.root(outer)
    others.first.watch_compiled(outer)


def _as_a_whole(own: Callable[..., Any], others: Others, is_compiling: Callable[[], bool]) -> Callable[..., Any]:
    """Wrap a method that modules call on their children in turn, to tell the outermost."""
    thread = others.thread

    @functools.wraps(own)
    def whole(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling() or thread.is_whole:
            return own(self, *args, **kwargs)
        thread.is_whole = True
        try:
            result = own(self, *args, **kwargs)
        finally:
            thread.is_whole = False
        recorder.safely(others.root, self)
        return result

    return whole


def _watch_loaders(torch: Any, others: Others) -> None:
    """Follow every loader's batches."""
    iterator = torch.utils.data.dataloader._BaseDataLoaderIter  # noqa: SLF001
    own, thread, to = iterator.__next__, others.thread, others.to

    @functools.wraps(own)
    def following(self: Any) -> Any:
        if self.__dict__.get("_colane_gave"):
            self._colane_gave = False
            recorder.safely(others.batch)
        thread.is_loading = True
        try:
            batch = torch_rests.next_batch(own, self, to)
        finally:
            thread.is_loading = False
        self._colane_gave = True
        recorder.safely(others.gave, self)
        return batch

    iterator.__next__ = following


def _watch_optimizers(torch: Any, others: Others) -> None:
    own = torch.optim.Optimizer.__init__

    @functools.wraps(own)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        own(self, *args, **kwargs)
        recorder.safely(others.optimizer_made)

    torch.optim.Optimizer.__init__ = init


def _watch_backward(torch: Any, others: Others) -> None:
    own = torch.autograd.backward  # `Tensor.backward` calls it by this name
    in_backward = getattr(torch._C, "_current_graph_task_id", lambda: -1)  # noqa: SLF001
    is_compiling = torch_rests.compiling(torch)

    @functools.wraps(own)
    def backward(*args: Any, **kwargs: Any) -> Any:
        others.first.used()
        result = own(*args, **kwargs)
        if not is_compiling() and in_backward() == -1:  # checkpointed parts go backward within backward
            recorder.safely(others.went_backward)
        return result

    torch.autograd.backward = backward


_saves_whole = False


def save_whole(torch: Any, others: Others) -> None:
    """Leave our hooks out of modules that are saved, copied or scripted: elsewhere they could not be loaded."""
    global _saves_whole  # noqa: PLW0603
    if _saves_whole:
        return
    _saves_whole = True
    torch.nn.Module.__getstate__ = lambda self: _without_hooks(self.__dict__, others.own_hooks())
    recursive = getattr(torch.jit, "_recursive", None)
    own = getattr(recursive, "get_hook_stubs", None)
    if recursive is None or own is None:
        return

    def get_hook_stubs(nn_module: Any) -> Any:
        others.unhook(nn_module)
        return own(nn_module)

    recursive.get_hook_stubs = get_hook_stubs


def _without_hooks(state: dict[str, Any], ours: set[int]) -> dict[str, Any]:
    kept = dict(state)
    for name in ("_forward_hooks", "_forward_pre_hooks", "_forward_hooks_always_called"):
        hooks = kept.get(name)
        if hooks and not ours.isdisjoint(hooks):
            kept[name] = type(hooks)((key, hook) for key, hook in hooks.items() if key not in ours)
    return kept
