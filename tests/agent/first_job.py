"""A PyTorch script that knows nothing of Colane, whose first step takes long: notes when its steps compute.

Arguments: file for the notes, seconds of the first step, seconds of the others, and where a step computes: `forward`
(in a module's call), `backward` (of a function without modules) or `update` (in the optimizer alone).
"""

from __future__ import annotations

import os
import sys
import time

import torch

path, first_s, step_s, where = sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
notes = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
done = 0


def compute() -> None:
    """Take the time of a step, and note it."""
    global done  # noqa: PLW0603
    began_s = time.monotonic()
    time.sleep(step_s if done else first_s)
    done += 1
    os.write(notes, b"%d %.6f %.6f\n" % (done, began_s, time.monotonic()))


class OneWeight(torch.nn.Module):  # type: ignore[misc,unused-ignore]
    """One weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute a step."""
        compute()
        return self.weight * x


class SlowBackward(torch.autograd.Function):  # type: ignore[misc,unused-ignore]
    """Computes a step when it goes backward."""

    @staticmethod
    def forward(_ctx: object, x: torch.Tensor) -> torch.Tensor:
        """Pass on."""
        return x.clone()

    @staticmethod
    def backward(_ctx: object, *gradients: torch.Tensor) -> torch.Tensor:
        """Compute a step."""
        compute()
        return gradients[0]


class SlowUpdate(torch.optim.SGD):  # type: ignore[misc,unused-ignore]
    """Computes a step when it updates."""

    def step(self) -> None:
        """Compute a step."""
        compute()
        super().step()


def main() -> None:
    """Train without end."""
    torch.set_num_threads(1)
    model = OneWeight()
    optimizer = (SlowUpdate if where == "update" else torch.optim.SGD)([model.weight], lr=0.1)
    while True:
        if where == "forward":
            model(torch.ones(1)).sum().backward()
        elif where == "backward":
            SlowBackward.apply(model.weight).sum().backward()
        else:
            model.weight.grad = torch.ones(1)
        optimizer.step()


if __name__ == "__main__":
    main()
