"""Start values of paper D, section IV-B, and categories told by imports."""

from __future__ import annotations

import pytest

from colane.cpu.category import category_of
from colane.cpu.start import CoreHistory, StartFrom, start_cores
from colane.model.job_spec import Category, CoreHint


@pytest.mark.parametrize(
    ("category", "cores"), [(Category.CV, 3), (Category.NLP, 5), (Category.SPEECH, 5), (Category.UNKNOWN, 5)]
)
def test_without_history_the_category_decides(category: Category, cores: int) -> None:
    assert start_cores(category).per_gpu == cores


def test_of_the_owners_history_the_most_counts_not_the_mean() -> None:
    history = [CoreHistory(Category.CV, 2), CoreHistory(Category.CV, 6), CoreHistory(Category.NLP, 9)]
    assert start_cores(Category.CV, history)[1:] == (6, StartFrom.OWN_CATEGORY)
    assert start_cores(Category.SPEECH, history)[1:] == (5, StartFrom.CATEGORY)
    assert start_cores(Category.UNKNOWN, history)[1:] == (9, StartFrom.OWN_JOBS)
    assert start_cores(Category.UNKNOWN)[1:] == (5, StartFrom.UNKNOWN)


def test_hints_and_gpus() -> None:
    assert start_cores(Category.CV, hints=(CoreHint.PIPELINED, CoreHint.MANY_WEIGHTS)).per_gpu == 1
    assert start_cores(Category.CV, [CoreHistory(Category.CV, 1)], [CoreHint.PIPELINED]).per_gpu == 1
    assert start_cores(Category.NLP, hints=[CoreHint.COMPLEX_BETWEEN]).per_gpu == 6
    assert start_cores(Category.CV, gpus=4).total == 12
    assert start_cores(Category.CV, gpus=4, several_nodes=True).total == 2


@pytest.mark.parametrize(
    ("source", "category"),
    [
        ("import torch, torchvision", Category.CV),
        ("from torchvision.models import resnet50", Category.CV),
        ("from transformers import BertModel", Category.NLP),
        ("import nemo.collections.asr as asr", Category.SPEECH),
        ("def f():\n    import torchaudio", Category.SPEECH),
        ("from tensorflow.keras import applications", Category.CV),
        ("import torch", Category.UNKNOWN),
        ("import torchvision, transformers", Category.UNKNOWN),
        ("from .timm import x", Category.UNKNOWN),
        ("import timmy", Category.UNKNOWN),
        ("this is not Python", Category.UNKNOWN),
        ("\0", Category.UNKNOWN),
    ],
)
def test_category_by_imports(source: str, category: Category) -> None:
    assert category_of(source) is category
