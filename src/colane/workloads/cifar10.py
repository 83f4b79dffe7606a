"""Where CIFAR-10's published training files lie, and whether they look whole. Needs no framework.

Source: A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009. The binary version is
records of one label byte and 3 x 32 x 32 pixel bytes; the python version is pickles of the same arrays.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

SIDE = 32
CLASSES = 10
RECORD_BYTES = 1 + 3 * SIDE * SIDE

BINARY = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
PICKLED = tuple(f"data_batch_{number}" for number in range(1, 6))
FOLDERS = (".", "cifar-10-batches-bin", "cifar-10-batches-py")
ARCHIVES = ("cifar-10-binary.tar.gz", "cifar-10-python.tar.gz")


class DatasetError(Exception):
    """The dataset cannot be used; the text says why and what to do."""


@dataclass(frozen=True)
class Files:
    """The training batches found: all binary, or all pickled."""

    paths: tuple[Path, ...]
    binary: bool


def locate(folder: Path) -> Files:
    """Find the training batches in `folder` or in the folder the published archive unpacks to.

    Raises:
        DatasetError: there are none, or a binary batch is cut short.
    """
    if not folder.is_dir():
        node = os.environ.get("COLANE_NODE")
        raise DatasetError(f"{folder} is not a directory{f' on {node}' if node else ''}")
    for names, binary in ((BINARY, True), (PICKLED, False)):
        for inside in FOLDERS:
            paths = tuple(path for name in names if (path := folder / inside / name).is_file())
            if paths:
                return _whole(Files(paths, binary))
    raise DatasetError(f"{folder} holds no CIFAR-10: {_advice(folder)}")


def _advice(folder: Path) -> str:
    for archive in ARCHIVES:
        if (folder / archive).is_file():
            return f"unpack it first (tar -xzf {folder / archive} -C {folder})"
    return "expected data_batch_1.bin (binary version) or data_batch_1 (python version)"


def _whole(files: Files) -> Files:
    for path in files.paths:
        size = path.stat().st_size
        if size == 0 or (files.binary and size % RECORD_BYTES):
            raise DatasetError(f"{path} is cut short: {size} bytes is no multiple of {RECORD_BYTES}")
    return files
