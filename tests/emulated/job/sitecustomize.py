"""Puts emulated GPUs under the PyTorch of a job, on whose PYTHONPATH this directory is."""

import os

if os.environ.get("EMULATED_CUDA"):
    import emulated_cuda  # type: ignore[import-not-found]

    emulated_cuda.install()
