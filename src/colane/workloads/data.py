"""The datasets, and a loader that augments each sample by itself in a worker, as training scripts do."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, Sampler

from colane.workloads import cifar10, unpickle

CROP_PADDING = 4
"""Pixels around a 32 x 32 image before it is cropped (He et al. 2015, section 4.2); grows with its side."""

ROTATION_MAX = 0.1
"""Radians."""

SYNTHETIC_SAMPLES = 2048

CIFAR10_MEAN, CIFAR10_STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
"""Per channel, over the 50,000 training images scaled to [0, 1]."""


@dataclass(frozen=True)
class Samples:
    """Images (n, 3, side, side) uint8, labels (n,) int64, and per-channel statistics to normalise by."""

    images: Tensor
    labels: Tensor
    mean: tuple[float, ...]
    std: tuple[float, ...]


def load(name: str, folder: Path, num_class: int, side: int, seed: int = 0) -> Samples:
    """Read a dataset by its catalogue name.

    Args:
        name: one of `catalogue.DATASETS`.
        folder: where CIFAR-10 lies; the others need none.
        num_class: labels lie in [0, num_class).
        side: image side of synthetic data; the others keep their own until they are loaded.
        seed: of synthetic data.

    Raises:
        cifar10.DatasetError: the data is not there or not sound.
    """
    if name == "cifar10":
        samples = load_cifar10(folder)
    elif name == "digits":
        samples = load_digits()
    else:
        samples = make_synthetic(num_class, side, seed)
    if int(samples.labels.min()) < 0 or int(samples.labels.max()) >= num_class:
        raise cifar10.DatasetError(f"{name} has labels outside 0 ... {num_class - 1}")
    return samples


def load_cifar10(folder: Path) -> Samples:
    """Read CIFAR-10's training batches, binary or pickled."""
    files = cifar10.locate(folder)
    read = _binary_batch if files.binary else unpickle.images_and_labels
    try:
        batches = [read(path) for path in files.paths]
    except ValueError as error:
        raise cifar10.DatasetError(str(error)) from error
    images = np.concatenate([images for images, _ in batches]).reshape(-1, 3, cifar10.SIDE, cifar10.SIDE)
    labels = np.concatenate([labels for _, labels in batches])
    return Samples(torch.from_numpy(images), torch.from_numpy(labels), CIFAR10_MEAN, CIFAR10_STD)


def _binary_batch(path: Path) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    records = np.fromfile(path, dtype=np.uint8).reshape(-1, cifar10.RECORD_BYTES)
    return records[:, 1:], records[:, 0].astype(np.int64)


def load_digits() -> Samples:
    """Read the 1,797 handwritten digits that ship with scikit-learn: 8 x 8, 17 grey levels; as 3 channels."""
    found = find_spec("sklearn")
    if found is None or not found.submodule_search_locations:
        raise cifar10.DatasetError("digits need scikit-learn: pip install 'colane[workloads]'")
    # read as it does itself: to import it takes a second or more of a core
    path = Path(found.submodule_search_locations[0], "datasets", "data", "digits.csv.gz")
    try:
        table = np.loadtxt(path, delimiter=",")
    except (OSError, ValueError) as error:
        raise cifar10.DatasetError(f"{path}: {error}") from error
    grey = torch.from_numpy((table[:, :-1].reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8))
    share = grey.double() / 255
    images = grey[:, None].expand(-1, 3, -1, -1).contiguous()
    labels = torch.from_numpy(table[:, -1].astype(np.int64))
    return Samples(images, labels, (float(share.mean()),) * 3, (float(share.std()),) * 3)


def make_synthetic(num_class: int, side: int, seed: int) -> Samples:
    """Make noise with random labels: costs what real data costs, teaches nothing."""
    generator = torch.Generator().manual_seed(seed)
    shape = (SYNTHETIC_SAMPLES, 3, side, side)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    labels = torch.randint(0, num_class, shape[:1], generator=generator)
    return Samples(images, labels, (0.5,) * 3, (0.29,) * 3)


class Draw(NamedTuple):
    """One sample to take, and the seed of all that is random about it."""

    sample: int
    seed: int


class Draws(Sampler[Draw]):  # type: ignore[misc]  # torch is not typed here
    """Which samples a training takes, shuffled anew each time all were seen: by the seed and their number alone.

    So a training that goes on at some number takes what it would have taken, whatever loads them.
    """

    def __init__(self, samples: int, seed: int, first: int, last: int) -> None:
        self._samples, self._seed, self._first, self._last = samples, seed, first, last

    def __len__(self) -> int:
        return self._last - self._first

    def __iter__(self) -> Iterator[Draw]:
        """Yield them in order."""
        number = self._first
        while number < self._last:
            epoch, place = divmod(number, self._samples)
            generator = torch.Generator().manual_seed(mixed(self._seed, epoch))
            for sample in torch.randperm(self._samples, generator=generator)[place:].tolist():
                if number == self._last:
                    return
                yield Draw(sample, mixed(self._seed, epoch, number + 1))
                number += 1


def mixed(*numbers: int) -> int:
    """One seed of several numbers."""
    words = np.random.SeedSequence(numbers).generate_state(2)
    return int(words[0]) << 31 | int(words[1]) >> 1


class Augmented(Dataset[tuple[Tensor, int]]):  # type: ignore[misc]  # torch is not typed here
    """Samples that are scaled to `side`, cropped, rotated and flipped at random and normalised when taken.

    Args:
        samples: What there is.
        side: Of the images that are given, pixels.
        flip: Whether a mirrored image means the same.
        rotations: So many small ones, one after the other: as many make loading cost as much as one likes.
    """

    def __init__(self, samples: Samples, side: int, *, flip: bool, rotations: int = 0) -> None:
        self._samples, self._side, self._flip, self._rotations = samples, side, flip, rotations
        self._padding = max(1, CROP_PADDING * side // cifar10.SIDE)
        self._mean = torch.tensor(samples.mean).view(3, 1, 1)
        self._std = torch.tensor(samples.std).view(3, 1, 1)

    def __len__(self) -> int:
        return len(self._samples.labels)

    def __getitem__(self, draw: Draw) -> tuple[Tensor, int]:
        """Return one augmented image, (3, side, side) float32, and its label."""
        generator = torch.Generator().manual_seed(draw.seed)
        image = self._sized(self._samples.images[draw.sample].float() / 255)
        image = _random_crop(functional.pad(image, (self._padding,) * 4), self._side, generator)
        for _ in range(self._rotations):
            image = _rotated(image, generator)
        if self._flip and bool(torch.rand((), generator=generator) < 0.5):
            image = image.flip(-1)
        return (image - self._mean) / self._std, int(self._samples.labels[draw.sample])

    def _sized(self, image: Tensor) -> Tensor:
        if image.shape[-1] == self._side:
            return image
        size = (self._side, self._side)
        return functional.interpolate(image[None], size=size, mode="bilinear", align_corners=False)[0]


def _random_crop(image: Tensor, side: int, generator: torch.Generator) -> Tensor:
    top, left = torch.randint(0, image.shape[-1] - side + 1, (2,), generator=generator).tolist()
    return image[:, top : top + side, left : left + side]


def _rotated(image: Tensor, generator: torch.Generator) -> Tensor:
    """Turn an image by up to `ROTATION_MAX` to either side; what comes in is black."""
    angle = ROTATION_MAX * (2 * torch.rand((), generator=generator) - 1)
    turn = torch.stack([torch.cos(angle), -torch.sin(angle), torch.sin(angle), torch.cos(angle)]).view(2, 2)
    corners = functional.affine_grid(functional.pad(turn, (0, 1))[None], [1, *image.shape], align_corners=False)
    return functional.grid_sample(image[None], corners, align_corners=False)[0]


def loader(
    dataset: Augmented,
    batch_size: int,
    batches: int,
    workers: int,
    seed: int,
    *,
    done: tuple[int, int] = (0, 0),
    pin_memory: bool = False,
) -> DataLoader[tuple[Tensor, int]]:
    """Return a loader of `batches` full batches, shuffled anew each time all samples were seen.

    Of these so many are `done`, and have taken so many samples: of another size than these, it may be.
    """
    steps, taken = done
    return DataLoader(
        dataset,
        batch_size=batch_size,
        sampler=Draws(len(dataset), seed, taken, taken + max(0, batches - steps) * batch_size),
        num_workers=workers,
        generator=torch.Generator().manual_seed(seed),
        pin_memory=pin_memory,
        worker_init_fn=_leave_ending_to_parent if workers else None,
        # What PyTorch has always done on Linux; a spawned worker would import it all again.
        multiprocessing_context="fork" if workers else None,
    )


def _leave_ending_to_parent(_worker: int) -> None:
    """Let the parent end its workers: were they to die of the same signal first, it would report a crash.

    One that is handing a batch over when its parent ends says nothing of that.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.excepthook = _say_unless_left


def _say_unless_left(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not issubclass(kind, EOFError | ConnectionError):
        sys.__excepthook__(kind, error, trace)


def flips(name: str) -> bool:
    """Say whether a dataset's mirror images mean the same: those of digits do not."""
    return name != "digits"
