"""Indexes that policies derive from the state: made when first asked for, and told what has changed from then on."""

from __future__ import annotations

from typing import Protocol

from colane.model.job import Job


class Derived(Protocol):
    """An index over nodes. It is told order numbers and reads what it needs through the view it is asked with.

    It holds nothing that could not be worked out anew, so a policy with it decides as one without memory would.
    """

    def touched(self, node: int) -> None:
        """What a node is, or carries, has changed, or it is new."""

    def removed(self, node: int) -> None:
        """A node has gone."""


class NodesMatterNot:
    """For indexes over jobs, or over what is believed: nodes change nothing of them."""

    def touched(self, _node: int) -> None:
        """Nothing to do."""

    def removed(self, _node: int) -> None:
        """Nothing to do."""


class DerivedOfJobs(Derived, Protocol):
    """An index over live jobs too: it is told of each new value of one, also of those there are when it is made."""

    def moved(self, old: Job | None, new: Job | None) -> None:
        """A job has changed from one value to the other; None before it came, and once it has ended."""


class DerivedOfCpuJobs(Derived, Protocol):
    """An index over live jobs without GPUs, of which `DerivedOfJobs` are told nothing."""

    def cpu_only_moved(self, old: Job | None, new: Job | None) -> None:
        """The same of those."""
