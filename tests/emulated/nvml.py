"""NVML over emulated GPUs: its answers are those of the pages that jobs' processes write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.devices.fake_nvml import FakeGpu, FakeNvml
from tests.emulated.job.emulated_cuda.device import Gpu, kinds_of

RESERVED_BYTES = 512 * 1024**2


class EmulatedNvml(FakeNvml):
    """Takes the place of the module `pynvml` where it is called."""

    def __init__(self, home: Path) -> None:
        self.pages = [Gpu(home, kind) for kind in kinds_of(home)]
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

    def nvmlInit(self) -> None:  # noqa: N802
        """There is a driver."""
