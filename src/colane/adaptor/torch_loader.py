"""Batches of PyTorch's DataLoaders: where a script waits for data."""

from __future__ import annotations

import functools

from . import torch_rests
from .recorder import safely

TYPE_CHECKING = False  # as `typing` has it, which costs milliseconds to import
if TYPE_CHECKING:
    from typing import Any

    from .torch_forward import Others


def attach(torch: Any, others: Others) -> None:
    """Follow every loader's batches."""
    iterator = torch.utils.data.dataloader._BaseDataLoaderIter  # noqa: SLF001
    own, thread, to = iterator.__next__, others.thread, others.to

    @functools.wraps(own)
    def following(self: Any) -> Any:
        if self.__dict__.get("_colane_gave"):
            self._colane_gave = False
            safely(others.batch)
        thread.is_loading = True
        try:
            batch = torch_rests.next_batch(own, self, to)
        finally:
            thread.is_loading = False
        self._colane_gave = True
        safely(others.gave, self)
        return batch

    iterator.__next__ = following
