from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colane.workloads import catalogue, cifar10

PAPER = {
    "model_name": "vgg11",
    "batch_size": 128,
    "lr": 0.01,
    "dataset": "digits",
    "optim": "sgd",
    "iters": 100,
    "dataset_path": "./data",
    "workers": 2,
    "weight_decay": 1e-4,
    "momentum": 0.1,
    "num_class": 10,
}


def fields(found: list[tuple[str, str]]) -> list[str]:
    return [field for field, _ in found]


def test_the_fields_are_exactly_the_papers() -> None:
    assert set(catalogue.FIELDS) == set(PAPER)


def test_the_papers_object_is_accepted_and_becomes_its_command() -> None:
    assert catalogue.problems(PAPER) == []
    assert catalogue.command(PAPER) == [
        *("-m", "colane.workloads", "--model-name", "vgg11", "--batch-size", "128", "--lr", "0.01"),
        *("--dataset", "digits", "--optim", "sgd", "--iters", "100", "--dataset-path", "./data"),
        *("--workers", "2", "--weight-decay", "0.0001", "--momentum", "0.1", "--num-class", "10"),
    ]


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        *(("VGG-19", "vgg19"), ("vgg_11", "vgg11"), ("ResNet-18", "resnet18"), ("resnet 50", "resnet50")),
        *(("se-resnet-18", "se_resnet18"), ("SEResNet18", "se_resnet18"), ("se_resnet18", "se_resnet18")),
    ],
)
def test_common_spellings_are_understood(spelling: str, name: str) -> None:
    assert catalogue.complete({"model_name": spelling, "dataset": "Digits"})["model_name"] == name


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("model_name", "vgg91", "did you mean vgg11 or vgg19"),
        ("model_name", "transformer", "known: resnet18"),
        ("model_name", 7, "must be a name"),
        ("model_name", None, "is missing"),
        ("batch_size", -4, "must be at least 1, got -4"),
        ("batch_size", 0, "must be at least 1"),
        ("batch_size", 1.5, "whole number"),
        ("batch_size", True, "whole number"),
        ("batch_size", "64", "whole number"),
        ("batch_size", 2**40, "must be at most"),
        ("iters", 0, "must be at least 1"),
        ("lr", 0, "must be more than 0"),
        ("lr", float("nan"), "finite"),
        ("lr", "fast", "finite"),
        ("weight_decay", -1e-4, "must be at least 0"),
        ("momentum", 1.0, "must be less than 1"),
        ("workers", -1, "must be at least 0"),
        ("dataset", "cifar100", "did you mean cifar10"),
        ("optim", "lion", "known: adam, adamw, rmsprop, sgd"),
        ("num_class", 1, "must be at least 2"),
        ("num_class", 100, "must be 10 for digits"),
        ("dataset_path", "", "must be a path"),
        ("dataset_path", "a\0b", "must be a path"),
        ("image_size", 31, "must be at least 32 for vgg11"),
        ("width", 0, "must be more than 0"),
        ("seed", -1, "must be at least 0"),
        ("device", "tpu", "known: auto, cpu, cuda"),
        ("batchsize", 64, "did you mean batch_size"),
    ],
)
def test_each_wrong_field_is_named_with_its_fix(field: str, value: object, words: str) -> None:
    found = catalogue.problems({**PAPER, field: value})
    assert fields(found) == [field]
    assert words in found[0][1]
    with pytest.raises(ValueError, match=field):
        catalogue.command({**PAPER, field: value})


def test_all_wrong_fields_are_told_at_once() -> None:
    found = catalogue.problems({**PAPER, "batch_size": 0, "lr": -1, "optim": "x"})
    assert fields(found) == ["batch_size", "lr", "optim"]


def test_cifar10_must_be_where_the_job_says(tmp_path: Path) -> None:
    job = {**PAPER, "dataset": "cifar10"}
    assert "is not a directory" in catalogue.problems(job, tmp_path)[0][1]
    folder = tmp_path / "data"
    folder.mkdir()
    assert "holds no CIFAR-10: expected data_batch_1.bin" in catalogue.problems(job, tmp_path)[0][1]
    (folder / "cifar-10-binary.tar.gz").touch()
    assert "unpack it first" in catalogue.problems(job, tmp_path)[0][1]
    batch = folder / "cifar-10-batches-bin" / "data_batch_1.bin"
    batch.parent.mkdir()
    batch.write_bytes(bytes(cifar10.RECORD_BYTES + 1))
    assert "cut short" in catalogue.problems(job, tmp_path)[0][1]
    batch.write_bytes(bytes(2 * cifar10.RECORD_BYTES))
    assert catalogue.problems(job, tmp_path) == []
    assert fields(catalogue.problems({**job, "dataset_path": "elsewhere"}, tmp_path)) == ["dataset_path"]


def test_files_are_not_looked_at_without_a_directory() -> None:
    assert catalogue.problems({**PAPER, "dataset": "cifar10", "dataset_path": "/nowhere"}) == []


VALUES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.integers()))


@given(st.dictionaries(st.sampled_from([*catalogue.FIELDS, *catalogue.EXTRA_FIELDS]) | st.text(), VALUES))
def test_any_object_is_judged_without_an_error(job: dict[str, Any]) -> None:
    found = catalogue.problems(job, "/")
    assert all(message for _, message in found)
    if not catalogue.problems(job):
        assert all(isinstance(part, str) for part in catalogue.command(job))


def test_a_path_that_looks_like_an_option_stays_a_path() -> None:
    assert "./--help" in catalogue.command({**PAPER, "dataset_path": "--help"})


def test_the_catalogue_needs_no_framework() -> None:
    code = "import sys, colane.workloads.catalogue\nprint(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert {"torch", "numpy", "sklearn"}.isdisjoint(ran.stdout.split())


def test_a_family_names_what_makes_a_job_quicker_or_slower_than_the_papers() -> None:
    assert catalogue.family({"model_name": "ResNet-18", "batch_size": 64, "lr": 0.5}) == "resnet18"
    scaled = {"model_name": "vgg19", "dataset": "digits", "workers": 0, "width": 0.125, "seed": 3}
    assert catalogue.family(scaled) == "vgg19 dataset=digits workers=0 width=0.125"
