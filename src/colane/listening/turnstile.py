"""Callers that are not known are answered at a pace, so that others get their turn however many of them ask."""

from __future__ import annotations

import asyncio
from typing import Final

from colane.listening.standing import Standing

PACE_PER_S: Final = 100
BURST: Final = 300  # so many are answered at once after a quiet time: a browser takes 30 files for a page
WAIT_MAX_S: Final = 5.0


class Turnstile:
    """Spaces the answers of one process to callers that are not known."""

    def __init__(self) -> None:
        self._free_s = 0.0

    async def wait(self, standing: Standing) -> bool:
        """Wait until a caller's turn has come; whether it is still there."""
        if not standing.is_known:
            now_s = asyncio.get_running_loop().time()
            self._free_s = min(max(self._free_s, now_s - BURST / PACE_PER_S) + 1 / PACE_PER_S, now_s + WAIT_MAX_S)
            if self._free_s > now_s:
                await asyncio.sleep(self._free_s - now_s)
        return not standing.is_gone
