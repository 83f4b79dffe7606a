"""How busy a GPU is where GPM is missing (before Hopper): NVML's utilization rates.

They say for which part of the last moments any kernel ran, and for which part memory was read or written; not how many
of the GPU's SMs were in use. So they bound occupancy from above, and a prediction made from them is too careful rather
than too bold. The profile names them.
"""

from __future__ import annotations

import time

from colane.devices.nvml import GpuLostError, Handle, Nvml
from colane.devices.types import Utilization

WINDOW_MIN_S = 0.2  # the driver renews the rates every sixth of a second to every second, by model


class RatesMeter:
    """Use of one GPU now, by everyone on it, taken to hold since the last call."""

    def __init__(self, nvml: Nvml, handle: Handle) -> None:
        self._nvml = nvml
        self._handle = handle
        self._at_s: float | None = None
        self.supported = self._read() is not None

    def sample(self) -> Utilization | None:
        """Give the use since the last call; None at first, too soon after it, or without support."""
        now_s = time.monotonic()
        before_s, self._at_s = self._at_s, now_s
        if before_s is None or not self.supported:
            return None
        if now_s < before_s + WINDOW_MIN_S:
            self._at_s = before_s
            return None
        ratios = self._read()
        return None if ratios is None else Utilization(now_s - before_s, *ratios)

    def _read(self) -> tuple[float, float] | None:
        try:
            rates = self._nvml.call("nvmlDeviceGetUtilizationRates", self._handle)
        except GpuLostError:
            return None
        return None if rates is None else (rates.gpu / 100, rates.memory / 100)
