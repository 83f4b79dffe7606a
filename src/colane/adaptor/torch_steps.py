"""Steps of a PyTorch job: its optimizers' global step hooks.

They fire for every `torch.optim.Optimizer`, under DDP, FSDP, ZeRO, accelerate, Lightning and the like, once for
each step however many batches were accumulated. What does not end an iteration is left out: an optimizer inside
another's step (ZeRO, SAM), steps during backward, what a CUDA graph records, and a GAN's optimizers but one.
"""

from __future__ import annotations

import functools
import sys
import threading

from . import recorder, torch_forward
from .cycle import Cycle

TYPE_CHECKING = False  # as `typing` has it, which costs milliseconds to import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Hook = Callable[..., None]


class _Thread(threading.local):
    """Ids of the optimizers whose step is under way in this thread, outermost first."""

    def __init__(self) -> None:
        self.stack: list[int] = []


class Steps:
    """Finds the ends of iterations in one process.

    Attributes:
        pre: Hook before an optimizer's step.
        post: Hook after it.
        others: Finds steps where there is no optimizer.
        events: Steps of optimizers so far that were no part of another's step.
    """

    def __init__(self, torch: Any, to: recorder.Recorder) -> None:
        self.events = 0
        self._to = to
        self._cycle = Cycle()
        self.others = torch_forward.Others(torch, to)
        self._in_backward = getattr(torch._C, "_current_graph_task_id", _outside_backward)  # noqa: SLF001
        self._cuda = torch.cuda
        self._is_capturing = getattr(torch._C, "_cuda_isCurrentStreamCapturing", _never)  # noqa: SLF001
        self._wrapper = _wrapper_code(torch)
        self.pre, self.post = self._hooks()

    def _hooks(self) -> tuple[Hook, Hook]:
        """Make the two hooks: functions, because they run at every step of every job."""
        thread, active = _Thread(), self._active
        stepped = self.stepped

        def pre(optimizer: object, _args: object, _kwargs: object) -> None:
            stack = thread.stack
            if stack:  # inside another's step, or one that raised has left its id behind
                stack[:] = active(stack, id(optimizer))
            stack.append(id(optimizer))

        def post(optimizer: object, _args: object, _kwargs: object) -> None:
            stack, key = thread.stack, id(optimizer)
            while stack and stack.pop() != key:
                pass
            if not stack:
                stepped(key)

        return pre, post

    def stepped(self, key: int) -> None:
        """Take note of a step that was no part of another's."""
        self.events += 1
        to = self._to
        if to.rank > recorder.OPTIMIZER:
            return
        if self._in_backward() != -1:
            self.others.steps_in_backward()
            return
        if self._cuda._initialized and self._is_capturing():  # noqa: SLF001
            return
        self.others.stepped()
        count = self._cycle.event(key)
        if count:
            to.rank = recorder.OPTIMIZER
            to.boundary(count)

    def _active(self, stack: list[int], key: int) -> list[int]:
        """Return whose steps are really under way, from the frames of the calls."""
        if self._wrapper is None:
            return stack[: stack.index(key)] if key in stack else stack
        frames = []
        frame = sys._getframe(1)  # noqa: SLF001
        while frame is not None:
            if frame.f_code is self._wrapper:
                frames.append(id(frame.f_locals.get("self")))
            frame = frame.f_back  # type: ignore[assignment]
        return frames[:0:-1]  # outermost first, without the one that is just beginning


def _outside_backward() -> int:
    return -1


def _never() -> bool:
    return False


def _wrapper_code(torch: Any) -> object:
    """Return the code of the function that PyTorch puts around every optimizer's step, None where it has none."""
    wrap = getattr(torch.optim.Optimizer, "profile_hook_step", None)
    return wrap(_outside_backward).__code__ if wrap is not None else None


_steps: Steps | None = None
_handles: list[Any] = []


def attach(torch: Any) -> None:
    """Hook into PyTorch, freshly imported."""
    global _steps  # noqa: PLW0603
    to = recorder.current()
    if to is None or _steps is not None:
        return
    _steps = Steps(torch, to)
    from torch.optim import optimizer

    _handles.append(optimizer.register_optimizer_step_pre_hook(_steps.pre))
    _handles.append(optimizer.register_optimizer_step_post_hook(_steps.post))
    _watch_scaler(torch, _steps)
    _register_with_cuda(torch, to)
    torch_forward.attach(torch, _steps.others)


def attach_compiler(dynamo: Any) -> None:
    """Keep the hooks out of what is compiled: traced, they would break graphs and be compiled anew without end.

    PyTorch imports its compiler with the first optimizer, so this comes before any step.
    """
    if _steps is None:
        return
    for handle, hook in zip(_handles, (_steps.pre, _steps.post)):  # noqa: B905  # Python 3.8
        hooks = handle.hooks_dict_ref()
        if handle.id in hooks:
            hooks[handle.id] = dynamo.disable(hook)
    torch_forward.attach_compiler(dynamo, _steps.others)


def _watch_scaler(torch: Any, steps: Steps) -> None:
    """Count the iterations that mixed precision skips: there the optimizer is not called, yet one has ended."""
    scaler = getattr(getattr(torch, "amp", None), "GradScaler", None) or torch.cuda.amp.GradScaler
    own = scaler.step

    @functools.wraps(own)
    def step(self: object, optimizer: object, *args: object, **kwargs: object) -> object:
        before = steps.events
        result = own(self, optimizer, *args, **kwargs)
        if steps.events == before:
            _skipped(steps, optimizer)
        return result

    scaler.step = step


def _skipped(steps: Steps, optimizer: object) -> None:
    try:
        steps.stepped(id(optimizer))
    except Exception as error:  # noqa: BLE001  # the job's step is done and must stay so
        recorder.debug(f"a skipped step is not counted: {error!r}")


def _register_with_cuda(torch: Any, to: recorder.Recorder) -> None:
    """Register at the first use of a GPU: from then on the process holds memory there."""

    def register() -> None:
        try:
            if to.rank != recorder.EXPLICIT:
                to.register()
        except Exception as error:  # noqa: BLE001  # PyTorch would fail to initialise
            recorder.debug(f"steps are not reported: {error!r}")

    lazily = getattr(torch.cuda, "_lazy_call", None)
    if lazily is not None:
        lazily(register)
