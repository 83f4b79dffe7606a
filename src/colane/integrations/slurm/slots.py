"""What the steps of a job share out among them on one machine: its tasks and its GPUs, and numbers of their own.

Each slot is a file in the job's own directory there, locked by the `srun` that has it: the lock ends with that process,
however it ends. Steps that wait for slots are served in the order in which they came.
"""

from __future__ import annotations

import fcntl
import os
import select
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from colane.integrations.slurm import contact
from colane.integrations.slurm.contact import SlurmError

STEPS_FILE: Final = "COLANE_STEPS_FILE"  # in a job's environment: a file of its own, in a directory of its own
AGAIN_S: Final = 0.1


class StepSlots:
    """Tasks and GPUs that one step has to itself for as long as this process lives."""

    def __init__(self) -> None:
        found = os.environ.get(STEPS_FILE)
        if not found:
            raise SlurmError("a step is started from within its job")
        self._directory = Path(found).parent
        self._held: list[int] = []

    def number(self) -> int:
        """Return the number of a new step: from 0 on, each once."""
        fd = self._open("step", waits=True)
        try:
            number = int(os.pread(fd, 16, 0) or b"0")
            os.pwrite(fd, str(number + 1).encode(), 0)
        finally:
            os.close(fd)
        return number

    def take(self, tasks: int, of_tasks: int, gpus: int, of_gpus: int) -> Sequence[int]:
        """Wait until so many tasks and GPUs of the job's are free, and return which GPUs they are."""
        turn = self._open("turn", waits=True)  # those that came before choose before
        try:
            is_told = False
            while (found := self._taken(tasks, of_tasks, gpus, of_gpus)) is None:
                if not is_told:
                    is_told = True
                    contact.note("srun", "the tasks or GPUs of this step are other steps' until they end")
                select.select([], [], [], AGAIN_S)
        finally:
            os.close(turn)
        return found

    def _taken(self, tasks: int, of_tasks: int, gpus: int, of_gpus: int) -> list[int] | None:
        if (first := self._some("task", tasks, of_tasks)) is None:
            return None
        if (second := self._some("gpu", gpus, of_gpus)) is None:
            for fd in first.values():
                os.close(fd)
            return None
        self._held += [*first.values(), *second.values()]
        return list(second)

    def _some(self, kind: str, number: int, of: int) -> dict[int, int] | None:
        """Lock so many of a kind, by place; none of them where there are fewer."""
        found = dict[int, int]()
        for place in range(of):
            if len(found) < number and (fd := self._open(f"{kind}.{place}", waits=False)) >= 0:
                found[place] = fd
        if len(found) == number:
            return found
        for fd in found.values():
            os.close(fd)
        return None

    def _open(self, name: str, *, waits: bool) -> int:
        """Lock a file; -1 where another process has it and it is not waited for."""
        fd = os.open(self._directory / f"slurm-{name}", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return -1
        return fd
