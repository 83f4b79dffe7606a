"""GPUs that are guaranteed to groups."""

from __future__ import annotations

from typing import NamedTuple


class Guarantee(NamedTuple):
    """GPUs that a group gets before any other that has more than its own.

    Attributes:
        group: Its name.
        gpus: So many, of all pools together.
        members: Users of whose jobs they are.
    """

    group: str
    gpus: int
    members: frozenset[str]
