"""Freezes decisions anew: `python -m tests.golden.renew [POLICY...]`, all policies by default."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from . import large
from .frozen import LOGS, every


def renew(policies: Sequence[str]) -> list[str]:
    """Write logs anew; one line for each that changed."""
    said = []
    for one in every():
        if policies and one.policy not in policies:
            continue
        decided = one.decide()
        if not one.path.exists() or one.path.read_text() != decided:
            one.path.parent.mkdir(parents=True, exist_ok=True)
            one.path.write_text(decided)
            said.append(str(one.path.relative_to(LOGS)))
    for policy in large.DECISIONS:
        if policies and policy not in policies:
            continue
        path, first_ones = large.LOGS / f"{policy}.txt", large.hashed(large.decide(policy))
        if not path.exists() or path.read_text() != first_ones:
            path.parent.mkdir(exist_ok=True)
            path.write_text(first_ones)
            said.append(f"large/{policy}.txt")
    return said


if __name__ == "__main__":
    sys.stdout.write("".join(f"renewed {line}\n" for line in renew(sys.argv[1:])))
