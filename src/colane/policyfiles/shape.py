"""What a user's policy returns, checked before it is used.

`core.check` judges whether a plan may be carried out; that it is one, made of the right things, is judged here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, get_args

from colane.model.hardware import GpuId
from colane.model.phases import Throttle
from colane.model.placement import Placement, Slot
from colane.model.plan import Action, Plan, Replan, SetCores, SetThrottle, placement_of
from colane.model.reason import Reason
from colane.model.sentences import sentence_of

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
    yield from _mapping("holds", plan.holds, _gpus)

    yield from _mapping("replan", plan.replan, partial(_replan, now_s=now_s))


def _replan(replan: object, now_s: float) -> str:
    if not isinstance(replan, Replan):
        return f"must be a Replan, got {replan!r}"
    at_s: object = replan.at_s
    if not isinstance(at_s, (int, float)) or at_s <= now_s:  # a moment that is over would come again and again
        return f"has at_s={at_s!r}, not a time after view.now_s; leave it out to be asked when something changes"
    switches = ("after_moves", "while_idle", "newcomers_only", "settled", "goes_on")
    wrong = [name for name in switches if not isinstance(getattr(replan, name), bool)]
    if wrong:
        return f"has {wrong[0]}={getattr(replan, wrong[0])!r}, not True or False"
    if not isinstance(replan.news_until_s, (int, float)):
        return f"has news_until_s={replan.news_until_s!r}, not a time"
    return "" if isinstance(replan.full_up_to, (int, float)) else f"has full_up_to={replan.full_up_to!r}, no priority"


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
    if placement is not None and (flaw := _place(placement)):
        return f"the placement of job {known.job} {flaw}"
    return f"{type(known).__name__} of job {known.job} {flaw}" if (flaw := _rest_of(known)) else ""


def _rest_of(action: Action) -> str:
    """What an action says besides its job, reason and placement."""
    if isinstance(action, SetCores):
        return _cores(action.cores, action.cores_elsewhere)
    if isinstance(action, SetThrottle):
        return _throttle(action.throttle)
    for_job: object = getattr(action, "for_job", None)
    if for_job is not None and not isinstance(for_job, int):
        return f"is for job {for_job!r}"
    switches = {name: getattr(action, name, False) for name in ("save", "final", "learn", "isolate")}
    return next(
        (f"has {name}={value!r}, not True or False" for name, value in switches.items() if not isinstance(value, bool)),
        "",
    )


def _reason(reason: object) -> str:
    """A reason is read by people: its sentence must find all the facts it names."""
    if not isinstance(reason, Reason):
        return f"must be a Reason, got {reason!r}"
    try:
        sentence_of(reason)
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        return f"({reason.why!r}) lacks a fact its sentence needs: {type(error).__name__}: {error}"
    return ""


def _throttle(throttle: object) -> str:
    if throttle is None:
        return ""
    if not isinstance(throttle, Throttle) or not isinstance(throttle.bandwidth_ratio, (int, float)):
        return f"must have a Throttle or None, got {throttle!r}"
    return _cores((*throttle.cores, *throttle.withheld), ())


def _place(placement: object) -> str:
    if not isinstance(placement, Placement):
        return f"must be a Placement, got {placement!r}"
    if not all(isinstance(slot, Slot) and isinstance(slot.lane, int) and slot.lane >= 0 for slot in placement.slots):
        return f"must have Slots with lanes from 0, got {placement.slots!r}"
    if not isinstance(placement.port, int) or not isinstance(placement.node, str):
        return f"must have a port and the name of a node, got {placement!r}"
    return _gpus(placement.gpus) or _cores(placement.cores, placement.cores_elsewhere)


def _cores(cores: object, elsewhere: object) -> str:
    if not _holds_only(cores, int):
        return f"must have cores as a tuple of numbers, got {cores!r}"
    if isinstance(elsewhere, tuple) and all(map(_is_cores_of_node, elsewhere)):
        return ""
    return f"must have cores elsewhere as (node, numbers) each, got {elsewhere!r}"


def _is_cores_of_node(pair: object) -> bool:
    if not isinstance(pair, tuple) or len(pair) != 2:
        return False
    return isinstance(pair[0], str) and _holds_only(pair[1], int)


def _holds_only(values: object, kind: type) -> bool:
    return isinstance(values, tuple) and all(isinstance(value, kind) for value in values)


def _gpus(gpus: object) -> str:
    is_tuple = isinstance(gpus, tuple) and all(isinstance(gpu, GpuId) for gpu in gpus)
    return "" if is_tuple else f"must be a tuple of GpuIds, got {gpus!r}"
