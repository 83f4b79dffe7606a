"""Attempts that end badly: whose fault that is, and what becomes of the job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from colane.core.eligibility import held_until_resumed, hold_reason
from colane.core.events import Ended
from colane.core.lifecycle import isolated, move
from colane.core.reducers import black_holes, checkpointing, losses
from colane.core.reducers.memory import learn_memory
from colane.core.reducers.step import Step
from colane.model.job import Job, JobId, JobState
from colane.model.phases import COMING_UP, SuspendVia, Suspension
from colane.model.reason import Reason, Why
from colane.model.sentences import sentence_of
from colane.model.words import count

CAUSES: Mapping[str, Why] = {
    "exited": Why.EXIT_CODE,
    "signalled": Why.KILLED_BY_SIGNAL,
    "out-of-memory": Why.OUT_OF_MEMORY,
    "not-started": Why.NOT_STARTED,
    "mps-fault": Why.MPS_FAULT,
    "mps-fault-unknown": Why.MPS_FAULT,
}
"""Outcomes an agent reports and their reasons."""

LEASE_RUN_OUT = "lease-run-out"
"""The agent stopped the job itself, having lost its scheduler: the same as a lost node, and no failure of the job."""

SUPERVISOR_DIED = "supervisor-died"
"""The shim above the process was killed, and with it the process: no failure of the job, counted as a lost node is."""

NODE_FAULT = "node-fault"
"""The node could not start the job, and would start no other: it is queued again, and nothing is counted."""

REFUSED_S = 15.0  # a node that starts no job without GPUs is offered none for so long at first

STOPPED = "stopped"
"""Its agent was told to end with its jobs, or its machine shuts down: no failure of the job, and nothing is counted."""

SENT_BACK = "no-memory"
"""The agent saw that the job does not fit next to what its GPUs carry, and did not start it: nothing is counted."""

SENT_BACK_MAX = 3  # a job that was sent back so often in a row is held: what was booked after each time has not helped

MPS_FAULT = "mps-fault"  # a kernel of it failed all jobs that shared its GPU through MPS: it shares none any more

MPS_FAULT_OF_OTHER = "mps-fault-of-other"
"""It went down with another job, which is known: nothing is counted, but of one that shares no GPU."""

MPS_FAULT_UNKNOWN = "mps-fault-unknown"
"""It went down with others, and may have caused it: nothing is counted, and a GPU to itself shows whose fault it is."""

GIVE_UP_S = 900.0
"""Collectives of a job over several nodes that has stood for longer than they wait are given up within such a time."""

UNKNOWN_END = "unknown"
"""The agent, of another version, says what is not known here: whatever it is, the job has not succeeded."""

NOT_ITS_OWN = frozenset(
    {LEASE_RUN_OUT, SUPERVISOR_DIED, STOPPED, NODE_FAULT, SENT_BACK, MPS_FAULT_OF_OTHER, MPS_FAULT_UNKNOWN, UNKNOWN_END}
)
"""Outcomes that are no failure of the job."""

GPU_REFUSED = "gpu-refused"
"""It got no context of its GPU, or no handle of a library there: beside others that may be for them."""

BESIDE_OTHERS = frozenset({SENT_BACK, "out-of-memory", GPU_REFUSED})  # outcomes in which the co-runners matter

FINAL = frozenset({"not-started", "out-of-memory"})
"""Failures that would come again in the same way, so they are not retried."""


def failed(step: Step, job: Job, event: Ended, end_s: float, co_runners: tuple[JobId, ...]) -> None:
    """An attempt failed next to these jobs: the job ends, or is queued again."""
    if event.outcome in NOT_ITS_OWN:
        _blame_others(step, job, event, end_s, co_runners)
        return
    verdict = losses.judge(step, job)
    if verdict is not None:
        step.finish(job, *verdict, end_s, is_loss=True)
        return
    if problem := black_holes.blame(step, job, event):
        _blame_node(step, job, event, problem, end_s)
        return
    cause = _cause(event)
    if _is_of_cut(step, job):
        lose(step, job, Reason(Why.NOT_GONE_ON, {"cause": sentence_of(cause)}))
        return
    was_asked = event.was_stopped is not False or not step.is_on_one_node(job)
    if job.state is JobState.CHECKPOINTING and was_asked:
        checkpointing.died(step, job, cause)
    elif job.state not in COMING_UP or not checkpointing.launch_failed(step, job, cause, end_s):
        _own_failure(step, job, event, end_s, co_runners)


def _is_of_cut(step: Step, job: Job) -> bool:
    """Whether a job over several nodes went on after a cut and fails before its next step: its parts gave up."""
    went_on_s, progress = job.run.went_on_s, step.state.progress.get(job.id)
    if went_on_s is None or step.is_on_one_node(job) or step.now_s > went_on_s + GIVE_UP_S:
        return False
    return progress is None or progress.last_step_s is None or progress.last_step_s <= went_on_s


def _blame_others(step: Step, job: Job, event: Ended, end_s: float, co_runners: tuple[JobId, ...]) -> None:
    """What its node, its agent or its co-runners are responsible for."""
    if event.outcome == LEASE_RUN_OUT:
        lose(step, job, Reason(Why.NODE_LOST, {"node": event.node}))
    elif event.outcome == SUPERVISOR_DIED:
        lose(step, job, Reason(Why.SUPERVISOR_DIED))
    elif event.outcome == UNKNOWN_END:
        lose(step, job, Reason(Why.END_NOT_KNOWN, {"node": event.node, "detail": event.exit.detail or "nothing"}))
    elif event.outcome == STOPPED:
        reason = Reason(Why.STOPPED_WITH_AGENT, {"node": event.node, "because": event.exit.detail})
        step.finish(job, JobState.QUEUED, reason, end_s)
    elif event.outcome in {MPS_FAULT_OF_OTHER, MPS_FAULT_UNKNOWN}:
        _went_down(step, job, event, end_s)
    elif event.outcome == NODE_FAULT:
        _blame_node(step, job, event, event.exit.detail, end_s)
        _close(step, event, of_gpus=bool(job.spec.gpus))
    else:
        _sent_back(step, job, event, end_s, co_runners)


def _went_down(step: Step, job: Job, event: Ended, end_s: float) -> None:
    """What may have caused it runs alone from now on; one of a set that is measured together cannot, and has failed."""
    facts = {"node": event.node, "detail": event.exit.detail}
    if event.outcome == MPS_FAULT_OF_OTHER and not job.effective.share:
        lose(step, job, Reason(Why.MPS_FAULT_OF_OTHER, facts))
    elif event.outcome == MPS_FAULT_OF_OTHER:
        step.finish(job, JobState.QUEUED, Reason(Why.MPS_FAULT_OF_OTHER, facts), end_s)
    elif job.spec.measurement_group is None and job.effective.share:
        step.finish(isolated(job), JobState.QUEUED, Reason(Why.MPS_FAULT_UNKNOWN, facts), end_s)
    else:
        _own_failure(step, job, event, end_s, ())


def _sent_back(step: Step, job: Job, event: Ended, end_s: float, co_runners: tuple[JobId, ...]) -> None:
    """The ledger was wrong: all that was seen of the others is booked, to the byte, before it may start again."""
    job = job.with_totals(job.totals._replace(sent_back=job.totals.sent_back + 1))
    reason = Reason(Why.SENT_BACK, {"node": event.node, "detail": event.exit.detail}, co_runners)
    for co_runner in co_runners:
        progress = step.state.progress.get(co_runner)
        if progress is None:
            continue
        _, grown = learn_memory(step, step.state.jobs[co_runner], progress, growth_ratio=1.0)
        if grown is not None:
            step.grown.append(grown)
    step.finish(job, JobState.QUEUED, reason, end_s)
    back = step.state.jobs.get(job.id)
    if back is None or back.totals.sent_back < SENT_BACK_MAX:
        return
    by = f"the scheduler, for {event.node} sent it back {count(back.totals.sent_back, 'time')} in a row"
    if back.state is JobState.QUEUED:
        held = held_until_resumed(back, by)
        held = move(held, JobState.QUEUED, step.now_s, hold_reason(held))
    else:  # its parts on other nodes end first
        held = back.with_totals(back.totals)
        held.suspension = Suspension(SuspendVia.LANE, by)
    held.totals = held.totals._replace(sent_back=0)
    step.put(held)


def _blame_node(step: Step, job: Job, event: Ended, problem: str, end_s: float) -> None:
    reason = Reason(Why.NODE_FAULT, {"node": event.node, "detail": problem})
    step.finish(job, JobState.QUEUED, reason, end_s)


def _own_failure(step: Step, job: Job, event: Ended, end_s: float, co_runners: tuple[JobId, ...]) -> None:
    """It counts as the job's own failure, within its retries; out of memory with co-runners gives one try alone."""
    cause, before, failures = _cause(event), job, job.totals.failures + 1
    job = job.with_totals(job.totals._replace(failures=failures))
    if event.outcome == MPS_FAULT:
        job = isolated(job)
    left = job.spec.retries - failures
    is_beside = bool(co_runners) and job.effective.share and job.spec.measurement_group is None
    if is_beside and event.outcome == "out-of-memory":
        step.finish(isolated(before), JobState.QUEUED, Reason(Why.RETRY_ALONE, {}, co_runners), end_s)
    elif is_beside and event.outcome == GPU_REFUSED:
        reason = Reason(Why.REFUSED_BESIDE, {"node": event.node, "detail": event.exit.detail}, co_runners)
        step.finish(isolated(before), JobState.QUEUED, reason, end_s)
    elif event.outcome == "out-of-memory":
        step.finish(job, JobState.OUT_OF_MEMORY, cause, end_s)
    elif event.outcome in FINAL or job.spec.retries == 0:
        step.finish(job, JobState.FAILED, cause, end_s)
    elif left < 0:
        reason = Reason(Why.RETRIES_USED_UP, {"attempt": job.attempt, "cause": sentence_of(cause)})
        step.finish(job, JobState.FAILED, reason, end_s)
    else:
        facts: dict[str, str | int | float] = {"attempt": job.attempt, "cause": sentence_of(cause), "left": left}
        step.finish(job, JobState.QUEUED, Reason(Why.RETRY, facts), end_s)


def _close(step: Step, event: Ended, *, of_gpus: bool) -> None:
    """Offer a node's free GPUs to no job until its agent says that they can be used; one without GPUs, it for a while.

    Each time for twice as long, until a job has run there.
    """
    known = step.state.nodes.get(event.node)
    if known is None:
        return
    busy = {index for index, gpu in known.ids.items() if step.state.gpus[gpu].jobs}
    gpus = tuple([gpu if gpu.index in busy else replace(gpu, healthy=False) for gpu in known.node.gpus])
    step.state.put_node(replace(known.node, gpus=gpus))
    if not of_gpus:
        black_holes.close(step, event.node, event.exit.detail or NODE_FAULT, REFUSED_S)
    step.touch(event.node)


def co_runners(step: Step, job: Job) -> tuple[JobId, ...]:
    """The other jobs on its GPUs."""
    return tuple(sorted({b.job for gpu in job.gpus_held for b in step.state.gpus[gpu].bookings} - {job.id}))


def _cause(event: Ended) -> Reason:
    why = CAUSES.get(event.outcome, Why.EXIT_CODE)
    facts: Mapping[str, str | int | None] = {
        "code": event.exit.code,
        "signal": event.exit.signal,
        "detail": event.exit.detail,
    }
    known: dict[str, str | int | float] = {name: v for name, v in facts.items() if v is not None}
    return Reason(why, known)


def lose(step: Step, job: Job, reason: Reason) -> None:
    """A node of the job is lost; what it still has on others is stopped first."""
    if job.state is JobState.STOPPING and job.ending not in (None, JobState.QUEUED):
        step.finish(job, job.ending or JobState.CANCELLED, reason, step.now_s, is_loss=True)
    elif job.totals.losses >= step.config.node_losses_max:
        step.finish(job, JobState.FAILED, reason, step.now_s, is_loss=True)
    else:
        step.finish(job, JobState.QUEUED, reason, step.now_s, is_loss=True)
