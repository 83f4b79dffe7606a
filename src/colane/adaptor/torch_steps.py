"""Steps of a PyTorch job: its optimizers' global step hooks.

They fire for every `torch.optim.Optimizer`, under DDP, FSDP, ZeRO, accelerate, Lightning and the like, once for
each step however many batches were accumulated. What does not end an iteration is left out: an optimizer inside
another's step (SAM), one's steps with no pass backward in between (ZeRO's groups of parameters), steps during
backward, what a CUDA graph records, and a GAN's optimizers but one.
"""

from __future__ import annotations

import functools
import sys

from . import capture, recorder, stacks, torch_first, torch_forward
from .cycle import KNOWN_MAX, MANY, Cycle

TYPE_CHECKING = False  # as `typing` has it, which costs milliseconds to import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Hook = Callable[..., None]


NESTED = "_colane_is_nested"
"""Kept on each optimizer: whether its steps are parts of another's (ZeRO's inner one, SAM's base)."""
LOOK_AGAIN = 61  # every so many steps that is found out anew; it takes a look at all frames


class StepFinder:
    """Finds the ends of iterations in one process.

    Attributes:
        post: Hook after an optimizer's step.
        others: Finds steps where there is no optimizer.
        events: Steps of optimizers so far.
    """

    def __init__(self, torch: Any, to: recorder.Recorder) -> None:
        self.events = 0
        self._to = to
        self._cycle = Cycle()
        self._stepped_at: dict[int, int] = {}
        self._without = 0
        self.others = torch_forward.Others(torch, to)
        self._in_backward = getattr(torch._C, "_current_graph_task_id", _outside_backward)  # noqa: SLF001
        self._wrapper = _wrapper_code(torch)
        self.post = self._hook()

    def _hook(self) -> Hook:
        """Make the hook: a function, because it runs at every step of every job."""
        is_nested, ended, boundary = self._is_nested, self.ended, self._to.boundary

        def post(optimizer: Any, _args: object, _kwargs: object) -> None:
            try:
                self.events += 1
                nested = getattr(optimizer, NESTED, None)
                if nested is None or not self.events % LOOK_AGAIN:
                    nested = is_nested()
                    setattr(optimizer, NESTED, nested)
                count = 0 if nested else ended(id(optimizer))
            except Exception as error:  # noqa: BLE001  # the job's step is done and must stay so
                recorder.debug(f"a step is not counted: {error!r}")
                return
            if count:
                boundary(count)

        return post

    def skipped(self, optimizer: object) -> None:
        """Count an iteration in which the optimizer was not called."""
        try:
            count = self.ended(id(optimizer))
        except Exception as error:  # noqa: BLE001
            recorder.debug(f"a skipped step is not counted: {error!r}")
            return
        if count:
            self._to.boundary(count)

    def ended(self, key: int) -> int:
        """Return how many iterations have ended with a step that was no part of another's."""
        to = self._to
        if to.rank > recorder.OPTIMIZER:
            return 0
        if self._in_backward() != -1:
            self.others.steps_in_backward()
            return 0
        if capture.takes_this():
            self.others.graphs.captured(recorder.OPTIMIZER, key)
            return 0
        self.others.stepped()
        count = self._cycle.event(key) if self._follows_a_pass(key) else 0
        if self._without == MANY + 1:  # those before were iterations, too
            self._without, count = MANY + 2, count + MANY
        if count:
            self.others.trains()
            to.rank = recorder.OPTIMIZER
        return count

    def _follows_a_pass(self, key: int) -> bool:
        """Whether a pass backward came since this optimizer's last step: ZeRO steps once for each group of parameters.

        Not asked of a script that goes backward unseen, so that it steps and steps without.
        """
        passes = self.others.passes
        if self._stepped_at.get(key) == passes:
            self._without += 1
        elif self._without <= MANY:
            self._without = 0
        if len(self._stepped_at) >= KNOWN_MAX:
            self._stepped_at.clear()
        self._stepped_at[key] = passes
        return not (passes and 0 < self._without <= MANY)

    def _is_nested(self) -> bool:
        """Whether the step that ends now is part of another optimizer's, from the frames of the calls."""
        wrapper, found = self._wrapper, 0
        frame = sys._getframe(1)  # noqa: SLF001
        while frame is not None:
            found += frame.f_code is wrapper
            frame = frame.f_back  # type: ignore[assignment]
        return found > 1


def _outside_backward() -> int:
    return -1


def _wrapper_code(torch: Any) -> object:
    """Return the code of the function that PyTorch puts around every optimizer's step, None where it has none."""
    wrap = getattr(torch.optim.Optimizer, "profile_hook_step", None)
    return wrap(_outside_backward).__code__ if wrap is not None else None


_steps: StepFinder | None = None
_handle: Any = None


def attach(torch: Any) -> None:
    """Hook into PyTorch, freshly imported."""
    global _steps, _handle  # noqa: PLW0603
    to = recorder.current()
    if to is None or _steps is not None:
        return
    _steps = StepFinder(torch, to)
    from torch.optim import optimizer

    _handle = optimizer.register_optimizer_step_post_hook(_steps.post)
    _watch_scaler(torch, _steps)
    _register_with_cuda(torch, to, _steps.others.first)
    torch_forward.attach(torch, _steps.others)
    stacks.watch_groups(torch)


def attach_compiler(dynamo: Any) -> None:
    """Keep the hook out of what is compiled: traced, it would break graphs and be compiled anew without end.

    PyTorch imports its compiler with the first optimizer, so this comes before any step.
    """
    if _steps is None:
        return
    hooks = _handle.hooks_dict_ref()
    if _handle.id in hooks:
        hooks[_handle.id] = dynamo.disable(_steps.post)
    torch_forward.attach_compiler(dynamo, _steps.others)


def _watch_scaler(torch: Any, steps: StepFinder) -> None:
    """Count the iterations that mixed precision skips: there the optimizer is not called, yet one has ended."""
    scaler = getattr(getattr(torch, "amp", None), "GradScaler", None) or torch.cuda.amp.GradScaler
    own = scaler.step

    @functools.wraps(own)
    def step(self: object, optimizer: object, *args: object, **kwargs: object) -> object:
        before = steps.events
        result = own(self, optimizer, *args, **kwargs)
        if steps.events == before:
            steps.skipped(optimizer)
        return result

    scaler.step = step


def _register_with_cuda(torch: Any, to: recorder.Recorder, first: torch_first.FirstUse) -> None:
    """Register at the first use of a GPU, in a turn: from then on the process holds memory there."""

    def register() -> None:
        try:
            if recorder.knows_rank():
                if to.rank != recorder.EXPLICIT:
                    to.register()
                first.initialised()
        except Exception as error:  # noqa: BLE001  # PyTorch would fail to initialise
            recorder.debug(f"steps are not reported: {error!r}")

    queued = getattr(torch.cuda, "_queued_calls", None)
    if queued is not None:
        queued.append((register, []))  # as `_lazy_call` does, without formatting the stack for milliseconds
