"""Why not otherwise: the policy is asked with one thing forced, and told is by what that differs from what it does.

A copied core is stepped as it is, and another with the job forced: first of all (`now`), on one node (`on`), or in
place of another job (`instead`). What comes of it is the policy's own plan, and is checked like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from colane.core.core import Core
from colane.core.events import CancelRequested, Ended, Event, Tick
from colane.facts.job import is_told
from colane.model.job import Exit, Job, JobId
from colane.model.job_spec import under
from colane.model.plan import ACTION_NAMES, Stop
from colane.model.sentences import sentence_of
from colane.model.words import count, percent
from colane.server.planning.copies import ask

FIRST: Final = 10**6  # a priority above all that may be asked for
NAMED_MAX: Final = 8  # so many other jobs are told of one by one


class Forced(NamedTuple):
    """What is to be otherwise for a job that waits."""

    on: str = ""  # a node, or a GPU as `n1/3`
    instead: JobId | None = None  # a job that runs, in whose place it is to be


class JobAfter(NamedTuple):
    """Where one job is, and how fast it is believed to go, of its speed alone; None where nothing tells."""

    gpus: tuple[str, ...]
    ratio: float | None


class Stepped(NamedTuple):
    """What came of one step: where all jobs are, what was done to others, and why the job is where it is."""

    standing: dict[JobId, JobAfter]
    acts: dict[JobId, str]
    reason: str
    flaws: tuple[str, ...] = ()


def otherwise(core: Core, job_id: JobId, forced: Forced, now_s: float, name: Callable[[JobId], str]) -> list[str]:
    """Return by what a plan with that forced differs from the policy's own, in sentences; the core is left as it was.

    Args:
        core: In step with what is known.
        job_id: A job that waits.
        forced: What is to be otherwise.
        now_s: Now.
        name: Of another job, for whoever asks.
    """
    as_is = ask(partial(_step, core, job_id, now_s))
    then = ask(partial(_forced, core, job_id, forced, now_s))
    return list(_told(core.state.jobs[job_id], forced, as_is, then, name))


def _forced(core: Core, job_id: JobId, forced: Forced, now_s: float) -> Stepped:
    job, events = core.state.jobs[job_id], list[Event]()
    spec, other = replace(job.spec, priority=FIRST), core.state.jobs.get(forced.instead or job_id)
    if forced.on:
        spec = replace(spec, nodes=forced.on.partition("/")[0])
    if other is not None and other.placement is not None:
        nodes = other.placement.nodes
        spec = replace(spec, nodes=",".join(nodes))
        of, has = (other.id, other.attempt, "stopped", Exit(0, None)), (other.start_s, now_s, None)
        gone = [Ended(*of, *has, node) for node in nodes if node not in other.run.ended_on]
        events = [CancelRequested(other.id, ""), *gone]
    changed = job.copied()
    changed.spec, changed.effective = spec, under(spec, job.constraints)
    core.state.put_job(changed)
    return _step(core, job_id, now_s, events)


def _step(core: Core, job_id: JobId, now_s: float, events: Sequence[Event] = ()) -> Stepped:
    outcome = core.step([*events, Tick()], now_s)
    standing: dict[JobId, JobAfter] = {}
    for job in core.state.jobs.values():
        if job.placement is not None and not job.is_leaving:
            rate = core.pacing(job.id).rate
            standing[job.id] = JobAfter(tuple(map(str, job.gpus_held)), rate.ratio if is_told(rate) else None)
    acts = {
        one.action.job: ("stop" if isinstance(one.action, Stop) else ACTION_NAMES[type(one.action)])
        for one in outcome.decisions
        if one.action.job != job_id
    }
    reason = core.why(job_id, now_s) if job_id in core.state.jobs else None
    flaws = () if outcome.rejected is None else tuple(map(str, outcome.rejected.flaws))
    return Stepped(standing, acts, "" if reason is None else sentence_of(reason), flaws)


def _told(job: Job, forced: Forced, as_is: Stepped, then: Stepped, name: Callable[[JobId], str]) -> Iterator[str]:
    if job.id in as_is.standing:
        yield f"the policy starts it now: {as_is.reason}"
        return
    if then.flaws:
        yield f"no plan may do that: {'; '.join(then.flaws)}"
        return
    yield f"the policy leaves it waiting: {as_is.reason}"
    place = then.standing.get(job.id)
    makes_way = [one for one, act in then.acts.items() if act in {"stop", "park", "resize"} and one not in as_is.acts]
    if place is None and not makes_way:
        yield f"forced, it would wait all the same: {then.reason}"
        return
    if place is None:
        yield f"forced, it would start once {', '.join(map(name, makes_way[:NAMED_MAX]))} made way"
    else:
        speed = "" if place.ratio is None else f", at {percent(place.ratio)} of its speed alone"
        there = (
            f" (the policy takes these, not {forced.on})" if "/" in forced.on and forced.on not in place.gpus else ""
        )
        yield f"forced, it would start on {', '.join(place.gpus) or 'its node'}{speed}{there}"
    yield from _others(job.id, as_is, then, name)


def _others(own: JobId, as_is: Stepped, then: Stepped, name: Callable[[JobId], str]) -> Iterator[str]:
    every = as_is.standing.keys() | then.standing.keys()
    changed = [one for one in every if one != own and as_is.standing.get(one) != then.standing.get(one)]
    for one in sorted(changed)[:NAMED_MAX]:
        before, after = as_is.standing.get(one), then.standing.get(one)
        if after is None:
            yield f"{name(one)} would leave {'its GPUs' if before is None else ', '.join(before.gpus)}"
        elif before is None:
            yield f"{name(one)} would start on {', '.join(after.gpus)}"
        else:
            yield f"{name(one)}: {_speed(before)} -> {_speed(after)}"
    if len(changed) > NAMED_MAX:
        yield f"and {count(len(changed) - NAMED_MAX, 'other job')} otherwise"
    ratios = [[1.0 if at.ratio is None else at.ratio for at in one.standing.values()] for one in (as_is, then)]
    sums = [sum(one, 0.0) for one in ratios]
    yield f"all that run would go at {sums[1]:.2f} times the speed of one alone, now {sums[0]:.2f}"


def _speed(at: JobAfter) -> str:
    return f"{'speed not known' if at.ratio is None else percent(at.ratio)} on {', '.join(at.gpus)}"
