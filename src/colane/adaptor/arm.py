"""Waits for the process to import a framework, and costs nothing until then.

Imported at every start of Python in a job, so it imports only what Python itself has loaded by then. One finder
in front of `sys.meta_path` knows a few names; when one of them comes, it lets the import system find it as it
would, and has the loader's work followed by ours.
"""

from __future__ import annotations

import os
import sys

STEPS_FILE_ENV = "COLANE_STEPS_FILE"
SWITCH_ENV = "COLANE_ADAPTOR"  # `off` leaves a job's processes as they are

TYPE_CHECKING = False  # as `typing` has it, which costs milliseconds to import
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


def _torch(module: ModuleType) -> None:
    from . import torch_steps

    torch_steps.attach(module)


def _dynamo(module: ModuleType) -> None:
    from . import torch_steps

    torch_steps.attach_compiler(module)


def _keras(module: ModuleType) -> None:
    from . import keras_steps

    keras_steps.attach(module)


def _lightning(module: ModuleType) -> None:
    from . import totals

    totals.attach_lightning(module)


def _transformers(module: ModuleType) -> None:
    from . import totals

    totals.attach_transformers(module)


FRAMEWORKS: dict[str, Callable[[ModuleType], None]] = {
    "torch": _torch,
    "torch._dynamo": _dynamo,
    "keras": _keras,
    "lightning.pytorch.loops.fit_loop": _lightning,
    "pytorch_lightning.loops.fit_loop": _lightning,
    "transformers.trainer_callback": _transformers,
}


class ImportFinder:
    """Finds the frameworks by asking all finders behind it."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a framework's spec with our loader around its own; None of any other module."""
        if name not in FRAMEWORKS:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None else None
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = Loader(spec.loader, FRAMEWORKS[name])
                return spec  # type: ignore[no-any-return]
        return None


class Loader:
    """Loads a module as its own loader does, then attaches to it."""

    def __init__(self, own: object, attach: Callable[[ModuleType], None]) -> None:
        self._own = own
        self._attach = attach

    def __getattr__(self, name: str) -> object:
        return getattr(self._own, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Let the module's own loader make it."""
        return self._own.create_module(spec)  # type: ignore[attr-defined,no-any-return]

    def exec_module(self, module: ModuleType) -> None:
        """Run the module's body with its own loader in every place where it is looked for, then attach."""
        if module.__spec__ is not None:
            module.__spec__.loader = self._own  # type: ignore[assignment]
        module.__loader__ = self._own  # type: ignore[assignment]
        self._own.exec_module(module)  # type: ignore[attr-defined]
        attach(self._attach, module)


def attach(how: Callable[[ModuleType], None], module: ModuleType) -> None:
    """Attach to a framework; whatever fails, it stays as it is."""
    try:
        how(module)
    except Exception as error:  # noqa: BLE001  # the job must run without us
        if os.environ.get("COLANE_DEBUG") and sys.stderr is not None:
            print(f"colane: {module.__name__} is left alone: {error!r}", file=sys.stderr)  # noqa: T201


def arm() -> None:
    """Wait for a framework in this process, if it belongs to a job; once, however often it is called."""
    if not os.environ.get(STEPS_FILE_ENV) or os.environ.get(SWITCH_ENV) == "off":
        return
    if any(isinstance(finder, ImportFinder) for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, ImportFinder())
    for name, how in FRAMEWORKS.items():
        if name in sys.modules:
            attach(how, sys.modules[name])
