"""What looks at the samples of live jobs as they come, next to the policy: the search for cores, the eliminator."""

from __future__ import annotations

from collections.abc import Iterable

from colane.core.cluster.state import ClusterState
from colane.core.events import Ended, Event, Progressed
from colane.model.job import Job, JobId
from colane.model.progress import Progress


class SampleWatch:
    """Hands events on to its subclasses.

    Args:
        state: The cluster's state.
        is_on: Whether it looks at anything at all.
    """

    def __init__(self, state: ClusterState, *, is_on: bool) -> None:
        self._state = state
        self.is_on = is_on

    def notice(self, events: Iterable[Event]) -> None:
        """Look at what was seen in this step."""
        if not self.is_on:
            return
        for event in events:
            if isinstance(event, Ended):
                self._forget(event.job)
            elif isinstance(event, Progressed):
                job = self._state.jobs.get(event.job)
                if job is not None and job.attempt == event.attempt:
                    self._sampled(job, event.progress)
            else:
                self._noticed(event)

    def _forget(self, job: JobId) -> None:
        """It has ended."""

    def _sampled(self, job: Job, progress: Progress) -> None:
        """A sample of the present attempt of a live job."""

    def _noticed(self, event: Event) -> None:
        """Anything else."""
