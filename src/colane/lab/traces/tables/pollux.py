"""Pollux's measurements of six applications on T4s in servers of four (Qiao et al., OSDI 2021; Apache-2.0).

A folder for each application. `placements.csv`: time of a step and the part of it that is synchronising, by how many
GPUs lie on each node and by batch per GPU. `scalability.csv`: the same on more nodes. `validation-B.csv`: iterations
after each epoch with a total batch of B; the last epoch that all of an application's curves have is the end of a job.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf
from pathlib import Path
from typing import NamedTuple

from colane.lab.traces import cells
from colane.lab.traces.sheet import read_sheet
from colane.settings.input_file import InputFileError, read_text

PLACEMENTS, SCALABILITY = "placements.csv", "scalability.csv"


class EpochNoise(NamedTuple):
    """An epoch of a training."""

    iterations: int  # steps made up to its end
    noise_scale: float  # of the gradient in it, in samples; infinite where no gradient was left


class GpuSpread(NamedTuple):
    """So many GPUs on so many nodes."""

    nodes: int
    gpus: int


class StepTime(NamedTuple):
    """Of one step, seconds; `sync_s` is the part in which gradients are exchanged."""

    batch: float
    step_s: float
    sync_s: float


Curve = tuple[StepTime, ...]  # by batch per GPU, ascending


@dataclass(frozen=True, slots=True)
class Application:
    """One application."""

    placements: Mapping[tuple[int, ...], Curve]  # step times by GPUs on each node, ascending
    shapes: Mapping[GpuSpread, Curve]  # the same by shape, of whatever placement
    iterations: Mapping[int, int]  # until the end of training, by total batch
    # epoch by epoch, by total batch, as many epochs of each; nothing where the files do not tell it
    noise: Mapping[int, tuple[EpochNoise, ...]]

    def step_s(self, placement: Sequence[int], batch_total: int) -> float:
        """Time of a step; what exceeds the largest batch a GPU was measured with is gathered in several passes."""
        curve = self._curve(placement)
        local = batch_total / sum(placement)
        passes = max(1, ceil(local / curve[-1].batch - 1e-8))
        found = at_batch(curve, local / passes)
        return found.step_s + (passes - 1) * (found.step_s - found.sync_s)

    def steps(self, batch_total: int) -> int:
        """Iterations of a whole training, on a line between the batches that were measured, else as the nearest."""
        batches = sorted(self.iterations)
        below = max((batch for batch in batches if batch <= batch_total), default=batches[0])
        above = min((batch for batch in batches if batch >= batch_total), default=batches[-1])
        part = (batch_total - below) / (above - below) if above > below else 0.0
        return round(self.iterations[below] + part * (self.iterations[above] - self.iterations[below]))

    def _curve(self, placement: Sequence[int]) -> Curve:
        """As measured in this placement, else in one of its shape, else in the nearest shape."""
        found = self.placements.get(tuple(sorted(placement)))
        if found is not None:
            return found
        asked = GpuSpread(len(placement), sum(placement))
        return self.shapes[min(self.shapes, key=lambda shape: _apart(shape, asked))]


def _apart(shape: GpuSpread, asked: GpuSpread) -> tuple[bool, int, int]:
    """Whether one is on one node and the other is not, then by GPUs, then by nodes."""
    return (shape.nodes == 1) != (asked.nodes == 1), abs(shape.gpus - asked.gpus), abs(shape.nodes - asked.nodes)


def at_batch(curve: Curve, batch: float) -> StepTime:
    """On a line between measured batches per GPU; below the least as with the least."""
    below = max((point for point in curve if point.batch <= batch), default=curve[0])
    above = min((point for point in curve if point.batch >= batch), default=curve[-1])
    part = (batch - below.batch) / (above.batch - below.batch) if above.batch > below.batch else 0.0
    line = (b + part * (a - b) for b, a in zip(below, above, strict=True))
    return StepTime(*line)


@dataclass(frozen=True, slots=True)
class PolluxTable:
    """Applications by name."""

    applications: Mapping[str, Application]


def is_there(folder: Path) -> bool:
    """Whether this folder holds applications."""
    return any(folder.glob(f"*/{PLACEMENTS}"))


def read(folder: Path) -> PolluxTable:
    """Read all applications of a folder. Raises InputFileError: a missing file or column, or a bad cell."""
    found = sorted(folder.glob(f"*/{PLACEMENTS}"))
    return PolluxTable({path.parent.name: _application(path.parent) for path in found})


def _application(folder: Path) -> Application:
    placements = _placements(folder / PLACEMENTS)
    shapes: dict[GpuSpread, list[StepTime]] = {}
    for placement, curve in placements.items():
        shapes.setdefault(GpuSpread(len(placement), sum(placement)), []).extend(curve)
    if (folder / SCALABILITY).exists():
        for shape, point in _scalability(folder / SCALABILITY):
            shapes.setdefault(shape, []).append(point)
    return Application(
        placements, {shape: _mean(points) for shape, points in shapes.items()}, _iterations(folder), _noise(folder)
    )


def _placements(path: Path) -> dict[tuple[int, ...], Curve]:
    sheet = read_sheet(path, read_text(path))
    places, points = sheet.column("placement", _digits), _points(path)
    found: dict[tuple[int, ...], list[StepTime]] = {}
    for place, point in zip(places, points, strict=True):
        found.setdefault(place, []).append(point)
    return {place: _mean(curve) for place, curve in found.items()}


def _scalability(path: Path) -> Iterator[tuple[GpuSpread, StepTime]]:
    sheet = read_sheet(path, read_text(path))
    nodes, gpus = sheet.column("num_nodes", cells.at_least_one), sheet.column("num_replicas", cells.at_least_one)
    return zip(map(GpuSpread, nodes, gpus), _points(path), strict=True)


def _points(path: Path) -> list[StepTime]:
    sheet = read_sheet(path, read_text(path))
    batches, steps_s = sheet.column("local_bsz", cells.at_least_one), sheet.column("step_time", _some_s)
    return [StepTime(*point) for point in zip(batches, steps_s, sheet.column("sync_time", cells.seconds), strict=True)]


def _some_s(text: str) -> float:
    found = cells.seconds(text)
    if found == 0:
        raise ValueError("must be more than 0")
    return found


def _digits(text: str) -> tuple[int, ...]:
    """GPUs on each node: `112` is 1, 1 and 2."""
    if not text.isdecimal() or "0" in text:
        raise ValueError(f"expected GPUs of each node as digits, such as 112, got {text!r}")
    return tuple(sorted(map(int, text)))


def _mean(points: Sequence[StepTime]) -> Curve:
    """One point for each batch."""
    by_batch: dict[float, list[StepTime]] = {}
    for point in points:
        by_batch.setdefault(point.batch, []).append(point)
    means = (tuple(sum(column) / len(found) for column in zip(*found, strict=True)) for found in by_batch.values())
    return tuple(sorted(StepTime(*mean) for mean in means))


def _iterations(folder: Path) -> dict[int, int]:
    curves: dict[int, list[int]] = {}
    for path in sorted(folder.glob("validation-*.csv")):
        batch = path.stem.rpartition("-")[2]
        if not batch.isdecimal():
            raise InputFileError(path, "expected the total batch in its name, as in validation-128.csv")
        curves[int(batch)] = read_sheet(path, read_text(path)).column("iteration", cells.at_least_one)
        if not curves[int(batch)]:
            raise InputFileError(path, "has no epoch")
    if not curves:
        raise InputFileError(folder, "has no validation-*.csv: they say how long a job is")
    epochs = min(map(len, curves.values()))
    return {batch: curve[epochs - 1] for batch, curve in curves.items()}


def _noise(folder: Path) -> dict[int, tuple[EpochNoise, ...]]:
    """By total batch; norm and variance of the gradient are those of the least batch, as Pollux has them."""
    paths = {int(path.stem.rpartition("-")[2]): path for path in folder.glob("validation-*.csv")}
    found = {batch: _epochs(path, min(paths)) for batch, path in sorted(paths.items())}
    count = min(map(len, found.values()))
    return {batch: epochs[:count] for batch, epochs in found.items()} if count else {}


def _epochs(path: Path, least_batch: int) -> tuple[EpochNoise, ...]:
    sheet = read_sheet(path, read_text(path))
    iterations = sheet.column("iteration", cells.at_least_one)
    squares = sheet.column_or("grad_sqr", cells.optional(cells.seconds), None)
    variances = sheet.column_or("grad_var", cells.optional(cells.seconds), None)
    epochs = [
        EpochNoise(many, least_batch * variance / square if square else inf)
        for many, square, variance in zip(iterations, squares, variances, strict=True)
        if square is not None and variance is not None
    ]
    return tuple(epochs) if len(epochs) == len(iterations) else ()
