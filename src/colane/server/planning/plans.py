"""A plan: what would become of jobs now, told to one caller, and what change of needs would start them at once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

from colane.api.job_request import JobRequest, in_base_units
from colane.api.jobs import ExpectedObject
from colane.api.plans import (
    DIGEST_CHARACTERS,
    ChangeObject,
    JobPlanObject,
    MakesWayObject,
    PlanAnswer,
    PlannedCoRunnerObject,
    PlannedStartObject,
)
from colane.core.core import Core
from colane.facts.job import expected_of
from colane.model.hardware import Node
from colane.model.job import Job, JobId, JobSpec
from colane.model.words import about, count, percent
from colane.scheduling.foresight import Foresight
from colane.server.board.reads import NotReadError
from colane.server.board.turn import Turn
from colane.server.ground.problems import RefusedError
from colane.server.ground.sight import Sight
from colane.server.planning.copies import ask
from colane.server.planning.outcomes import HELD, STARTS, WAITS, Fate, Fates, Started, fates

# -- Which needs of a job could be smaller, and the values to try.

GB: Final = 10**9
VALUES_MAX: Final = 4096

Value = bool | int | float | str | None


UNASKED: Final[Mapping[str, tuple[Value, str]]] = {
    "gpu_type": (None, "any GPU type (no --gpu-type)"),
    "gpus_per_node": (0, "any GPUs (no --gpus-per-node)"),
    "nodes": ("", "any nodes (no --nodes and --features)"),
    "whole_node": (False, "others on its nodes (no --whole-node)"),
    "share": (True, "others on its GPUs (no --no-share)"),
    "utility_min": (0.0, "any place (no --utility-min)"),
}
"""Needs that are there or not: their value where they are not, and how that is said."""

SPANNING: Final = {True: "several nodes (--multi-node)", False: "one node (no --multi-node)"}


@dataclass(frozen=True, slots=True)
class SmallerNeed:
    """A need that could be smaller."""

    field: str  # of the request
    option: str  # of `colane submit`; of a need that may be left out how that is said
    values: Sequence[Value]  # to try, the least that is asked for first

    def said(self, value: Value) -> str:
        """Return the option with a value, as a user gives it."""
        if not self.option.startswith("--"):
            return self.option
        if self.field.endswith("_bytes") and isinstance(value, int):
            return f"{self.option} {value / GB:g}GB"
        return f"{self.option} {value}"

    def fields(self, value: object) -> dict[str, Any]:
        """Return what is to be otherwise of a request or spec for this need to have a value."""
        return {self.field: value} | ({"anti_collocation": False} if self.field == "gpus_per_node" else {})

    def request(self, request: JobRequest, value: Value) -> JobRequest:
        """Return the request with this need."""
        given = self.fields((value,) if self.field == "gpus" else value)
        if self.field == "nodes":
            given["features"] = None
        if (text := self.field.removesuffix("_bytes")) == self.field:
            return request.model_copy(update=given)
        copied = request.model_copy(update={**given, text: None})
        copied.model_fields_set.discard(text)  # it is given once, in bytes
        return copied


def smaller_needs(request: JobRequest, nodes: Iterable[Node]) -> Iterator[SmallerNeed]:
    """Yield the needs of a request that could be smaller."""
    asked = in_base_units(request)
    yield from smaller_than(asked, min(asked.gpus), nodes, features=asked.features)


def smaller_than(
    asked: JobRequest | JobSpec, gpus: int, nodes: Iterable[Node], *, step: int = 1, features: str | None = None
) -> Iterator[SmallerNeed]:
    """Yield what could be less than is asked for: GPUs come in steps, memory no larger than any node's is tried."""
    every = list(nodes)
    most = {
        "gpu_memory_bytes": max([gpu.memory_bytes for node in every for gpu in node.gpus], default=0) if gpus else 0,
        "host_memory_bytes": max([node.host_memory_bytes for node in every], default=0),
    }
    if gpus > 1:
        yield SmallerNeed("gpus", "--gpus", range(step, min(gpus, VALUES_MAX), step))
    for field, most_bytes in most.items():
        if (held := getattr(asked, field) or 0) > GB and (most_gb := min(held - 1, most_bytes) // GB):
            option = f"--{field.removesuffix('_bytes').replace('_', '-')}"
            yield SmallerNeed(field, option, range(GB, GB * most_gb + 1, GB))
    if asked.cores > 1:
        yield SmallerNeed("cores", "--cores", range(1, min(asked.cores, VALUES_MAX)))
    for field, (value, said) in UNASKED.items():
        if getattr(asked, field) != value or (field == "nodes" and features):
            names_kind = field == "gpus_per_node" and asked.anti_collocation
            yield SmallerNeed(field, said.replace("gpus-per-node", "anti-collocation") if names_kind else said, [value])
    if gpus > 1 and not asked.gpus_per_node:
        yield SmallerNeed("multi_node", SPANNING[not asked.multi_node], [not asked.multi_node])


SOONER_S: Final = 0.1
"""While a plan has taken no longer, it is also looked for needs with which a job would start sooner, not at once."""

SOONER_RATIO: Final = 0.5
ABOUT_RATIO: Final = 1.1  # what counts as much sooner, and as about as soon

Prepare = Callable[[Turn], Any]


@dataclass(frozen=True, slots=True)
class PlanQuestion:
    """What would become of jobs; to be answered in a copy of the process, as what it calls changes the core."""

    core: Core  # the live core, in step with the board that the turn has
    turn: Turn  # with all that the submission adds to it
    requests: Sequence[JobRequest]  # the jobs, of one user each
    sight: Sight  # what the caller is told of
    submit: Callable[[list[JobRequest]], Prepare]  # returns what submits other requests in their place
    foresight: Foresight  # foresees starts and ends
    # the index of an earlier plan: while it holds, nothing more than the outcome is looked for
    expected: str | None = None

    def answer(self) -> PlanAnswer:
        """Return the plan. Raises CopyError: a copy took too long, or met a fault."""
        until_s = monotonic() + SOONER_S
        found = self._fates(self.turn, self.foresight, explains=True)
        index = index_of(self.core.state.version, self.requests, found)
        is_same = self.expected is not None and same_outcome(self.expected, index)
        changes = [] if is_same else list(self._changes(found, until_s))
        jobs = [self._job(fate, changes, found) for fate in found.jobs]
        soonest = [one["expected_start"]["p50_s"] for one in jobs if one["expected_start"] is not None]
        soonest = [] if found.starts else soonest
        return {
            "index": index,
            "state_version": self.core.state.version,
            "now_s": self.turn.now_s,
            "jobs": jobs,
            "starts_in_s": min([one for one in soonest if one is not None], default=found.starts_in_s),
            "makes_way": [self._makes_way(*one) for one in found.changed],
        }

    def _fates(self, turn: Turn, foresight: Foresight | None = None, *, explains: bool = False) -> Fates:
        jobs = list(turn.admitted)
        return ask(lambda: fates(self.core, turn.events, turn.now_s, jobs, foresight, explains=explains))

    def _changes(self, found: Fates, until_s: float) -> Iterator[ChangeObject]:
        """Of a single job that waits for room which no other makes: one need after the other is made smaller."""
        if len(self.requests) != 1 or found.jobs[0].state != WAITS or found.makes_way:
            return
        for smaller in smaller_needs(self.requests[0], [one.node for one in self.turn.read_model.nodes.values()]):
            change = self._smallest(smaller)
            if change is None and monotonic() < until_s:
                change = self._sooner(smaller, found.starts_in_s, until_s)
            if change is not None:
                yield change

    def _smallest(self, smaller: SmallerNeed) -> ChangeObject | None:
        """The largest value with which the job starts at once: where a larger one does, a smaller one is taken to."""
        low, high, best = 0, len(smaller.values) - 1, None
        while low <= high:
            middle = low if best is None else (low + high + 1) // 2
            start = self._start_with(smaller, smaller.values[middle])
            if start is None:
                high = middle - 1
                if best is None:
                    return None
            else:
                best = middle, start
                low = middle + 1
        if best is None:
            return None
        value = smaller.values[best[0]]
        return {
            "option": smaller.said(value), "field": smaller.field, "value": value,
            "starts": self._start(best[1]), "starts_in_s": 0.0,
        }  # fmt: skip

    def _sooner(self, smaller: SmallerNeed, else_s: float | None, until_s: float) -> ChangeObject | None:
        """The largest value with which the job starts about as soon as with the least, where that is much sooner."""
        values, soonest_s = smaller.values, self._starts_in_s(smaller, smaller.values[0])
        if soonest_s is None or (else_s is not None and soonest_s > SOONER_RATIO * else_s):
            return None
        best, low, high = (0, soonest_s), 1, len(values) - 1
        while low <= high and monotonic() < until_s:
            middle = (low + high) // 2
            found_s = self._starts_in_s(smaller, values[middle])
            if found_s is None or found_s > soonest_s * ABOUT_RATIO + 1:
                high = middle - 1
            else:
                best, low = (middle, found_s), middle + 1
        value = values[best[0]]
        return {
            "option": smaller.said(value), "field": smaller.field, "value": value,
            "starts": None, "starts_in_s": best[1],
        }  # fmt: skip

    def _starts_in_s(self, smaller: SmallerNeed, value: Value) -> float | None:
        turn = self._turn_with(smaller, value)
        return None if turn is None else self._fates(turn, self.foresight).starts_in_s

    def _start_with(self, smaller: SmallerNeed, value: Value) -> Started | None:
        turn = self._turn_with(smaller, value)
        found = None if turn is None else self._fates(turn).jobs[0]
        return found.starts[0] if found is not None and found.starts else None

    def _turn_with(self, smaller: SmallerNeed, value: Value) -> Turn | None:
        """The turn of the job with another need; None where it could not be submitted."""
        turn = Turn(self.turn.read_model, self.turn.now_s, self.turn.next_job_id, self.turn.progress)
        turn.next_job_id, turn.reads = min(self.turn.admitted), self.turn.reads
        with suppress(RefusedError, NotReadError):
            self.submit([smaller.request(self.requests[0], value)])(turn)
            return turn
        return None

    # -- in words, for the caller

    def _job(self, fate: Fate, changes: list[ChangeObject], found: Fates) -> JobPlanObject:
        starts = [self._start(one) for one in fate.starts]
        start, end = expected_of(found.shown.get(fate.job), self.turn.now_s)
        start = None if starts else start
        guess = start_text(start, found.starts_in_s if len(self.requests) == 1 else None)
        return {
            "id": fate.job,
            "name": fate.name,
            "state": fate.state,
            "starts": starts,
            "starts_count": fate.starts_count,
            "reason": fate.reason,
            "eligible_s": fate.eligible_s,
            "changes": changes,
            "expected_start": start,
            "expected_end": end,
            "sentence": sentence(fate, starts, changes, guess),
        }

    def _start(self, start: Started) -> PlannedStartObject:
        beside: list[PlannedCoRunnerObject] = []
        for one in start.beside:
            job, user = self._told(one.job)
            now = self._ratio_now(one.job)
            beside.append(
                {"job": job, "user": user, "takes_turns": one.takes_turns, "ratio_now": now, "ratio_then": one.ratio}
            )
        return {**start.place, "index": start.element, "ratio": start.ratio, "speed": start.speed, "beside": beside}

    def _makes_way(self, job_id: JobId, action: str, ratio: float | None) -> MakesWayObject:
        job, user = self._told(job_id)
        now = self._ratio_now(job_id)
        return {"job": job, "user": user, "action": action, "ratio_now": now, "ratio_then": ratio}

    def _told(self, job_id: JobId) -> tuple[int | None, str | None]:
        job = self._live(job_id)
        return (job_id, job.spec.user) if job is not None and self.sight.has(job.spec.user) else (None, None)

    def _live(self, job_id: JobId) -> Job | None:
        return self.core.state.jobs.get(job_id)

    def _ratio_now(self, job_id: JobId) -> float | None:
        job = self._live(job_id)
        return None if job is None or job.placement is None else self.core.pacing(job_id).rate.ratio


def index_of(version: int, requests: Sequence[JobRequest], found: Fates) -> str:
    """Return what names an outcome: the version of the state, and a digest of the jobs and of what becomes of them.

    Neither ids, which another submission moves on, nor speeds, of which more is learnt all the time, are in it.
    """
    asked = [request.model_dump(mode="json", exclude_unset=True, exclude={"env"}) for request in requests]
    jobs = [
        [
            fate.state, fate.holds, fate.starts_count,
            [[one.element, one.place, sorted(beside.job for beside in one.beside)] for one in fate.starts],
        ]
        for fate in found.jobs
    ]  # fmt: skip
    changed = sorted([one.job, one.action] for one in found.changed)
    text = json.dumps([asked, jobs, changed], sort_keys=True)
    return f"{version}-{hashlib.sha256(text.encode()).hexdigest()[:DIGEST_CHARACTERS]}"


def same_outcome(one: str, other: str) -> bool:
    """Whether two indexes name the same jobs and outcome, whatever else has happened between."""
    return one.partition("-")[2] == other.partition("-")[2]


def sentence(fate: Fate, starts: Sequence[PlannedStartObject], changes: Sequence[ChangeObject], guess: str = "") -> str:
    """Return what becomes of a job in a sentence."""
    if fate.state == STARTS and starts[0]["index"] is None:
        return f"would start at once {where(starts[0])}"
    if fate.state == STARTS:
        return f"{count(fate.starts_count, 'element')} would start at once, [{starts[0]['index']}] {where(starts[0])}"
    guess = f"; {guess}" if guess else ""
    if fate.state == HELD:
        return f"would not start yet: {fate.reason['sentence']}{guess}"
    would = f"would wait: {fate.reason['sentence']}{guess}"
    at_once = ", or with ".join(change["option"] for change in changes if not change["starts_in_s"])
    sooner = [f"with {one['option']} in about {about(one['starts_in_s'])}" for one in changes if one["starts_in_s"]]
    return "; ".join([would, *([f"it would start at once with {at_once}"] if at_once else []), *sooner])


def start_text(start: ExpectedObject | None, guess_s: float | None) -> str:
    """Return when a job would start, in words: as foreseen, else as guessed, else that it is not known; or nothing."""
    if start is not None and start["p50_s"] is not None:
        return f"it would start {start['sentence']}"
    if guess_s is not None:
        return f"it would start in about {about(guess_s)}, as far as is known"
    return "" if start is None else f"when it starts is {start['sentence']}"


def where(start: PlannedStartObject) -> str:
    """Return where a job starts and beside which others, in words."""
    place = f"on {', '.join(start['gpus'])}" if start["gpus"] else f"on {', '.join(start['nodes'])}"
    cores = f" with {count(len(start['booked_cores']), 'core')} of its own" if start["booked_cores"] else ""
    beside = [_said(one) for one in start["beside"]]
    speed = f", at {percent(start['ratio'])} of its speed alone ({start['speed']})" if beside else ""
    co_runners = f", beside {', '.join(beside)}" if beside else ""
    return f"{place}{cores}{co_runners}{speed}"


def _said(one: PlannedCoRunnerObject) -> str:
    name = "another user's job" if one["job"] is None else f"job {one['job']}"
    now, then = one["ratio_now"], one["ratio_then"]
    speeds = "" if now is None or then is None else f" ({percent(now)} -> {percent(then)})"
    return f"{name}{speeds}"
