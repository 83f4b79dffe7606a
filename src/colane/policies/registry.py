"""Policies by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from types import MappingProxyType

from colane.core.policy import Policy
from colane.policies.best_fit import BestFit
from colane.policies.colocate import Colocate
from colane.policies.fifo import Fifo

POLICIES: Mapping[str, Callable[[], Policy]] = MappingProxyType(
    {"fifo": Fifo, "best-fit": BestFit, "colocate": Colocate}
)


class UnknownPolicyError(ValueError):
    """No policy of that name; the near matches are named."""


def create(name: str) -> Policy:
    """A policy by its registered name.

    Raises:
        UnknownPolicyError: There is none.
    """
    make = POLICIES.get(name)
    if make is None:
        near = get_close_matches(name, POLICIES, n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        raise UnknownPolicyError(f"policy: unknown policy {name!r}; {hint}known: {', '.join(sorted(POLICIES))}")
    return make()
