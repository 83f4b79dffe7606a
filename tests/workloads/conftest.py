from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """Keep PyTorch's idle threads from spinning on cores that other tests use."""
    try:
        import torch  # noqa: PLC0415  # optional
    except ModuleNotFoundError:
        return
    torch.set_num_threads(1)
