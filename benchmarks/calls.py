"""Counting what is done, where a time would say more of the machine than of the code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, ParamSpec

P = ParamSpec("P")


def calls_of(action: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> int:
    """How many functions one call of this calls, those of C included; of compiled code only what it calls outside."""
    count = 0

    def look(_frame: FrameType, event: str, _argument: Any) -> None:  # noqa: ANN401 - as `sys.setprofile` says
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(look)
    try:
        action(*args, **kwargs)
    finally:
        sys.setprofile(None)
    return count
