"""Emulated CUDA for a CPU build of PyTorch, see `torch_cuda`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any


def _core(module: ModuleType) -> None:
    from . import torch_cuda

    torch_cuda.put_into(module)


def _whole(module: ModuleType) -> None:
    from . import torch_cuda

    torch_cuda.complete(module)


def _turns(module: ModuleType) -> None:
    from . import torch_cuda

    torch_cuda.watch_turns(module)


def _sharded(module: ModuleType) -> None:
    """FSDP 1 asks the device of its tensors, here the host, for streams and events: these are the GPU's."""
    torch = sys.modules["torch"]
    shown = {**vars(torch.cuda), "current_device": lambda: torch.device("cpu")}
    module._FSDPDeviceHandle.from_device = classmethod(lambda *_: SimpleNamespace(**shown))


_AFTER: dict[str, Callable[[ModuleType], None]] = {
    "torch._C": _core,
    "torch": _whole,
    "torch.distributed.fsdp._common_utils": _sharded,
    "_colane_adaptor.turns": _turns,
}


class _Finder:
    """Lets the import system find PyTorch as it would, and comes right after its own loader."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        if name not in _AFTER:
            return None
        behind = sys.meta_path[sys.meta_path.index(self) + 1 :]
        for finder in behind:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                spec.loader = _Loader(spec.loader, _AFTER[name])  # type: ignore[assignment]
                return spec
        return None


class _Loader:
    def __init__(self, own: Any, after: Callable[[ModuleType], None]) -> None:
        self._own, self._after = own, after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def create_module(self, spec: ModuleSpec) -> Any:
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._own.exec_module(module)
        self._after(module)


def install() -> None:
    """Wait for PyTorch, nearer to it than whoever waits already: they shall see CUDA as part of it."""
    waiting = sum(hasattr(finder, "find_spec") and type(finder).__name__ == "ImportFinder" for finder in sys.meta_path)
    sys.meta_path.insert(waiting, _Finder())
