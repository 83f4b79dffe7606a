"""`sshare`: there are no accounts, so there are no shares in them."""

from __future__ import annotations

from collections.abc import Sequence


def run(words: Sequence[str], shims: str) -> int:
    """List nothing; return the exit code."""
    del words, shims
    return 0
