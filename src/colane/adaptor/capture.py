"""Whether a CUDA graph is being captured: then the adaptor calls nothing of CUDA, for one such call ends the job.

While a stream is captured, CUDA forbids to wait for the device or to ask whether an event is passed, in the usual mode
to all threads of the process; who does it all the same spoils the capture. An event that is recorded meanwhile is part
of the graph and never passed. Nothing that is captured runs before the graph is replayed.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import weakref

TYPE_CHECKING = False  # as `typing` has it, which costs milliseconds to import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

BEGIN_MAX_S = 10.0
"""A capture that begins while another thread's call is under way waits for it, as long as that may hang on others."""

_graphs: weakref.WeakSet[Any] = weakref.WeakSet()
_calls = threading.RLock()


def takes_this() -> bool:
    """Whether what this thread computes is captured, so that it does not run now."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return False
    try:
        return bool(cuda.is_current_stream_capturing())
    except RuntimeError:
        return True  # the state of a stream is refused where another is captured that waits for it


def is_under_way() -> bool:
    """Whether any thread of this process captures."""
    return bool(_graphs) or takes_this()


class Excluded:
    """No capture begins within; gives whether none is under way, so that CUDA may be called."""

    __slots__ = ()

    def __enter__(self) -> bool:
        _calls.acquire()
        return not is_under_way()

    def __exit__(self, *_: object) -> None:
        _calls.release()


excluded = Excluded()


def watch(graph: Any, begins: Callable[[Any], None], ends: Callable[[], None]) -> None:
    """Follow what PyTorch's graphs capture.

    Args:
        graph: `torch.cuda.CUDAGraph`.
        begins: Told of each before it begins.
        ends: Told once it has ended.
    """
    own_begin, own_end = graph.capture_begin, graph.capture_end

    @functools.wraps(own_begin)
    def capture_begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        begins(self)
        is_alone = _calls.acquire(timeout=BEGIN_MAX_S)
        try:
            _graphs.add(self)
            result = own_begin(self, *args, **kwargs)
        except BaseException:
            _graphs.discard(self)
            raise
        finally:
            if is_alone:
                _calls.release()
        return result

    @functools.wraps(own_end)
    def capture_end(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return own_end(self, *args, **kwargs)
        finally:
            _graphs.discard(self)
            ends()

    graph.capture_begin, graph.capture_end = capture_begin, capture_end


def _begin_in_child() -> None:
    """What other threads had under way is not the child's."""
    global _calls  # noqa: PLW0603
    _calls = threading.RLock()
    _graphs.clear()


os.register_at_fork(after_in_child=_begin_in_child)
