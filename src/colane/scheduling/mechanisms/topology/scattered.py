"""Jobs that run over several nodes and can be stopped, by pool; kept from one plan to the next."""

from __future__ import annotations

from colane.model.job import Job, JobState
from colane.scheduling.engine.kinds import JobsOfKind


class ScatteredJobs(JobsOfKind):
    """See the module. Those of which no two ranks may share a node are left out."""

    def belongs(self, job: Job) -> bool:
        """See `JobsOfKind`."""
        spec, placement = job.effective, job.placement
        if not spec.multi_node or spec.anti_collocation or not spec.preemptible or job.state is not JobState.RUNNING:
            return False
        return placement is not None and not job.home and not job.parked and len(placement.nodes) > 1
