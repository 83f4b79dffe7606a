"""A server for tests of turns: answers a request for each line of a pipe, and notes when each answer begins and ends.

Arguments: file for the notes, the pipe, seconds of an answer, and how it serves:

* `request`: it says when a request comes; `threads`: so do two threads.
* `step`: it says its steps, and a model of PyTorch is called; `model`: nothing is said of that.
* `unheard`: it says its steps, and nothing tells when a request comes.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from queue import Queue

import colane.adaptor as colane


def of_model(answer: Callable[[], None]) -> Callable[[], None]:
    """Answer within a call of a model, called once before the first request."""
    import torch  # noqa: PLC0415 - two of the ways do without

    class Model(torch.nn.Module):  # type: ignore[misc]
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            if len(inputs) == 1:
                answer()
            return inputs

    model = Model().eval()
    with torch.no_grad():
        model(torch.zeros(2))
    return lambda: model(torch.zeros(1))


def main(path: str, pipe: str, answer_s: float, how: str) -> None:
    notes = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    count, noting = iter(range(1, sys.maxsize)), threading.Lock()

    def answer() -> None:
        began_s = time.monotonic()
        time.sleep(answer_s)
        with noting:
            os.write(notes, b"%d %.6f %.6f\n" % (next(count), began_s, time.monotonic()))

    call = of_model(answer) if how in {"step", "model"} else answer
    steps = colane.attach() if how != "model" else None
    asked: Queue[str] = Queue()

    def serve() -> None:
        while asked.get():
            if steps is not None and how in {"request", "threads"}:
                with steps.request():
                    call()
                continue
            call()
            if steps is not None:
                steps.step()

    os.write(os.open(path + ".ready", os.O_WRONLY | os.O_CREAT, 0o600), b"ready")
    for _ in range(2 if how == "threads" else 1):
        threading.Thread(target=serve, daemon=True).start()
    with open(pipe) as lines:  # noqa: PTH123 - as little is imported as in a job
        for line in lines:
            asked.put(line)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4])
