"""NVML over emulated GPUs: its answers are those of the pages that jobs' processes write."""

from __future__ import annotations

import math
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.devices.fake_nvml import FakeGpu, FakeNvml
from tests.emulated.job.emulated_cuda.device import Gpu, kinds_of

LAST_BYTES, WORDS = 2**19, 6
"""So much of what a process has written down is read at a look, and words of a line."""
RESERVED_BYTES = 512 * 1024**2


class EmulatedNvml(FakeNvml):
    """Takes the place of the module `pynvml` where it is called."""

    def __init__(self, home: Path) -> None:
        self.pages = [Gpu(home, kind) for kind in kinds_of(home)]
        self._home, self._asked_s = home, dict[str, float]()
        self._looks = [(time.monotonic(), page.busy_s) for page in self.pages]
        super().__init__(
            [
                FakeGpu(
                    page.kind.uuid,
                    name=page.kind.name,
                    total_bytes=page.kind.total_bytes + RESERVED_BYTES,
                    reserved_bytes=RESERVED_BYTES,
                    compute_mode=3 if page.kind.is_exclusive else 0,
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

    def nvmlDeviceGetProcessUtilization(self, gpu: FakeGpu, _seen_us: int) -> list[SimpleNamespace]:  # noqa: N802
        """Since the last question, of each process that ran a kernel: by what these have written down."""
        now_s = time.monotonic()
        since_s = self._asked_s.get(gpu.uuid, now_s - 1.0)
        self._asked_s[gpu.uuid] = now_s
        samples = []
        for path in self._home.glob("kernels.*"):
            busy_s = 0.0
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - LAST_BYTES))
                for line in file.read().splitlines():
                    words = line.split()
                    if len(words) == WORDS and words[:2] == [b"kernel", gpu.uuid.encode()]:
                        busy_s += max(0.0, min(now_s, float(words[4])) - max(since_s, float(words[3])))
            if busy_s:
                percent = min(100, math.ceil(100 * busy_s / (now_s - since_s)))
                pid = int(path.name.rpartition(".")[2])
                samples.append(SimpleNamespace(pid=pid, timeStamp=int(now_s * 1e6), smUtil=percent))
        return samples

    def nvmlInit(self) -> None:  # noqa: N802
        """There is a driver."""

    def nvmlShutdown(self) -> None:  # noqa: N802
        """It stays."""

    def nvmlDeviceGetIndex(self, gpu: FakeGpu) -> int:  # noqa: N802
        """Its place."""
        return self.gpus.index(gpu)

    def nvmlDeviceGetCudaComputeCapability(self, _: FakeGpu) -> tuple[int, int]:  # noqa: N802
        """Hopper's, as `torch_cuda` tells."""
        return 9, 0
