"""Devices, as CuPy has them."""

from __future__ import annotations

from types import SimpleNamespace

from emulated_cuda import torch_cuda  # type: ignore[import-not-found]

runtime = SimpleNamespace(getDeviceCount=lambda: len(torch_cuda.of_process().devices))


class Device:
    """A GPU; without a number the current one."""

    def __init__(self, number: int | None = None) -> None:
        self.id = torch_cuda.of_process().here.number if number is None else number

    def synchronize(self) -> None:
        """Wait for all that was launched there."""
        torch_cuda.of_process().device(self.id).synchronize()
