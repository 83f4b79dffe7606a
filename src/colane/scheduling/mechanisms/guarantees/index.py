"""Jobs of groups with guaranteed GPUs, and those of all others: kept from one plan to the next."""

from __future__ import annotations

from colane.core.cluster.derived import NodesMatterNot
from colane.model.job import Job, JobId
from colane.model.limits import Guarantee


class GroupJobs(NodesMatterNot):
    """Live jobs with GPUs by group; a user of several groups counts for the first by name.

    Args:
        guarantees: Of the groups.
    """

    def __init__(self, guarantees: tuple[Guarantee, ...]) -> None:
        self._of_user: dict[str, str] = {}
        for each in reversed(guarantees):
            self._of_user.update(dict.fromkeys(each.members, each.group))
        self.running: dict[str, dict[JobId, Job]] = {}
        self.waiting: dict[str, dict[JobId, Job]] = {}

    def group_of(self, job: Job) -> str:
        """The group a job counts for; empty where it is of none."""
        return self._of_user.get(job.spec.user, "")

    def moved(self, old: Job | None, new: Job | None) -> None:
        """A job has changed from one value to the other."""
        job = new or old
        if job is None or not job.spec.gpus:
            return
        group = self.group_of(job)
        self.running.setdefault(group, {}).pop(job.id, None)
        self.waiting.setdefault(group, {}).pop(job.id, None)
        if new is not None and new.is_waiting:
            self.waiting[group][new.id] = new
        elif new is not None and new.gpus_held and not new.is_leaving:
            self.running[group][new.id] = new

    def has(self, group: str) -> int:
        """GPUs that jobs of a group have and keep."""
        return sum([job.gpu_count for job in self.running.get(group, {}).values()])

    def within(self, group: str, gpus: int) -> set[JobId]:
        """Those of its running jobs that are within so many GPUs, the oldest first: all others borrow."""
        found, left = set[JobId](), gpus
        for job in sorted(self.running.get(group, {}).values(), key=_id):
            if job.gpu_count <= left:
                found.add(job.id)
                left -= job.gpu_count
        return found


def _id(job: Job) -> JobId:
    return job.id
