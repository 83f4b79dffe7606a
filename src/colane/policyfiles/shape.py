"""What a user's policy returns, looked at before anybody relies on it.

`core.check` judges whether a plan may be carried out; that it is one, made of the right things, is judged here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import isfinite
from typing import Any, get_args

from colane.model.hardware import GpuId
from colane.model.placement import Placement, Slot
from colane.model.plan import Action, Blocked, Plan, placement_of
from colane.model.reason import Reason

Judge = Callable[[Any], str]
"""What is wrong with a value; empty when nothing is."""


def flaw_of(plan: object, now_s: float) -> str:
    """What is wrong with what a policy returned; empty when it is a plan.

    Args:
        plan: What was returned.
        now_s: When it was asked.
    """
    if not isinstance(plan, Plan):
        return f"plan(view) must return a Plan, not {type(plan).__name__}"
    return next(_flaws(plan, now_s), "")


def _flaws(plan: Plan, now_s: float) -> Iterator[str]:
    if not isinstance(plan.based_on, int):
        yield f"Plan.based_on must be the view's version, got {plan.based_on!r}"
    if not isinstance(plan.actions, tuple):
        yield f"Plan.actions must be a tuple, got {type(plan.actions).__name__}"
        return
    yield from filter(None, map(_action, plan.actions))
    yield from _mapping("waits", plan.waits, _reason)
    yield from _mapping("class_waits", plan.class_waits, _reason)
    yield from _mapping("rest", plan.rest, _reason)
    yield from _mapping("blocked", plan.blocked, _blocked)
    yield from _mapping("holds", plan.holds, _gpus)

    def later(at_s: object) -> str:
        """A moment that is over would be asked for again and again."""
        is_later = isinstance(at_s, (int, float)) and isfinite(at_s) and at_s > now_s
        return "" if is_later else f"must be a time after view.now_s, got {at_s!r}"

    yield from _mapping("again_s", plan.again_s, later)


def _mapping(name: str, values: object, judge: Judge) -> Iterator[str]:
    if not isinstance(values, Mapping):
        yield f"Plan.{name} must be a mapping, got {type(values).__name__}"
        return
    for key, value in values.items():
        if flaw := judge(value):
            yield f"Plan.{name}[{key!r}] {flaw}"


def _action(action: object) -> str:
    if not isinstance(action, get_args(Action)):
        return f"Plan.actions must hold Start, Stop and the like, got {action!r}"
    known: Any = action
    if not isinstance(known.job, int):
        return f"an action's job must be the number of a job, got {known.job!r}"
    if flaw := _reason(known.reason):
        return f"the reason for job {known.job} {flaw}"
    placement = placement_of(known)
    return f"the placement of job {known.job} {flaw}" if placement is not None and (flaw := _place(placement)) else ""


def _reason(reason: object) -> str:
    """A reason is read by people: its sentence must find all the facts it names."""
    if not isinstance(reason, Reason):
        return f"must be a Reason, got {reason!r}"
    try:
        reason.sentence()
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        return f"({reason.why!r}) lacks a fact its sentence needs: {type(error).__name__}: {error}"
    return ""


def _place(placement: object) -> str:
    if not isinstance(placement, Placement):
        return f"must be a Placement, got {placement!r}"
    if not all(isinstance(slot, Slot) and isinstance(slot.lane, int) for slot in placement.slots):
        return f"must have Slots with lanes, got {placement.slots!r}"
    if flaw := _gpus(placement.gpus):
        return flaw
    return "" if all(isinstance(core, int) for core in placement.cores) else f"has cores {placement.cores!r}"


def _gpus(gpus: object) -> str:
    is_tuple = isinstance(gpus, tuple) and all(isinstance(gpu, GpuId) for gpu in gpus)
    return "" if is_tuple else f"must be a tuple of GpuIds, got {gpus!r}"


def _blocked(blocked: object) -> str:
    return "" if isinstance(blocked, Blocked) else f"must be a Blocked, got {blocked!r}"
