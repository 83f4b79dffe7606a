"""Installed in an environment beside its .pth and .start files: arms the adaptor that the agent brings along.

The code itself comes from the agent (COLANE_ADAPTOR_DIR), so that what is installed never grows old.
"""

from __future__ import annotations

import os
import sys


def arm() -> None:
    """Arm the adaptor in a process of a job; in any other do nothing."""
    place = os.environ.get("COLANE_ADAPTOR_DIR")
    if not place or not os.environ.get("COLANE_STEPS_FILE"):
        return
    sys.path.insert(0, place)
    try:
        from _colane_adaptor.arm import arm as arm_it  # type: ignore[import-not-found]

        arm_it()
    except Exception as error:  # noqa: BLE001  # a job must start whatever is wrong with us
        if os.environ.get("COLANE_DEBUG"):
            sys.stderr.write(f"colane: not armed: {error!r}\n")
    finally:
        sys.path.remove(place)
