"""Threads of a script beside its main one, which may launch kernels while that waits for something else.

A turn that is given up within a step's time, because the main thread loads data or has not begun yet, must not be used
by another thread. Whether a thread may use a device is told by what it runs: a function of a module that knows a
framework by name. Those of loggers and progress bars know none. A thread that runs one keeps the turn; one that is
started, or given such a function, waits for it first.
"""

from __future__ import annotations

import functools
import sys
import threading

from .aside import safely

TYPE_CHECKING = False  # as `typing` has it, which costs milliseconds to import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    class Resting(Protocol):
        """A process whose turn is given up at times."""

        @property
        def rests(self) -> bool:
            """Whether it is given up now."""

        def enter(self) -> None:
            """Wait for it."""


FRAMEWORKS = ("torch", "cupy", "jax", "tensorflow", "triton")
OTHERS = ("cupy", "jax", "tensorflow", "numba.cuda", "pycuda")
HARMLESS = frozenset({"torch.utils.data._utils.pin_memory", "torch._inductor", "torch.multiprocessing"})
"""Modules of PyTorch whose threads launch no kernels."""


def is_other_framework_here() -> bool:
    """Whether this process has a framework besides PyTorch that computes on devices; Triton's kernels are PyTorch's."""
    return any(name in sys.modules for name in OTHERS)


def is_one_beside() -> bool:
    """Whether a thread other than this one runs code that may use a device."""
    own = threading.get_ident()
    return any(_is_on_stack(frame) for ident, frame in sys._current_frames().items() if ident != own)  # noqa: SLF001


def attach(to: Resting) -> None:
    """Let threads that may use a device, started while the turn is given up, begin once it is back."""
    own = threading.Thread.start

    @functools.wraps(own)
    def start(self: Any) -> None:
        if to.rests:
            safely(_begin, to, getattr(self, "_target", None) or type(self).run)
        own(self)

    threading.Thread.start = start  # type: ignore[method-assign]
    executor = getattr(sys.modules.get("concurrent.futures.thread"), "ThreadPoolExecutor", None)
    if executor is None:
        return
    own_submit = executor.submit

    @functools.wraps(own_submit)
    def submit(self: Any, fn: Any, *args: Any, **kwargs: Any) -> Any:
        if to.rests:
            safely(_begin, to, fn)
        return own_submit(self, fn, *args, **kwargs)

    executor.submit = submit


def _begin(to: Resting, function: Callable[..., Any]) -> None:
    while isinstance(function, functools.partial):
        function = function.func
    function = getattr(function, "__func__", function)  # of a method
    if _knows_a_framework(getattr(function, "__globals__", {})):
        to.enter()


def _is_on_stack(frame: Any) -> bool:
    while frame is not None:
        if _knows_a_framework(frame.f_globals):
            return True
        frame = frame.f_back
    return False


def _knows_a_framework(names: dict[str, Any]) -> bool:
    """Whether code with these global names may use a device: some are a framework's modules, or of its objects."""
    home = str(names.get("__name__", ""))
    if any(home == one or home.startswith(one + ".") for one in HARMLESS) or home.startswith("_colane"):
        return False
    if home.partition(".")[0] in FRAMEWORKS:
        return True
    loaded = [sys.modules[name] for name in FRAMEWORKS if name in sys.modules]
    return any(one is module for one in list(names.values()) for module in loaded)
