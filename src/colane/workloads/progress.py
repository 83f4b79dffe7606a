"""What the trainer says while it works: lines on stdout, each flushed, so that a log shows them at once."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

from colane.model.words import count


def say(line: str) -> None:
    """Print one line now."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class Log:
    """Prints a line every few steps, and a summary."""

    def __init__(self, job: Mapping[str, Any], every: int, done: int = 0) -> None:
        self._name, self._total, self._every = job["model_name"], job["iters"], every
        self._done, self._loss, self._before = done, float("nan"), done
        self._start_s = self._line_s = time.perf_counter()
        self._line_done = done

    def step(self, loss: float) -> None:
        """Count one step."""
        self._done, self._loss = self._done + 1, loss
        if self._done % self._every and self._done != self._total:
            return
        now_s = time.perf_counter()
        rate = (self._done - self._line_done) / (now_s - self._line_s)
        say(f"step {self._done}/{self._total} loss {loss:.4f} {rate:.2f} steps/s")
        self._line_s, self._line_done = now_s, self._done

    def end(self) -> None:
        """Print the summary."""
        took_s = time.perf_counter() - self._start_s
        made = self._done - self._before
        rate = made / took_s
        outcome = f"{count(made, 'step')} in {took_s:.2f} s {rate:.2f} steps/s loss {self._loss:.4f}"
        say(f"done {self._name} {outcome}")
