"""Reads CIFAR-10's pickled batches without trusting them: a pickle may otherwise run any code."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from colane.workloads.cifar10 import RECORD_BYTES

PIXELS = RECORD_BYTES - 1

ALLOWED = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("_codecs", "encode"),
}
"""What a pickled array of numbers needs, by the names old and new NumPy write; nothing else is looked up."""


class ArraysOnly(pickle.Unpickler):
    """An unpickler that builds plain values and arrays, and refuses everything else."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401  # the base class's own signature
        """Resolve an allowed name. Raises pickle.UnpicklingError: the name is not allowed."""
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"refuses to load {module}.{name}")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


def load(path: Path) -> dict[str, Any]:
    """Read one pickled batch; keys are text whichever Python wrote them.

    Raises:
        ValueError: the file is no pickle of a dictionary of plain values and arrays.
    """
    try:
        batch = ArraysOnly(io.BytesIO(path.read_bytes()), encoding="bytes").load()
        return {_text(key): value for key, value in batch.items()}
    except (
        *(pickle.UnpicklingError, EOFError, AttributeError, ImportError, IndexError, KeyError),
        *(MemoryError, TypeError, ValueError, OverflowError),
    ) as error:
        raise ValueError(f"{path} is no CIFAR-10 batch: {error}") from error


def _text(key: object) -> str:
    return key.decode("ascii") if isinstance(key, bytes) else str(key)


def images_and_labels(path: Path) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return a batch's images, (n, 3072) uint8, and labels, (n,) int64.

    Raises:
        ValueError: see `load`; or the arrays are missing or of another shape.
    """
    batch = load(path)
    images, labels = batch.get("data"), batch.get("labels")
    if not isinstance(images, np.ndarray) or not isinstance(labels, list):
        raise ValueError(  # noqa: TRY004  # it is the file that is wrong
            f"{path} is no CIFAR-10 batch: data or labels are missing"
        )
    numbers = bool(labels) and all(type(each) is int for each in labels)
    if not numbers or images.dtype != np.uint8 or images.shape != (len(labels), PIXELS):
        raise ValueError(f"{path} is no CIFAR-10 batch: its arrays have another shape")
    return images, np.asarray(labels, dtype=np.int64)
