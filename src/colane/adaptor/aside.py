"""How the adaptor steps aside: a fault of its own is never the script's, and is told only where that is asked for."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # as `typing` has it, which costs milliseconds to import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def debug(message: str) -> None:
    """Say on stderr why nothing is reported, if `COLANE_DEBUG` is set."""
    if os.environ.get("COLANE_DEBUG") and sys.stderr is not None:
        print(f"colane: {message}", file=sys.stderr, flush=True)  # noqa: T201


def replace(owner: Any, name: str, ours: Callable[..., Any]) -> None:
    """Put ours in a function's place, also in the module by whose name it is pickled."""
    own = getattr(owner, name)
    for place in (owner, sys.modules.get(own.__module__)):
        if getattr(place, name, None) is own:
            setattr(place, name, ours)


def safely(call: Callable[..., None], *args: Any) -> None:
    """Call one of ours inside the script's own call, which must go on."""
    try:
        call(*args)
    except Exception as error:  # noqa: BLE001
        debug(f"a step may not be counted: {error!r}")
