"""Runs of simulations as Ray's tasks: one machine's results, sooner."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from colane.engines.ray_driver import connect

Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")


class RayExecutor(Executor):
    """Calls functions on the nodes of a Ray, a core for each call; a call whose node dies is made again.

    Args:
        address: Of Ray's head, `HOST:PORT`.

    Raises:
        EngineError: There is none, or it is another version's; one line.
    """

    def __init__(self, address: str) -> None:
        connect(address)
        import ray  # noqa: PLC0415 - an extra

        self._task = ray.remote(_in_folder).options(num_cpus=1, max_retries=3)

    def submit(self, fn: Callable[Asked, Answer], /, *args: Asked.args, **kwargs: Asked.kwargs) -> Future[Answer]:
        """Call it there, in a directory of the same path as ours where there is one."""
        future: Future[Answer] = self._task.remote(str(Path.cwd()), fn, args, kwargs).future()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002 - as an executor has it
        """Leave Ray; calls that have not ended are broken off."""
        import ray  # noqa: PLC0415 - an extra

        ray.shutdown()


def _in_folder(folder: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 - as the function
    if Path(folder).is_dir():
        os.chdir(folder)
    return fn(*args, **kwargs)
