"""Imports httpx without its own command line, which brings Rich and Pygments: a third of the start of a command."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Final

COMMAND_LINE: Final = "httpx._main"
"""httpx does without it where it cannot be imported, as when its dependencies are not installed."""


def prepare_httpx() -> None:
    """Import httpx, unless it is imported; afterwards its command line can be imported as ever."""
    if "httpx" in sys.modules:
        return
    sys.modules[COMMAND_LINE] = ModuleType(COMMAND_LINE)  # has no `main`
    try:
        importlib.import_module("httpx")
    finally:
        del sys.modules[COMMAND_LINE]
