from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def torch() -> Any:
    """PyTorch, imported where it is used; its idle threads do not spin on cores that other tests use."""
    import torch  # noqa: PLC0415 - see tests/needs.py

    torch.set_num_threads(1)
    return torch


@pytest.fixture
def models(torch: Any) -> Any:
    """The models of the built-in trainer, which are PyTorch's."""
    del torch
    from colane.workloads import models  # noqa: PLC0415

    return models


@pytest.fixture
def data(torch: Any) -> Any:
    """The data of the built-in trainer, as PyTorch's tensors."""
    del torch
    from colane.workloads import data  # noqa: PLC0415

    return data
