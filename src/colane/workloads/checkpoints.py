"""All that a training is at a step boundary: what it has learnt, how far it is, and everything random in it.

The data position is the number of samples taken: which ones a step takes, and how each is augmented, follows from the
seed and that number alone (`data.Draws`). So a training that goes on from a saved state makes the same steps as one
that was never stopped.
"""

from __future__ import annotations

import io
from typing import Any

import torch
from torch import nn

from colane.workloads.progress import say
from colane.workloads.statefile import SavedState, StateFile


class Training:
    """A training that can be saved and taken up again.

    Attributes:
        seed: Of everything random in it; a saved state brings its own.
        batch_size: Samples that each of its steps takes, from where it goes on.
    """

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, seed: int, file: StateFile, batch_size: int
    ) -> None:
        self.seed = seed
        self.batch_size = batch_size
        self._begun = 0, 0
        self._model, self._optimizer, self._file = model, optimizer, file

    def samples_taken(self, steps: int) -> int:
        """How many samples it has taken after so many steps: those before it went on may have had other batches."""
        done, taken = self._begun
        return taken + (steps - done) * self.batch_size

    def save(self, steps: int) -> None:
        """Write the state after so many steps. Raises OSError: the disk does not take it."""
        state = {
            "steps": steps,
            "samples": self.samples_taken(steps),
            "seed": self.seed,
            "model": self._model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "random": torch.get_rng_state(),
            "random_cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        }
        buffer = io.BytesIO()
        torch.save(state, buffer)
        self._file.write(buffer.getvalue())

    def load(self) -> int:
        """Take up the newest whole state; the number of steps in it, 0 where there is none.

        Raises:
            UnusableStateError: It is that of another training, or may not be read.
        """
        try:
            for found in self._file.states():
                if isinstance(found, SavedState):
                    return self._take(found)
                say(f"{found}; going on from the one before")
        except OSError as error:
            raise UnusableStateError(f"the saved state cannot be read: {error}") from error
        return 0

    def _take(self, saved: SavedState) -> int:
        state: dict[str, Any] = torch.load(io.BytesIO(saved.data), map_location="cpu", weights_only=True)
        try:
            self._model.load_state_dict(state["model"])
            self._optimizer.load_state_dict(state["optimizer"])
        except (RuntimeError, ValueError, KeyError) as error:
            first = str(error).partition("\n")[0]
            raise UnusableStateError(f"{saved.path} is the state of another training: {first}") from error
        torch.set_rng_state(state["random"])
        if state["random_cuda"] and len(state["random_cuda"]) == torch.cuda.device_count():
            torch.cuda.set_rng_state_all(state["random_cuda"])
        self.seed = int(state["seed"])
        steps = int(state["steps"])
        self._begun = steps, int(state.get("samples", steps * self.batch_size))
        say(f"goes on from step {steps} of {saved.path}")
        return steps


class UnusableStateError(Exception):
    """A saved state cannot be taken up; the text says of which file and why."""
