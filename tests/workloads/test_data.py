from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colane.workloads import cifar10, unpickle
from tests.needs import needs

needs("torch", "the built-in trainer needs PyTorch")


RECORDS = 6
IMAGES = np.arange(RECORDS * 3072, dtype=np.uint64).astype(np.uint8).reshape(RECORDS, 3072)
LABELS = [3, 0, 9, 1, 1, 7]


def write_binary(folder: Path) -> None:
    records = np.concatenate([np.array(LABELS, dtype=np.uint8)[:, None], IMAGES], axis=1)
    (folder / "data_batch_1.bin").write_bytes(records[:4].tobytes())
    (folder / "data_batch_2.bin").write_bytes(records[4:].tobytes())


def write_pickled(folder: Path) -> None:
    """As the published files are: Python 2, protocol 2, whose text arrives as bytes."""
    for number, part in ((1, slice(0, 4)), (2, slice(4, None))):
        batch = {b"data": IMAGES[part], b"labels": LABELS[part], b"batch_label": b"training batch"}
        (folder / f"data_batch_{number}").write_bytes(pickle.dumps(batch, protocol=2))


@pytest.mark.parametrize("write", [write_binary, write_pickled])
@pytest.mark.parametrize("inside", cifar10.FOLDERS)
def test_both_versions_of_cifar10_are_read_alike(tmp_path: Path, inside: str, write: Any, data: Any) -> None:
    folder = tmp_path / inside
    folder.mkdir(exist_ok=True)
    write(folder)
    samples = data.load("cifar10", tmp_path, 10, 32)
    assert samples.labels.tolist() == LABELS
    assert np.array_equal(samples.images.numpy().reshape(RECORDS, 3072), IMAGES)


class Harm:
    """Runs a command when it is unpickled, if the reader is careless."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self._path,))


def test_a_pickle_that_would_run_code_is_refused_and_runs_nothing(tmp_path: Path, data: Any) -> None:
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps({"data": Harm(tmp_path / "harm")}))
    with pytest.raises(cifar10.DatasetError, match="refuses to load pathlib"):
        data.load("cifar10", tmp_path, 10, 32)
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize(
    "batch",
    [
        *(b"", b"not a pickle", b"\x80\x02]q\x00.", b"\x80\x02c", b"(dp0\n"),
        pickle.dumps([1, 2]),
        pickle.dumps({"data": IMAGES}),
        pickle.dumps({"data": IMAGES[:, :100], "labels": LABELS}),
        pickle.dumps({"data": IMAGES, "labels": LABELS[:2]}),
        pickle.dumps({"data": IMAGES[:0], "labels": []}),
        pickle.dumps({"data": IMAGES.astype(np.int64), "labels": LABELS}),
        pickle.dumps({"data": IMAGES, "labels": ["cat"] * RECORDS}),
    ],
)
def test_a_damaged_pickle_is_one_clear_error(tmp_path: Path, batch: bytes) -> None:
    path = tmp_path / "data_batch_1"
    path.write_bytes(batch)
    with pytest.raises(ValueError, match="data_batch_1 is no CIFAR-10 batch"):
        unpickle.images_and_labels(path)


def test_labels_outside_the_classes_are_an_error(tmp_path: Path, data: Any) -> None:
    write_binary(tmp_path)
    with pytest.raises(cifar10.DatasetError, match=r"outside 0 \.\.\. 4"):
        data.load("cifar10", tmp_path, 5, 32)


def test_digits_are_the_real_ones(data: Any, torch: Any) -> None:
    datasets = pytest.importorskip("sklearn.datasets", reason="the digits ship with scikit-learn")
    samples = data.load("digits", Path(), 10, 32)
    real = datasets.load_digits()
    assert (samples.images[:, 0].numpy() == (real.images * (255 / 16)).astype("uint8")).all()
    assert (samples.labels.numpy() == real.target).all()
    assert samples.images.shape == (1797, 3, 8, 8)
    assert sorted(set(samples.labels.tolist())) == list(range(10))
    assert torch.equal(samples.images[:, 0], samples.images[:, 2])


def test_synthetic_data_follows_its_seed(data: Any, torch: Any) -> None:
    first, again, other = (data.make_synthetic(5, 16, seed) for seed in (1, 1, 2))
    assert torch.equal(first.images, again.images)
    assert not torch.equal(first.images, other.images)
    assert int(first.labels.max()) == 4


@pytest.mark.parametrize("side", [8, 32, 40])
def test_a_sample_is_augmented_to_the_side_asked_for(side: int, data: Any, torch: Any) -> None:
    torch.manual_seed(0)
    dataset = data.Augmented(data.make_synthetic(3, 32, 0), side, flip=True)
    taken = [dataset[data.Draw(0, seed)][0] for seed in range(8)]
    assert {each.shape for each in taken} == {(3, side, side)}
    assert {each.dtype for each in taken} == {torch.float32}
    assert len({each.numpy().tobytes() for each in taken}) > 1


def test_rotations_change_a_sample_by_its_draw_alone_and_turn_it_little(data: Any, torch: Any) -> None:
    samples = data.make_synthetic(3, 32, 0)
    plain, turned = (data.Augmented(samples, 32, flip=False, rotations=count) for count in (0, 3))
    draw = data.Draw(0, 7)
    assert turned[draw][0].shape == (3, 32, 32)
    assert torch.equal(turned[draw][0], turned[draw][0])
    assert not torch.equal(turned[draw][0], plain[draw][0])
    even = data.Samples(torch.full_like(samples.images, 200), samples.labels, samples.mean, samples.std)
    middle = data.Augmented(even, 32, flip=False, rotations=3)[draw][0][:, 12:20, 12:20]
    assert torch.allclose(middle, middle[:, :1, :1].expand_as(middle), atol=1e-5)


def test_normalised_samples_have_mean_zero_and_deviation_one(data: Any, torch: Any) -> None:
    samples = data.make_synthetic(3, 32, 0)
    dataset = data.Augmented(samples, 32, flip=False)
    inner = torch.stack([dataset[data.Draw(index, index)][0][:, 8:-8, 8:-8] for index in range(64)])
    assert abs(float(inner.mean())) < 0.05
    assert abs(float(inner.std()) - 1) < 0.05


def test_digits_are_not_mirrored(data: Any) -> None:
    assert [data.flips(name) for name in ("cifar10", "digits", "synthetic")] == [True, False, True]


@pytest.mark.parametrize("workers", [0, 2])
def test_the_loader_gives_exactly_the_batches_asked_for(workers: int, data: Any) -> None:
    dataset = data.Augmented(data.make_synthetic(3, 8, 0), 8, flip=True)
    batches = len(dataset) // 512 + 3
    loader = data.loader(dataset, 512, batches, workers, 0)
    assert [len(labels) for _, labels in loader] == [512] * batches
