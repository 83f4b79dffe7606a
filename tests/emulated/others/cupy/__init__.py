"""As much of CuPy as its users need to launch kernels and wait for them, over emulated GPUs; PyTorch shares them."""

from __future__ import annotations

from emulated_cuda import torch_cuda  # type: ignore[import-not-found]

from . import cuda

__all__ = ["cuda", "spin"]


def spin(kernel_ns: int) -> None:
    """Launch a kernel of so long on the current device's null stream."""
    device = torch_cuda.of_process().device()
    device.launch(device.streams[0], kernel_ns * 1e-9, "cupy")
