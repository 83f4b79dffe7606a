"""A loop of JAX whose host runs ahead of its device, and says its steps itself: run as a program.

Arguments: a file for notes, and the number of steps. It notes how many results are not there yet when it comes to a
boundary at which it is asked for its turn (`asked`), and when it gives that up (`yield`).
"""

from __future__ import annotations

import os
import sys
from collections import deque
from importlib import import_module
from typing import Any

import colane.adaptor as colane

SIDE, AHEAD = 200, 16
"""Rows of a matrix, and how many steps the script lets the host run ahead: what a loop does that prints its loss."""


def main(notes: str, count: int) -> None:
    jax: Any = import_module("jax")  # so that checks of types say the same where it is not installed
    jnp: Any = import_module("jax.numpy")
    file = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    under_way: deque[Any] = deque(maxlen=AHEAD)
    from _colane_adaptor.turns import TurnTaker  # type: ignore[import-not-found]  # noqa: PLC0415 - found in a job alone

    def watch(name: str, label: str) -> None:
        own = getattr(TurnTaker, name)

        def watched(self: Any, *args: Any) -> Any:
            late = sum(not result.is_ready() for result in under_way)
            os.write(file, f"{label} {late}\n".encode())
            return own(self, *args)

        setattr(TurnTaker, name, watched)

    watch("_settle", "asked")
    watch("_exchange", "yield")

    def several(weights: Any) -> Any:
        for _ in range(20):
            weights = jnp.tanh(weights @ weights * 1e-2)
        return weights

    update = jax.jit(several)
    steps = colane.attach(total_steps=count)
    weights = jnp.ones((SIDE, SIDE))
    for _ in range(count):
        if len(under_way) == AHEAD:
            under_way[0].block_until_ready()
        weights = update(weights)
        under_way.append(weights)
        steps.step()
    weights.block_until_ready()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
