"""Packages that some tests need, looked for and not imported.

Every process that runs tests reads all of their files: what is imported there costs each of them its seconds, PyTorch
and what builds on it more than all the rest together.
"""

from __future__ import annotations

import importlib.util

import pytest


def needs(package: str, reason: str) -> None:
    """Skip a file of tests, or one that calls this, where a package is not installed."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(reason, allow_module_level=True)
