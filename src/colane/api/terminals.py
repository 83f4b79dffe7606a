"""What is said at a job's terminal."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field, StringConstraints

from colane.api.wire import WireModel
from colane.model.field_values import EXACT_MAX

TYPED_MAX_BYTES: Final = 4_000
"""Typed in one request: as much as a pipe takes whole."""
BASE_64: Final = r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
WAIT_MAX_S: Final = 10.0
SIDE_MAX: Final = 10_000
"""Rows and columns of a terminal."""


class TerminalBody(WireModel):
    """What is typed, and which output is waited for.

    Attributes:
        typed: Bytes, in base 64.
        rows: Of the window; 0 leaves it as it is.
        columns: Of the window.
        offset: Where the output that is wanted begins, in bytes of all that the attempt has written; less than 0 counts
            from the end, None: none is wanted.
        wait_s: How long output is waited for.
        attempt: Of the job: a terminal of another one is not typed into. None for the latest.
    """

    typed: Annotated[str, StringConstraints(max_length=4 * TYPED_MAX_BYTES // 3, pattern=BASE_64)] = ""
    rows: Annotated[int, Field(ge=0, le=SIDE_MAX)] = 0
    columns: Annotated[int, Field(ge=0, le=SIDE_MAX)] = 0
    offset: Annotated[int, Field(ge=-EXACT_MAX, le=EXACT_MAX)] | None = None
    wait_s: Annotated[float, Field(ge=0, le=WAIT_MAX_S)] = 0.0
    attempt: Annotated[int, Field(ge=1, le=EXACT_MAX)] | None = None
