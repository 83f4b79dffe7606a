"""Starts one process for each GPU of a job on this machine: all of them or none; when one fails, all end.

    python -I -S ranks.py GRACE_S FIRST_RANK POOLS BINDING... -- COMMAND...

One BINDING for each rank, `CORES:NODES:THREADS`: core numbers, NUMA nodes to take memory from first, and the value of
each variable in POOLS (as OMP_NUM_THREADS); each may be empty. WORLD_SIZE and where the ranks meet (MASTER_ADDR,
MASTER_PORT) are in the environment already; RANK, LOCAL_RANK and LOCAL_WORLD_SIZE are added here.

It runs under the shim, as a copy beside the shim's, and needs the standard library and `shim_system` alone. It ends as
the first rank to fail ended: with its exit code, or by its signal. Being stopped is the shim's matter, which signals
the whole tree.
"""

# ruff: noqa: S606 - exec is what it does

from __future__ import annotations

import os
import resource
import signal
import sys
from types import FrameType

if __name__ == "__main__":  # a copy, beside those of its parts, wherever colane is installed: see `programs`
    sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))  # noqa: PTH120 - pathlib slows the start

from colane.agent.supervisor import shim_system as system

NOT_STARTED = 127  # exit code when a rank cannot be started, as a shell's

SAVED = 75  # exit code of a rank whose state is saved: the others are saving theirs, and are let

SAVED_STATUS = SAVED << 8  # the same as it is waited for

LEFT_STATUS = 76 << 8
"""Of a rank without which the others go on (`reforming.LEFT`): no failure unless all of them leave so."""


class Binding:
    """Where one rank runs."""

    def __init__(self, word: str) -> None:
        cores, nodes, self.threads = word.split(":")
        self.cores = tuple(int(core) for core in cores.split(",") if core)
        self.nodes = tuple(int(node) for node in nodes.split(",") if node)


class LocalRanks:
    """The ranks of a job on this machine."""

    def __init__(
        self, grace_s: float, first_rank: int, pools: list[str], bindings: list[Binding], argv: list[str]
    ) -> None:
        self._grace_s = grace_s
        self._first_rank = first_rank
        self._pools = pools
        self._bindings = bindings
        self._argv = argv
        self._ranks: dict[int, int] = {}
        """By pid, those that live."""
        self._stopped = False

    def start(self) -> str:
        """Start all ranks; when one cannot be started none is left, and the answer says why."""
        signal.signal(signal.SIGTERM, self._stop)
        gate, opener = os.pipe()
        trouble, trouble_end = os.pipe()
        problem = ""
        try:
            for local in range(len(self._bindings)):
                self._fork(local, gate, opener, trouble_end)
        except OSError as error:
            problem = f"a process for rank {self._first_rank + len(self._ranks)}: {error.strerror}"
        os.close(trouble_end)
        os.close(gate)
        if not problem:
            os.write(opener, b"." * len(self._ranks))
        os.close(opener)  # a rank that has no byte by now goes away
        problem = problem or system.read_all(trouble).decode(errors="replace").partition("\n")[0]
        if problem:
            self._kill(signal.SIGKILL)
            while self._ranks:
                self._ranks.pop(os.waitpid(-1, 0)[0], None)
        return problem

    def run(self) -> int:
        """Wait for all; return the status of the first rank that failed, else of one that has saved, else 0."""
        signal.signal(signal.SIGALRM, lambda *_: self._kill(signal.SIGKILL))
        first, ends = 0, set[int]()
        while self._ranks:
            pid, status = os.waitpid(-1, 0)
            rank = self._ranks.pop(pid, None)
            if rank is not None:
                ends.add(status)
            if rank is not None and status not in {0, LEFT_STATUS} and first in {0, SAVED_STATUS}:
                first = status
                if status != SAVED_STATUS and self._ranks and not self._stopped:  # others would wait for it for ever
                    say(f"rank {rank} {ending(status)}; the other ranks of the job are stopped")
                    self._kill(signal.SIGTERM)
                    signal.setitimer(signal.ITIMER_REAL, self._grace_s)
        signal.setitimer(signal.ITIMER_REAL, 0)
        return LEFT_STATUS if ends == {LEFT_STATUS} else first

    def _fork(self, local: int, gate: int, opener: int, trouble: int) -> None:
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.close(opener)
            if not os.read(gate, 1):
                os._exit(NOT_STARTED)
            binding, what = self._bindings[local], f"rank {self._first_rank + local}"
            try:
                system.restore_signals()
                if binding.cores:
                    os.sched_setaffinity(0, binding.cores)
                system.prefer_memory(binding.nodes)
                what = f"{what}, command {self._argv[0]!r}"
                os.execvpe(self._argv[0], self._argv, self._environment(local, binding))
            except (OSError, ValueError) as error:
                os.write(trouble, f"{what}: {getattr(error, 'strerror', None) or error}\n".encode(errors="replace"))
            finally:
                os._exit(NOT_STARTED)
        self._ranks[pid] = self._first_rank + local

    def _environment(self, local: int, binding: Binding) -> dict[str, str]:
        threads = dict.fromkeys(self._pools, binding.threads) if binding.threads else {}
        ranks = {"RANK": self._first_rank + local, "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": len(self._bindings)}
        return {**os.environ, **threads, **{name: str(value) for name, value in ranks.items()}}

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        """The shim stops the job: it has told every rank, and kills after the grace time."""
        self._stopped = True

    def _kill(self, number: int) -> None:
        for pid in list(self._ranks):
            system.send(pid, number)


def ending(status: int) -> str:
    """Say how a process ended."""
    if os.WIFSIGNALED(status):
        return f"was killed by signal {signal.Signals(os.WTERMSIG(status)).name}"
    return f"ended with exit code {os.WEXITSTATUS(status)}"


def say(line: str) -> None:
    """Tell the job's owner, in its log."""
    os.write(2, f"colane: {line}\n".encode())


def end_as(status: int) -> None:
    """End this process in the way of a status that was waited for."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the rank has left its core, if it was to
        if number not in {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        signal.pause()
    os._exit(os.WEXITSTATUS(status))


def main(words: list[str]) -> None:
    """Run the command line."""
    split = words.index("--")
    grace_s, first_rank, pools, *bindings = words[:split]
    names = [name for name in pools.split(",") if name]
    gang = LocalRanks(float(grace_s), int(first_rank), names, [Binding(word) for word in bindings], words[split + 1 :])
    problem = gang.start()
    if problem:
        say(f"no rank was started: {problem}")
        os._exit(NOT_STARTED)
    end_as(gang.run())


if __name__ == "__main__":
    main(sys.argv[1:])
