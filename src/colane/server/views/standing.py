"""How a running job stands now: its co-runners, its share, which jobs go before it and why. For `why`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Final

from colane.core.cluster.co_runners import CoRunners
from colane.core.cluster.sized_speeds import SizedSpeed
from colane.core.planners.drain import may_be_stopped
from colane.facts.job import lane_left_s, share_got, stalled
from colane.lanes.turns import SHARED, Contender, precedence
from colane.model.hardware import DISTURBED_RATIO, Drain, Node
from colane.model.job import Job, JobId, JobState
from colane.model.job_spec import JobKind
from colane.model.phases import STEPPING
from colane.model.placement import TurnRule, Turns
from colane.model.progress import Progress
from colane.model.words import count, percent, plural
from colane.perf.composing import SOURCES
from colane.perf.knowledge import Knowledge
from colane.perf.observe import LEFT_MIN, OTHERS_WINDOW_S
from colane.server.ground.sight import Sight
from colane.server.store.store import FINISHED_JOBS, Store

# -- Why nothing is known of a job's speed though jobs of its family have run: they were disturbed, or told no steps.

LOOKED_AT: Final = 50  # so many jobs of the family are looked at, those that ended last
RUNS_MAX: Final = 20  # so many runs tell
Seen = tuple[int, float | None]  # steps of a run, and the part of its devices that others used


def is_untaught(job: Job, beliefs: Knowledge) -> bool:
    """Whether nothing was measured of how fast jobs of a job's family run, and that matters to it, as it may share."""
    is_known = any(profile.step_s is not None for profile in beliefs.of_family(job.effective.family))
    return bool(job.effective.gpus) and job.spec.share and job.spec.kind is JobKind.TRAINING and not is_known


def untaught(store: Store, sight: Sight, job: Job, running: Iterable[Progress]) -> list[str]:
    """Return why runs of a job's family have taught nothing, as far as the caller may see them; nothing of no run.

    Args:
        store: Tells of the runs that have ended.
        sight: What the caller may be told.
        job: The job.
        running: Samples of those of its family that run.

    Raises:
        StoreError: The store cannot be read.
    """
    live: list[Seen] = [(sample.steps, sample.others_ratio) for sample in running if sample.steps]
    if not live and job.state is JobState.RUNNING and job.first_step_s is None:
        live = [(0, None)]  # itself, which is taken to run
    runs = list(islice(chain(live, _ended(store, sight, job.effective.family)), RUNS_MAX))
    if not runs:
        return []
    stepping = [others for steps, others in runs if steps]
    disturbed = [others for others in stepping if others is not None and others >= DISTURBED_RATIO]
    told = f"{count(len(stepping or runs), 'run')} of its family"
    if not stepping:
        lines = "import colane.adaptor as colane; steps = colane.attach(); steps.step() once a step"
        fix = f"three lines change that, if it is yours to change ({lines}): docs/explanation/adaptor.md"
        return [f"nothing is known of its speed, so it shares no GPU: {told} told no steps; {fix}"]
    if not disturbed:
        return []
    some = f", {len(disturbed)} of them" if len(disturbed) < len(stepping) else ", each" if len(stepping) > 1 else ""
    used = percent(sum(disturbed, 0.0) / len(disturbed))
    others = f"by work that is not Colane's, which used {used} of its devices"
    lacking = f"runs there of {OTHERS_WINDOW_S:.0f} s and more teach how it goes in what they leave"
    if job.gpu_count > 1:
        lacking = "beside others jobs of one device alone are learnt"
    elif min(disturbed) > 1 - LEFT_MIN:
        lacking = "they leave too little to learn from"
    return [f"nothing is known of its speed alone: {told}{some} disturbed {others}; {lacking}"]


def _ended(store: Store, sight: Sight, family: str) -> Iterator[Seen]:
    """Yield the runs of a family that ended last."""
    for _, document in store.page_back(FINISHED_JOBS, None, LOOKED_AT, (json.dumps(family),)):
        spec: dict[str, Any] = document["job"].get("spec", {})
        sample = (document.get("finished") or {}).get("progress")
        if spec.get("family") == family and sample and sight.has(str(spec.get("user", ""))):
            yield int(sample.get("steps") or 0), sample.get("others_ratio")


Samples = Mapping[JobId, Progress]

WORDS: Final[Mapping[TurnRule, str]] = {
    TurnRule.FAIR: "turns go to the job that has had least for its weight (fair)",
    TurnRule.RR: "turns go round, one after another (rr)",
    TurnRule.FIFO: "turns go to the job that came first (fifo)",
    TurnRule.SRTF: "turns go to the job with the least time left (srtf)",
    TurnRule.PRIORITY: "turns go to the highest priority (priority)",
}
"""Each rule in words."""


def standing(
    job: Job,
    co_runners: CoRunners | None,
    jobs: Mapping[JobId, Job],
    samples: Samples,
    turns: Turns,
    sees: Callable[[str], bool] = lambda _: True,
) -> list[str]:
    """Return sentences about a job that runs, the most important first; none about one that does not.

    Args:
        job: The job.
        co_runners: How it shares its GPUs, None when it shares none.
        jobs: All live jobs.
        samples: The latest sample of each.
        turns: How the jobs of one lane take turns.
        sees: Jobs of which more than the number is said.
    """
    if job.placement is None or job.state not in STEPPING:
        return []
    sample = samples.get(job.id)
    stalls = stalled(job, sample)
    first = [] if sample is None or not sample.note else [sample.note]
    first += [] if stalls is None else [f"no step for {_span(stalls.no_step_s)} (usually {stalls.step_s:.2g} s)"]
    by_others = _used_by_others(sample)
    if co_runners is None:
        alone = f"{_place(job)}, with no other job on it" if job.placement.slots else f"on {job.placement.node}, no GPU"
        return [*first, alone, *by_others]
    return [*first, *_shared(job, co_runners, jobs, samples, turns, sees), *by_others]


def at_other_sizes(job: Job, speeds: Sequence[SizedSpeed]) -> list[str]:
    """How fast a job that runs would be alone with other numbers of GPUs, where that is known; one sentence at most."""
    if job.placement is None or job.state not in STEPPING:
        return []
    others = [(one, one.speedup) for one in speeds if one.gpus != job.gpu_count and one.speedup is not None]
    if not others:
        return []
    said = ", ".join(f"{speedup:.2f} times as fast with {count(one.gpus, 'GPU')}" for one, speedup in others)
    by = dict.fromkeys(SOURCES[one.source] for one, _ in others)
    return [f"alone it would be {said} ({'; '.join(by)})"]


def deadline_said(job: Job, now_s: float) -> list[str]:
    """How much time a job that has its GPUs has left, and how much of it is to spare; one sentence at most."""
    due_s, promised = job.due_s, job.constraints.promised
    if due_s is None or promised is None or job.placement is None:
        return []
    if now_s > due_s:
        return [f"its deadline was {_span(now_s - due_s)} ago"]
    began_s = job.start_s or now_s
    early_s = promised.start_by_s - began_s
    said = f", {_span(early_s)} to spare" if early_s >= 0 else f", which it may miss: it started {_span(-early_s)} late"
    return [f"it is to end within {_span(due_s - now_s)}{said}"]


def drains_said(job: Job, nodes: Iterable[Node]) -> list[str]:
    """That some of the nodes on which a job runs are drained, and until when it may stay."""
    if job.state not in STEPPING:
        return []
    return [f"{node.name} is drained {drain.because}: {_stay(job, drain)}" for node in nodes for drain in node.drains]


def _stay(job: Job, drain: Drain) -> str:
    """What that means for a job that is still there."""
    goes_on = "it saves its state and goes on elsewhere" if may_be_stopped(job) else "it is left to finish there"
    if drain.deadline_s is None:
        return goes_on
    until = time.strftime("%H:%M:%S", time.localtime(drain.deadline_s))
    anew = "" if may_be_stopped(job) else ", to begin anew elsewhere"
    return f"{goes_on}, and is stopped at {until} if it is still there{anew}"


def _used_by_others(sample: Progress | None) -> list[str]:
    """That work which is not ours slows it, where there is enough of that."""
    ratio = None if sample is None else sample.others_ratio
    if ratio is None or ratio < DISTURBED_RATIO:
        return []
    return [f"work that is not Colane's has used {percent(ratio)} of its devices while it ran, which slows it"]


def _shared(
    job: Job,
    co_runners: CoRunners,
    jobs: Mapping[JobId, Job],
    samples: Samples,
    turns: Turns,
    sees: Callable[[str], bool],
) -> Iterator[str]:
    lane_mates = [jobs[lane_mate] for lane_mate in co_runners.lane_mates if lane_mate in jobs]
    lane = f"takes turns with {_names(co_runners.lane_mates)} in" if lane_mates else "alone in"
    beside = f", beside {_names(co_runners.others)} in other lanes" if co_runners.others else ""
    yield f"{_place(job)}: {lane} {_lanes(job)}{beside}"
    if lane_mates:
        yield from _share(co_runners, samples.get(job.id))
        all_seen = all(sees(other.spec.user) for other in lane_mates)  # priorities and times left are in the order
        yield _order(job, lane_mates, samples, turns.rule) if all_seen else WORDS[turns.rule]
    if co_runners.measured is not None:
        predicted = "" if co_runners.predicted is None else f"; {co_runners.predicted:.2f} was predicted"
        yield f"a step takes {co_runners.measured:.2f} times as long as alone{predicted}"


def _share(co_runners: CoRunners, sample: Progress | None) -> Iterator[str]:
    """What it has had of its lanes' time, against what it may ask for."""
    had = share_got(sample)
    if had is None:
        return
    due = (
        ""
        if co_runners.share_ratio is None
        else f"; its share is {percent(co_runners.share_ratio)} while all want to run"
    )
    yield f"since its co-runners changed it has had the lane for {percent(had)} of the time it wanted it{due}"


def _order(job: Job, lane_mates: Sequence[Job], samples: Samples, rule: TurnRule) -> str:
    """Which jobs go before it and why."""
    if rule in SHARED:
        return f"{WORDS[rule]}: no job goes before it for long"
    mine = _contender(job, samples.get(job.id))
    others = [_contender(lane_mate, samples.get(lane_mate.id)) for lane_mate in lane_mates]
    before = [other for other in others if precedence(rule, other) < precedence(rule, mine)]
    ahead = ", ".join(f"job {each.id}{_because(rule, each)}" for each in before)
    said = f"{ahead} before it{_because(rule, mine)}" if before else f"it goes first{_because(rule, mine)}"
    return f"{WORDS[rule]}: {said}{_unknown(rule, [mine, *others])}"


def _because(rule: TurnRule, member: Contender) -> str:
    if member.serves:
        return " (serves requests)"
    if rule is TurnRule.PRIORITY:
        return f" (priority {member.priority})"
    if rule is TurnRule.SRTF:
        return " (time left unknown)" if member.remaining_s is None else f" (about {_span(member.remaining_s)} left)"
    return ""


def _unknown(rule: TurnRule, members: Sequence[Contender]) -> str:
    """Say what the order would need to know, where it falls back on arrival."""
    missing = tuple(member.id for member in members if rule is TurnRule.SRTF and member.remaining_s is None)
    if not missing:
        return ""
    return (
        f". Nothing says how many steps {_names(missing)} will make (submit --steps-total says it), so "
        f"{'it goes' if len(missing) == 1 else 'they go'} last, in order of arrival"
    )


def _contender(job: Job, sample: Progress | None) -> Contender:
    """The job as the turn rules see it, from what is reported here."""
    return Contender(
        id=job.id,
        arrived=round(1e3 * (job.start_s or 0.0)),
        weight=job.spec.weight,
        priority=job.spec.priority,
        remaining_s=lane_left_s(job, sample),
        serves=job.spec.kind is JobKind.INFERENCE,
    )


def _place(job: Job) -> str:
    gpus = [] if job.placement is None else job.placement.gpus
    return f"on {', '.join(str(gpu) for gpu in gpus)}"


def _lanes(job: Job) -> str:
    found = [] if job.placement is None else sorted({slot.lane for slot in job.placement.slots})
    return f"{plural(len(found), 'lane')} {', '.join(map(str, found))}"


def _names(ids: Sequence[int]) -> str:
    return f"{plural(len(ids), 'job')} {', '.join(map(str, ids))}"


def _span(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
