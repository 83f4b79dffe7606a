"""Packages that some tests need, looked for and not imported.

Every process that runs tests reads all of their files: what is imported there costs each of them its seconds, PyTorch
and what builds on it more than all the rest together.
"""

from __future__ import annotations

import importlib.util
import os

import pytest

two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
"""For tests whose jobs, ranks or devices have a core each."""


def needs(package: str, reason: str) -> None:
    """Skip a file of tests, or one that calls this, where a package is not installed."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(reason, allow_module_level=True)
