"""Disks that are small enough to be filled."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def disk_of_a_megabyte(place: Path, files: int | None = None) -> Iterator[Path]:
    """Mount one at a place that is not there yet; skips the test where that is not allowed.

    Args:
        place: Where.
        files: How many files it has room for, with its folder; None where it has room for all.
    """
    place.mkdir()
    options = "size=1m" if files is None else f"size=1m,nr_inodes={files}"
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("mounting a small disk needs root")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a megabyte."""
    with disk_of_a_megabyte(tmp_path / "disk") as place:
        yield place


@contextmanager
def disk_with_a_reserve(place: Path) -> Iterator[Path]:
    """Mount one of eight megabytes at a place that is not there yet, half of it root's, where any user may write."""
    image = place.with_name(f"{place.name}.image")
    image.write_bytes(bytes(8 * 2**20))
    place.mkdir()
    make = ["mkfs.ext4", "-q", "-m", "50", str(image)]
    for command in (make, ["mount", "-o", "loop", str(image), str(place)]):
        if shutil.which(command[0]) is None or subprocess.run(command, check=False, capture_output=True).returncode:
            pytest.skip("mounting an image needs root, mkfs.ext4 and a loop device")
    try:
        place.chmod(0o777)
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(path: Path) -> None:
    """Write until there is no room left."""
    try:
        with path.open("wb", buffering=0) as file:
            while file.write(b"x" * 4096):
                pass
    except OSError:
        return
