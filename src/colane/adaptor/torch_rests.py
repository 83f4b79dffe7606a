"""Where a PyTorch job that shares a lane gives way without ending a training step.

An evaluation ends a step of its own with every call of a module in eval mode without gradients; it counts none. While a
script waits for a batch of a loader, or saves something, its device is idle, and its turn is given back.

Modules carry hooks in eval mode only, so a step of training pays nothing for this.
"""

from __future__ import annotations

import functools
import time
import weakref

from . import aside, recorder

TYPE_CHECKING = False  # as `typing` has it, which costs milliseconds to import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

SOON_S = 0.01
"""A batch that comes sooner is waited for within the turn: to give it back and take it again costs some 0.2 ms."""

FADING = 0.9
"""How much of the longest wait is still expected a batch later: one in ten may be slow, as the first of a file."""


class Evaluations:
    """Hooks of the modules that are in eval mode as a whole."""

    def __init__(self, torch: Any, to: recorder.Recorder) -> None:
        self._torch = torch
        self._to = to
        self._handles: dict[int, tuple[Any, Any]] = {}
        self._outer: dict[int, weakref.ref[Any]] = {}
        self._depth = 0

    def compiled(self, inner: Any, outer: Any) -> None:
        """Hear that a module was compiled: hooks go outside of what is traced."""
        self.drop(id(inner))
        self._outer[id(inner)] = weakref.ref(outer)

    def follow(self, module: Any) -> None:
        """Hook a module that was put into eval mode, and take the hooks off one that trains."""
        outer = self._outer.get(id(module))
        module = (outer() if outer is not None else None) or module
        if module.training:
            self.drop(id(module))
        elif id(module) not in self._handles and getattr(module, "_compiled_call_impl", None) is None:
            self._hook(module)

    def own_hooks(self) -> set[int]:
        """Return the ids of our hooks, to leave them out of what is saved."""
        return {handle.id for handles in self._handles.values() for handle in handles}

    def _hook(self, module: Any) -> None:
        key = id(module)
        is_compiling = compiling(self._torch)
        weakref.finalize(module, self._handles.pop, key, None)

        def colane_forward_pre(module: object, _args: object) -> None:
            if id(module) == key and not is_compiling():
                self._depth += 1
                self._to.begins_beside()

        def colane_forward_post(module: object, _args: object, _output: object) -> None:
            if id(module) == key and not is_compiling():
                self._depth -= 1
                self._to.ends_beside()
                if not self._depth and not self._torch.is_grad_enabled():
                    recorder.safely(self._to.pause)

        post = register_post(module, colane_forward_post)
        self._handles[key] = module.register_forward_pre_hook(colane_forward_pre), post

    def drop(self, key: int) -> bool:
        """Take the hooks off one module; whether it had any."""
        handles = self._handles.pop(key, None) or ()
        for handle in handles:
            handle.remove()
        return bool(handles)


def register_post(module: Any, post: Callable[..., None]) -> Any:
    """Hook the end of a module's call, whether it raises or not."""
    try:
        return module.register_forward_hook(post, always_call=True)
    except TypeError:  # PyTorch before 2.0
        return module.register_forward_hook(post)


def compiling(torch: Any) -> Callable[[], bool]:
    """Give what tells whether the code that runs is being compiled."""
    compiler = getattr(torch, "compiler", None)
    found = getattr(compiler, "is_compiling", None) or getattr(torch._dynamo, "is_compiling", None)  # noqa: SLF001
    return found or (lambda: False)


def is_slow(loader: Any, wait_s: float) -> bool:
    """Whether the next batch may be waited for, of a loader of which one has taken so long.

    What worker processes have ready is seen; what the script's own process loads may take as long as it has.
    """
    tasks = getattr(loader, "_task_info", None)
    if tasks is None:
        return wait_s >= SOON_S
    if len(tasks.get(loader._rcvd_idx, ())) > 1:  # noqa: SLF001
        return False
    return wait_s >= SOON_S or not _comes_soon(loader._data_queue)  # noqa: SLF001


def _comes_soon(queue: Any) -> bool:
    reader = getattr(queue, "_reader", None)
    if reader is not None:
        return bool(reader.poll(SOON_S))
    with queue.not_empty:  # of the thread that pins memory
        return bool(queue.queue) or queue.not_empty.wait(SOON_S)


def next_batch(own: Any, loader: Any, to: recorder.Recorder) -> Any:
    """Ask a loader for its next batch, without the turn where that takes long; the first one always does."""
    if not to.shares():
        return own(loader)
    state = loader.__dict__
    has_left = False
    try:
        has_left = is_slow(loader, state.get("_colane_wait_s", SOON_S)) and to.rest()
    except Exception as error:  # noqa: BLE001  # a loader of another shape
        recorder.debug(f"waits for data within its turn: {error!r}")
    began_s = time.perf_counter()
    try:
        return own(loader)
    finally:
        state["_colane_wait_s"] = max(time.perf_counter() - began_s, state.get("_colane_wait_s", 0.0) * FADING)
        if has_left:
            recorder.safely(to.enter)


def watch_saves(torch: Any, to: recorder.Recorder) -> None:
    """Give the turn back while something is saved."""
    own = torch.save

    @functools.wraps(own)
    def save(*args: Any, **kwargs: Any) -> Any:
        has_left = to.shares() and to.rest()
        try:
            return own(*args, **kwargs)
        finally:
            if has_left:
                recorder.safely(to.enter)

    aside.replace(torch, "save", save)
