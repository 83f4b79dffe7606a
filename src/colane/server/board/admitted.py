"""A job as it is taken in: what policies see of it, and what only the agent does."""

from __future__ import annotations

from dataclasses import dataclass

from colane.model.job import JobSpec
from colane.model.job_spec import PromisedGpus
from colane.model.phases import Array, Hold
from colane.server.store.documents import Body


@dataclass(frozen=True, slots=True)
class Admitted:
    """A job that may enter the queue.

    Attributes:
        spec: What policies see.
        launch: Command, working directory, environment: for the store's `launch_specs` and the agent only.
        model_name: Built-in model, None for a command.
        holds: What keeps it from starting yet.
        is_singleton: Earlier jobs of its user and name must have ended.
        array: Its elements, where it is an array.
        elements: Those of them, counted from 0, that wait for something of their own, each with that.
        after: The jobs that the spec's `after` means, by id; empty where it waits for none.
        promised: GPUs by which its deadline is kept; None where it has none.
    """

    spec: JobSpec
    launch: Body
    model_name: str | None
    holds: tuple[Hold, ...] = ()
    is_singleton: bool = False
    array: Array | None = None
    elements: tuple[tuple[int, tuple[Hold, ...]], ...] = ()
    after: str = ""
    promised: PromisedGpus | None = None

    @property
    def ids(self) -> int:
        """How many ids it takes: of an array, one more than it has elements."""
        return 1 if self.array is None else 1 + self.array.size

    @property
    def waiting(self) -> int:
        """How many jobs of it wait, as quotas count them: of an array, its elements."""
        return 1 if self.array is None else self.array.size
