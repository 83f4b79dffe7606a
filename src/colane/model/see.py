"""Which jobs users are told of."""

from __future__ import annotations

from enum import StrEnum


class See(StrEnum):
    """Which jobs users are told of; operators are told of all."""

    ALL = "all"
    OWN = "own"
