"""What a verb says when it cannot do what it was asked."""

from __future__ import annotations


class SlurmError(Exception):
    """One line that names the word, where it stands, and the fix."""
