"""A job as it is taken in: what policies see of it, and what only the agent does."""

from __future__ import annotations

from dataclasses import dataclass

from colane.model.job import JobSpec
from colane.model.job_spec import PromisedGpus
from colane.model.phases import Array, Hold
from colane.server.store.documents import Body


@dataclass(frozen=True, slots=True)
class Admitted:
    """A job that may enter the queue."""

    spec: JobSpec  # what policies see
    launch: Body  # command, working directory, environment: for the store's `launch_specs` and the agent only
    model_name: str | None  # built-in model, None for a command
    holds: tuple[Hold, ...] = ()  # what keeps it from starting yet
    is_singleton: bool = False  # earlier jobs of its user and name must have ended
    array: Array | None = None  # its elements, where it is an array
    # those of them, counted from 0, that wait for something of their own, each with that
    elements: tuple[tuple[int, tuple[Hold, ...]], ...] = ()
    after: str = ""  # the jobs that the spec's `after` means, by id; empty where it waits for none
    promised: PromisedGpus | None = None  # GPUs by which its deadline is kept; None where it has none

    @property
    def ids(self) -> int:
        """How many ids it takes: of an array, one more than it has elements."""
        return 1 if self.array is None else 1 + self.array.size

    @property
    def waiting(self) -> int:
        """How many jobs of it wait, as quotas count them: of an array, its elements."""
        return 1 if self.array is None else self.array.size
