"""A PyTorch script that knows nothing of Colane, whose training rests now and then: notes when it uses its device.

Arguments: file for the notes, seconds of what it computes at once, seconds of a rest, and what it does between the
rounds of ten steps: `evaluate` (a rest long, piece by piece), `load` (waits for data), `work` (waits for data of a
worker process) or `save` (writes something slowly).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator

import torch
from torch.utils.data import DataLoader, IterableDataset

path, step_s, rest_s, what = sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
notes = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
rests = os.open(f"{path}.rests", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
ROUND_STEPS = 10
done = 0


class NotingModel(torch.nn.Linear):  # type: ignore[misc,unused-ignore]
    """Notes when it is called."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute a step, of training or of an evaluation."""
        global done  # noqa: PLW0603
        began_s = time.monotonic()
        time.sleep(step_s)
        done += 1
        os.write(notes, b"%d %.6f %.6f\n" % (done, began_s, time.monotonic()))
        return super().forward(x)


class SlowData(IterableDataset):  # type: ignore[misc,unused-ignore]
    """Every tenth batch comes late."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        """Give batches."""
        number = 0
        while True:
            number += 1
            if number % ROUND_STEPS == 0 and what in {"load", "work"}:
                time.sleep(rest_s)
            yield torch.ones(2)


class SlowState:
    """Takes long to be saved."""

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """Save."""
        time.sleep(rest_s)
        return SlowState, ()


def rest(model: NotingModel) -> None:
    """Do what is no step of training."""
    if what == "evaluate":
        until_s = time.monotonic() + rest_s
        model.eval()
        with torch.no_grad():
            while time.monotonic() < until_s:
                model(torch.ones(2))
        model.train()
    elif what == "save":
        torch.save(SlowState(), f"{path}.saved")


def main() -> None:
    """Train without end."""
    torch.set_num_threads(1)
    model = NotingModel(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    loader = DataLoader(
        SlowData(), batch_size=None, num_workers=int(what == "work"), prefetch_factor=1 if what == "work" else None
    )
    began_s, number = time.monotonic(), 0
    for number, batch in enumerate(loader, start=1):
        if number % ROUND_STEPS == 0:
            if what in {"evaluate", "save"}:
                began_s = time.monotonic()
                rest(model)
            os.write(rests, b"%d %.6f %.6f\n" % (number // ROUND_STEPS, began_s, time.monotonic()))
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        began_s = time.monotonic()


if __name__ == "__main__":
    main()
