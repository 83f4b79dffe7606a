"""The first use of its device by a PyTorch process, which waits for a turn: a first step may take long.

On GPUs that is where PyTorch initialises CUDA. The turn ends where the model has been moved as a whole, and the next
one begins where others do, too: at the first call of a module, the first pass backward, the first step of an
optimizer, the first use of a stream or an event, or where a thread begins that may use the device (`side_threads`),
whichever comes first. What watches for these is gone after it has seen one. PyTorch's own kernels of the main thread
that come before all of them, on no stream of their own, are not seen; those of another framework are not either, so
where one is there the turn is kept.
"""

from __future__ import annotations

import functools
import os

from . import recorder, side_threads, turns

TYPE_CHECKING = False  # as `typing` has it, which costs milliseconds to import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class FirstUse:
    """Waits in one process for the first use of the device."""

    def __init__(self, torch: Any, to: recorder.Recorder, is_loading: Callable[[], bool]) -> None:
        self._torch = torch
        self._to = to
        self._is_loading = is_loading
        self._is_over = False
        self._handles: list[Any] = []
        self._streams: dict[str, tuple[Any, Any, Any]] = {}

    def watch(self) -> None:
        """Watch for modules that are called and optimizers that step."""
        if self._handles or self._is_over:
            return
        from torch.nn.modules.module import register_module_forward_pre_hook
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        self._handles = [
            register_module_forward_pre_hook(self._called),
            register_optimizer_step_pre_hook(self._stepping),
        ]

    def initialised(self) -> None:
        """Hear that CUDA is about to be used; ranks of a gang may have to meet before all of them come so far."""
        if turns.ranks_here() == 1:
            self._to.enter()

    def moved(self) -> None:
        """Hear that a module was moved or put into a mode as a whole: nothing computes until it is called."""
        if not self._is_over and self._torch.cuda.is_initialized() and not self._to.is_new:
            if not side_threads.is_other_framework_here() and self._to.rest():
                self._watch_streams()
            self.watch()

    def used(self) -> None:
        """Hear that the device is about to be used."""
        if not self._is_over:
            self._begin()

    def unhook(self) -> None:
        """Take the hook off modules: what is compiled must not trace it."""
        for handle in self._handles[:1]:
            handle.remove()
        self._leave_streams()

    def watch_compiled(self, outer: Any) -> None:
        """Watch for a compiled module by a hook of its own, outside of what is traced."""
        if self._is_over:
            return

        def called(module: object, args: object) -> None:  # a function: methods are copied with all they belong to
            self._called(module, args)

        self._handles.append(outer.register_forward_pre_hook(called))

    def own_hooks(self) -> set[int]:
        """Identities of the hooks."""
        return {handle.id for handle in self._handles}

    def _watch_streams(self) -> None:
        """Watch for what a script does on the device without a module, on streams of its own."""
        cuda = self._torch.cuda
        for owner, name in ((cuda.StreamContext, "__enter__"), (cuda.Event, "record")):
            own = getattr(owner, name)
            if name not in self._streams:
                ours = self._before(own)
                setattr(owner, name, ours)
                self._streams[name] = owner, ours, own

    def _before(self, own: Any) -> Any:
        @functools.wraps(own)
        def first_use(*args: Any, **kwargs: Any) -> Any:
            self.used()
            return own(*args, **kwargs)

        return first_use

    def _leave_streams(self) -> None:
        for name, (owner, ours, own) in self._streams.items():
            if getattr(owner, name) is ours:
                setattr(owner, name, own)
        self._streams.clear()

    def _called(self, _module: object, _args: object) -> None:
        """A module is called; those in a loader, or in a child that the job forked, may be steps of preparing data."""
        if self._to.wants(recorder.FORWARD) and not self._is_loading():
            self._begin()

    def _stepping(self, _optimizer: object, _args: object, _kwargs: object) -> None:
        self._begin()

    def _begin(self) -> None:
        try:
            is_on_host = os.environ.get("CUDA_VISIBLE_DEVICES") and not self._torch.cuda.is_initialized()
            if is_on_host or self._torch.utils.data.get_worker_info() is not None:  # what is computed needs no turn
                return
            self._is_over = True
            for handle in self._handles:
                handle.remove()
            self._leave_streams()
            self._to.enter()
        except Exception as error:  # noqa: BLE001  # the job's own call goes on
            recorder.debug(f"does not wait for its first turn: {error!r}")


def attach_compiler(dynamo: Any, first: FirstUse) -> None:
    """Take the hook off modules as soon as anything shall be compiled."""
    context = dynamo.eval_frame.OptimizeContext
    own = context.__init__

    @functools.wraps(own)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        first.unhook()
        own(self, *args, **kwargs)

    context.__init__ = init
