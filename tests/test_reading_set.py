"""What must be read to understand a decision of a policy: it may become less, and not more unnoticed."""

from __future__ import annotations

import pytest
from benchmarks.reading_set import reading_set, size

BOUNDS = {"fifo": (39, 9_130), "srtf": (50, 12_270), "pack": (54, 12_991), "colane": (75, 18_408)}
"""Files and lines: what is reached, and 3 % more lines. A policy that needs more says in its commit for what."""


@pytest.mark.parametrize("policy", BOUNDS)
def test_no_more_must_be_read_than_was_reached(policy: str) -> None:
    files, lines = size(reading_set(policy))
    files_max, lines_max = BOUNDS[policy]
    assert files <= files_max, f"{policy} needs {files} files; python benchmarks/reading_set.py {policy}"
    assert lines <= lines_max, f"{policy} needs {lines} lines; python benchmarks/reading_set.py {policy}"
