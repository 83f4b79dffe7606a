"""A job's processes stopped where they are, so that none of them computes or writes, and let go on again.

By SIGSTOP, which no program can catch or ignore. It takes milliseconds, where an end takes as long as a job needs to
save. What the kernel has begun for a process (a write, kernels queued on a GPU) it completes, as for one that is
killed.

Standard library alone, and of that only what starts fast: see `shim`.
"""

# ruff: noqa: PTH119 - pathlib slows every start

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import os

from colane.agent.supervisor.shim_ending import Process, identify, words_of
from colane.agent.supervisor.shim_system import descendants, read_stat, send

STANDING = frozenset({b"", b"T", b"t", b"Z", b"X", b"x"})
"""States of proc_pid_stat(5) in which a process runs nothing: gone, stopped, stopped by its tracer, dead."""

DAEMONS_CLIENTS = frozenset({"docker", "nerdctl", "srun"})
"""What they start is no process below them, and stops only when they are asked to end."""
LAUNCHERS = frozenset({"mpirun", "mpiexec", "orterun", "prterun"})
"""They start processes on other machines, where they have an `ssh` for that."""


class Halt:
    """All processes below this one, stopped or not.

    Attributes:
        is_on: Whether they are.
    """

    def __init__(self) -> None:
        self.is_on = False
        self._halted: dict[Process, None] = {}

    def keep(self) -> None:
        """Stop all, again until none is found that has not been told: a fork may slip through one pass.

        One that was stopped before is left so by `lift`: it is for whoever stopped it to let it go on.
        """
        told: set[Process] = set()
        while fresh := [one for one in self._awake() if one[0] not in told]:
            for process, state in fresh:
                if state not in STANDING:
                    self._halted[process] = None
                send(process[0], signal.SIGSTOP)
                told.add(process)
        self.is_on = True

    def lift(self) -> None:
        """Let them go on, children first: no parent is to find its child stopped."""
        for process in reversed(self._halted):
            if identify(process[0]) == process:
                send(process[0], signal.SIGCONT)
        self._halted.clear()
        self.is_on = False

    def kill(self) -> None:
        """Kill them as they stand, children first: the kernel wakes a stopped process group that it orphans."""
        for process in reversed(self._halted):
            if identify(process[0]) == process:
                send(process[0], signal.SIGKILL)
        self._halted.clear()
        self.is_on = False

    def _awake(self) -> list[tuple[Process, bytes]]:
        """Those that are not stopped; at first all, as one that is stopped may just be let go on by another."""
        found = []
        for pid in descendants():
            state, start_ticks = read_stat(pid)
            if state not in STANDING or not self.is_on:
                found.append(((pid, start_ticks), state))
        return found


def runs_elsewhere() -> bool:
    """Whether processes that are not below this one do the work of any that is: to stop that one stops nothing."""
    names = {os.path.basename(os.fsdecode(word)) for pid in descendants() for word in words_of(pid)[:2]}
    return bool(names & DAEMONS_CLIENTS) or ("ssh" in names and bool(names & LAUNCHERS))
