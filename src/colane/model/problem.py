"""One thing wrong with a request, as the scheduler says it and a client shows it."""

from __future__ import annotations

from typing import NamedTuple


class Problem(NamedTuple):
    """One thing wrong with a request; `field` is empty where no field is to blame."""

    field: str
    message: str

    def __str__(self) -> str:
        """`field: message`."""
        return f"{self.field}: {self.message}" if self.field else self.message
