"""A notebook's kernel as a job, on a GPU: each line of a pipe is a cell of as many training steps. Run as a program.

Argument: the pipe. A cell ends early where there is a file beside it whose name ends in `.enough`; one that ends in
`.ended` is there once the first has ended.

IPython is not among what tests install: in its place stands a shell with its two events.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch


class Shell:
    """Calls what is registered for its events, as `IPython.core.events` does."""

    def __init__(self) -> None:
        self.events = SimpleNamespace(register=self.register)
        self.called: dict[str, list[Any]] = {"pre_run_cell": [], "post_run_cell": []}

    def register(self, event: str, call: Any) -> None:
        self.called[event].append(call)

    def run(self, cell: Any) -> None:
        for event in ("pre_run_cell", "post_run_cell"):
            for call in list(self.called[event]):
                call(SimpleNamespace())
            if event == "pre_run_cell":
                cell()


def main(path: str) -> None:
    shell = Shell()
    sys.modules["IPython"] = ipython = ModuleType("IPython")
    ipython.get_ipython = lambda: shell  # type: ignore[attr-defined]
    kept: list[Any] = []

    def begin() -> None:
        net = torch.nn.Linear(4, 1).to("cuda")
        kept.extend([net, torch.optim.SGD(net.parameters(), lr=0.01), torch.zeros(16 * 2**20).to("cuda")])

    def train(steps: int) -> None:
        net, optimizer, _ = kept
        while steps and not Path(f"{path}.enough").exists():
            steps -= 1
            optimizer.zero_grad()
            torch.cuda._sleep(1_000_000)
            net(torch.randn(8, 4).to("cuda")).sum().backward()
            optimizer.step()

    shell.run(begin)
    with open(path) as cells:  # noqa: PTH123
        for line in cells:
            shell.run(lambda steps=int(line): train(steps))
            Path(f"{path}.ended").touch()


if __name__ == "__main__":
    main(sys.argv[1])
