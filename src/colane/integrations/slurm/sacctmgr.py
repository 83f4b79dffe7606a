"""`sacctmgr`: there are no accounts, so lists of them are empty."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from colane.integrations.slurm.contact import SlurmError

LISTS: Final = frozenset({"show", "list"})


def run(words: Sequence[str], shims: str) -> int:
    """List nothing, which programs take for leave to name any account; return the exit code.

    Raises SlurmError: something is to be changed.
    """
    del shims
    verb = next((word for word in words if not word.startswith("-")), "")
    if verb not in LISTS:
        raise SlurmError(
            f"{verb or 'a command'} is not done here: there are no accounts (--account is a label of the job); what "
            "users may have is set with 'colane server --limits'"
        )
    return 0
