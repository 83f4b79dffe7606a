"""A model that answers a request for each line of a pipe, and knows nothing of Colane: run as a program.

Arguments: the pipe, a file that is there once it serves, and one to which each answer adds a byte.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

net = torch.nn.Linear(4, 1).to("cuda").eval()


class Served(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.cuda._sleep(2_000_000)
        return net(x)


def main(pipe: str, ready: str, answers: str) -> None:
    served = Served().to("cuda").eval()
    Path(ready).touch()
    with open(pipe) as lines, open(answers, "ab", buffering=0) as told, torch.inference_mode():  # noqa: PTH123
        for _ in lines:
            served(torch.randn(8, 4)).sum()
            told.write(b".")


if __name__ == "__main__":
    main(*sys.argv[1:])
