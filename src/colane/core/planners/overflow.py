"""Jobs that turn out to need more memory than they were booked with: the ledger follows, and so must the GPU.

Safety factors are there to be eaten by growth, so a GPU is relieved only when what its jobs were *seen* to need, lane
by lane, is more than there is. Then the cheapest that frees enough is done with the youngest that does not fit: it goes
to a lane in which it takes turns with others, so that peaks of memory do not all come at once; where that is not
enough, it is stopped and queued again, and starts where there is room for what is known of it now. Waiting for a job
to run out of memory could cost an older job its work instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from colane.core.cluster.draft import Draft
from colane.core.cluster.load import GpuLoad
from colane.core.cluster.seen import seen_layout
from colane.core.cluster.state import ClusterState
from colane.core.cluster.view import ClusterView
from colane.lanes.assign import squeeze
from colane.model.job import Job, JobId, JobKind, JobState
from colane.model.phases import STEPPING
from colane.model.plan import Plan
from colane.model.profile import ProfileKey
from colane.model.reason import Reason, Why


class Relief:
    """Notices which kinds of jobs were seen to need more, and relieves the GPUs that cannot hold them any more."""

    name = "relief"

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._grown: list[ProfileKey] = []

    @property
    def is_due(self) -> bool:
        """Whether any kind has grown."""
        return bool(self._grown)

    def notice(self, grown: list[ProfileKey]) -> None:
        """These kinds of jobs were seen to need more."""
        self._grown = grown

    def plan(self, view: ClusterView) -> Plan:
        """Let jobs take turns, or stop them, where a GPU cannot hold all that it carries."""
        draft, state = Draft(view), self._state
        for gpu in dict.fromkeys(gpu for key in self._grown for gpu in sorted(state.keys_in_use.get(key, ()))):
            load = state.gpus[gpu]
            if len(load.bookings) > 1 and all(booking.measurement_group is None for booking in load.bookings):
                self._relieve(draft, load)
        return draft.plan()

    def _relieve(self, draft: Draft, load: GpuLoad) -> None:
        layout = seen_layout(self._state, load)
        moves, gone = squeeze(layout, partial(may_take_turns, draft.view))
        need_bytes, have_bytes = layout.needed_bytes, load.capacity_bytes
        facts: dict[str, str | int | float] = {"gpu": str(load.id), "need_bytes": need_bytes, "have_bytes": have_bytes}
        for job_id, lane in moves:
            now = draft.load(load.id)
            lane_mates = tuple(b.job for b in now.bookings if b.lane == lane)
            reason = Reason(Why.CHANGED_LANE, {**facts, "lane": lane}, lane_mates)
            draft.move(draft.view.job(JobId(job_id)), [now], reason, [lane])
        for job_id in gone:
            rest = tuple(sorted(one.job for one in layout.members if one.job != job_id))
            # not asked to save: the GPU has no room for all of them until one is gone
            draft.stop(draft.view.job(JobId(job_id)), Reason(Why.OUTGROWN, facts, rest), save=False)


def may_take_turns(view: ClusterView, job_id: int, lane_mates: Sequence[int]) -> bool:
    """Whether a job may come to a lane while it runs: all there reach step boundaries, and no server's answers wait."""
    if view.job(JobId(job_id)).state not in STEPPING:
        return False
    return all(_reaches_boundaries(view, view.job(JobId(each))) for each in (job_id, *lane_mates))


def _reaches_boundaries(view: ClusterView, job: Job) -> bool:
    progress = view.progress(job.id)
    steps = progress is not None and progress.steps > 0 and job.state in {*STEPPING, JobState.PAUSED}
    return steps and job.gpu_count == 1 and job.spec.kind is JobKind.TRAINING
