"""How many random examples a law is tried on, and whether they are the same every time.

`COLANE_FUZZ=5` draws new examples, five times as many; without it they are always the same. `COLANE_QUICK=1` takes a
fifth of them, for a look between two changes; `scripts/test` does so in the gate, and over source that has changed and
whose laws are tried as compiled, too: what that decides is compared with its source by `tests/golden` and
`tests/compiled`.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

FUZZ = int(os.environ.get("COLANE_FUZZ", "0"))
IS_COMPILED = "COLANE_COMPILED" in os.environ
IS_QUICK = os.environ.get("COLANE_QUICK", "0") != "0"
QUICK_PART = 5
EXAMPLES_UNLESS_SAID = 100


def examples(count: int) -> settings:
    """Settings of a law that is tried on so many examples.

    How long one takes to be drawn or tried on a busy machine proves nothing, and is not judged.
    """
    some = max(2, count // QUICK_PART) if IS_QUICK else count
    return settings(
        max_examples=some * max(1, FUZZ),
        derandomize=not FUZZ,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        print_blob=bool(FUZZ),
    )
