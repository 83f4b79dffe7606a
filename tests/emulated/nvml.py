"""NVML over emulated GPUs: its answers are those of the pages that jobs' processes write."""

from __future__ import annotations

import math
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.devices.fake_nvml import FakeGpu, FakeNvml
from tests.emulated.job.emulated_cuda.device import Gpu, kinds_of

RESERVED_BYTES = 512 * 1024**2


class EmulatedNvml(FakeNvml):
    """Takes the place of the module `pynvml` where it is called."""

    def __init__(self, home: Path) -> None:
        self.pages = [Gpu(home, kind) for kind in kinds_of(home)]
        self._looks = [(time.monotonic(), page.busy_s) for page in self.pages]
        super().__init__(
            [
                FakeGpu(
                    page.kind.uuid,
                    name=page.kind.name,
                    total_bytes=page.kind.total_bytes + RESERVED_BYTES,
                    reserved_bytes=RESERVED_BYTES,
                    bus=f"0000:{number + 1:02x}:00.0",
                )
                for number, page in enumerate(self.pages)
            ]
        )

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvmlDevice"):
            for gpu, page in zip(self.gpus, self.pages, strict=True):
                gpu.lost = page.is_lost
                gpu.processes = {pid: size for pid, size in page.held().items() if size}  # one on the host has none
        return super().__getattribute__(name)

    def nvmlDeviceGetUtilizationRates(self, gpu: FakeGpu) -> SimpleNamespace:  # noqa: N802
        """Since the last question."""
        place = next(place for place, one in enumerate(self.gpus) if one is gpu)
        (before_s, busy_s), now_s = self._looks[place], time.monotonic()
        self._looks[place] = now_s, self.pages[place].busy_s
        ratio = (self._looks[place][1] - busy_s) / max(now_s - before_s, 1e-3)
        gpu.busy_percent = min(100, math.ceil(100 * ratio))
        return super().nvmlDeviceGetUtilizationRates(gpu)

    def nvmlInit(self) -> None:  # noqa: N802
        """There is a driver."""
