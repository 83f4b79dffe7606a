"""How a job's processes are asked to end. There is this one contract, whatever asks and why.

1. The signal that the owner asked for (`--checkpoint`), where a process catches it, and the lead to save.
2. SIGTERM, and the grace time.
3. SIGKILL.

A stage is over early when all that were told have gone. No process gets the same signal twice:

* It goes to the first processes from the top that catch it. What is below them is theirs: torchrun, make and the like
  pass it on, and a handler that forked workers have inherited must not run in each of them.
* A shell that catches it acts only when the command it waits for has ended, so that command is told as well. A command
  in the background is left to the shell, whose trap runs at once. Both hold for `ranks`, which counts on it. Where the
  owner wants the signal for the script alone (Slurm's `B:`), that command is not told.
* Processes that would die of it (a shell, `tee` at the end of a pipe, the parent of mp.spawn, data loaders) are spared
  until those that were told have gone: they hold what a job needs to save. Shells are halted meanwhile, or a script
  would go on to its next command. Workers that inherited a handler from one that has gone are killed then.
* What reads from a pipe ends by itself once its writers have gone and it has passed on the last that they wrote: it is
  told `DRAIN_S` after all others.
* A program that catches it and neither ends nor passes it on in half of the time is passed by: what it has started
  (not forked) is told then.

Standard library alone, and of that only what starts fast: see `shim`.
"""

# ruff: noqa: PTH115, PTH119 - pathlib slows every start

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import os

from colane.agent.supervisor.shim_system import (
    catches,
    children,
    descendants,
    ignores,
    kill_tree,
    read_file,
    read_stat,
    send,
)

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ksh93", "mksh", "ash", "busybox"})

FORWARDERS = frozenset({
    "torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "deepspeed", "make", "gmake",
    "timeout", "mpirun", "mpiexec", "orterun", "prterun", "srun", "tini", "dumb-init", "uv", "docker", "podman",
})  # fmt: skip
"""Programs and modules that pass signals on: what they have started is never told again by us."""

NOT_PASSED_ON = frozenset({"make", "gmake"})
"""They catch SIGUSR1 for themselves (it switches debugging on)."""

WORDS_MAX = 6
"""Of a command line: `python -u -m torch.distributed.run` is within it."""

ROUND_S = 0.02
"""Between two looks. SIGKILL, too, takes more than one round while a process forks or hangs in the kernel."""

DRAIN_S = 2.0
"""What reads from a pipe has this long to pass on what is in it, or less where the grace time is over before."""

Process = tuple[int, int]
"""Pid and start time: together they do not come again."""


class Ending:
    """The end of one job, from the first signal on.

    Attributes:
        told: How many processes the owner's signal went to.
    """

    def __init__(self, grace_s: float, now_s: float, until_s: float = float("inf")) -> None:
        """Begin; nothing is sent before `ask` or `look`.

        Args:
            grace_s: From SIGTERM to SIGKILL.
            now_s: Any clock that does not jump, as everywhere here.
            until_s: When all must be gone, whatever time they have.
        """
        self.told = 0
        self._grace_s, self._until_s = grace_s, until_s
        self._terminate_at_s = now_s
        self._kill_at_s: float | None = None
        self._half_s = now_s
        self._drained_s: float | None = None
        self._waits_for: list[Process] = []
        self._heirs: set[Process] = set()
        self._had: set[Process] = set()

    def ask(self, number: int, lead_s: float, now_s: float, *, to_shell: bool = False) -> None:
        """Send the owner's signal; SIGTERM follows when that time is over, or at once where no process catches it."""
        self._waits_for = _savers(self._tell(audience(os.getpid(), number, to_shell=to_shell), number))
        self.told = len(self._waits_for)
        self._hold_others()
        if self._waits_for:
            self._terminate_at_s = now_s + lead_s

    def has_had(self, processes: list[Process]) -> None:
        """These have been sent SIGTERM already, as the signal that asks them to save."""
        self._had.update(processes)

    def look(self, now_s: float) -> None:
        """Do what is due."""
        if self._kill_at_s is None:
            if now_s < self._terminate_at_s and self._is_awaited():
                return
            self._terminate(now_s)
        elif now_s >= self._kill_at_s:
            kill_tree()
            return
        if not self._is_awaited():
            self._end_others(now_s)
        elif now_s >= self._half_s:
            self._tell(self._fresh(passed_by(os.getpid())), signal.SIGTERM)

    def kill(self, now_s: float) -> None:
        """Wait no longer."""
        self._kill_at_s = now_s

    def put_off(self, seconds: float) -> None:
        """The job could do nothing for so long; when all must be gone stays as it is."""
        self._terminate_at_s += seconds
        self._half_s += seconds
        if self._drained_s is not None:
            self._drained_s += seconds
        if self._kill_at_s is not None:
            self._kill_at_s = min(self._kill_at_s + seconds, self._until_s)

    def _hold_others(self) -> None:
        """While any that was told lives, no script goes on, and no worker of it runs its handler."""
        if not self._waits_for:
            return
        told = {pid for pid, _ in self._waits_for}
        for pid in told:
            self._heirs.update(identify(heir) for heir in _heirs(pid))
        self._heirs.difference_update(self._waits_for)
        for pid in descendants():
            if pid not in told and _is_shell(pid) and not catches(pid, signal.SIGTERM):
                send(pid, signal.SIGSTOP)

    def _end_others(self, now_s: float) -> None:
        """SIGTERM to those that have not had it; what their parent has left to them is not for heirs to save."""
        if self._drained_s is None:
            self._drained_s = now_s + DRAIN_S
        for pid, _ in self._heirs:
            send(pid, signal.SIGKILL)
        fresh = self._fresh(descendants())
        if now_s < self._drained_s:
            fresh = [pid for pid in fresh if not _is_filter(pid)]
        self._tell(fresh, signal.SIGTERM)
        for pid in fresh:
            send(pid, signal.SIGCONT)

    def _terminate(self, now_s: float) -> None:
        self._kill_at_s = min(now_s + self._grace_s, self._until_s)
        self._half_s = (now_s + self._kill_at_s) / 2
        for pid in descendants():
            send(pid, signal.SIGCONT)
        catchers = audience(os.getpid(), signal.SIGTERM)
        had = [process for process in map(identify, catchers) if process in self._had]
        self._waits_for = _savers(had + self._tell(self._fresh(catchers), signal.SIGTERM))
        self._hold_others()

    def _fresh(self, pids: list[int]) -> list[int]:
        return [pid for pid in pids if identify(pid) not in self._had | self._heirs]

    def _tell(self, pids: list[int], number: int) -> list[Process]:
        processes = [identify(pid) for pid in pids]
        for process in processes:
            send(process[0], number)
        if number == signal.SIGTERM:
            self._had.update(processes)
        return processes

    def _is_awaited(self) -> bool:
        """Whether any that was told lives."""
        self._waits_for = [process for process in self._waits_for if _lives(process)]
        return bool(self._waits_for)


def audience(root: int, number: int, *, to_shell: bool = False) -> list[int]:
    """The processes below `root` that a signal is for; see above. `to_shell`: of a script the script alone."""
    found, todo = [], children(root)
    while todo:
        pid = todo.pop(0)
        if not catches(pid, number) or (number != signal.SIGTERM and _is_one_of(NOT_PASSED_ON, words_of(pid))):
            todo += children(pid)
            continue
        found.append(pid)
        if _is_shell(pid):
            todo += [] if to_shell else [child for child in children(pid) if not ignores(child, signal.SIGINT)]
        elif is_ranks(words_of(pid)):
            todo += children(pid)
    return found


def _savers(told: list[Process]) -> list[Process]:
    """Those that were told, if any but `ranks` was, which only waits for its ranks: then none of them catches it."""
    return told if any(not is_ranks(words_of(pid)) for pid, _ in told) else []


def passed_by(root: int) -> list[int]:
    """Catchers of SIGTERM below another one that has started them and passes no signals on."""
    found, todo = [], [(pid, False) for pid in children(root)]
    while todo:
        pid, is_below = todo.pop(0)
        has_handler, words = catches(pid, signal.SIGTERM), words_of(pid)
        if has_handler and is_below:
            found.append(pid)
        if not _is_one_of(FORWARDERS, words):
            here = has_handler or is_below
            # A forked process has its parent's command line, and the handler of it.
            todo += [(child, here and words_of(child) != words) for child in children(pid)]
    return found


def _heirs(pid: int) -> list[int]:
    """Processes below one that it has forked and that have not become another program: they have its handlers."""
    words, found, todo = words_of(pid), list[int](), children(pid)
    while todo:
        child = todo.pop()
        if words_of(child) == words:
            found.append(child)
            todo += children(child)
    return found


def _is_one_of(programs: frozenset[str], words: list[bytes]) -> bool:
    """Whether a command line is that of one of these programs."""
    return any(os.path.basename(os.fsdecode(word)) in programs for word in words[:WORDS_MAX])


def is_ranks(words: list[bytes]) -> bool:
    """Whether a command line is that of our program that starts a process for each GPU."""
    return any(word.endswith(b"/ranks.pyc") for word in words[:WORDS_MAX])


def _is_shell(pid: int) -> bool:
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")) in SHELLS
    except OSError:
        return False


def _is_filter(pid: int) -> bool:
    """Whether it reads from a pipe; a shell that does is a script, which would go on to its next command."""
    try:
        return os.readlink(f"/proc/{pid}/fd/0").startswith("pipe:") and not _is_shell(pid)
    except OSError:
        return False


def words_of(pid: int) -> list[bytes]:
    """The command line of a process; nothing when it is gone."""
    try:
        return read_file(f"/proc/{pid}/cmdline").split(b"\0")
    except OSError:
        return []


def identify(pid: int) -> Process:
    """The process under a pid now."""
    return pid, read_stat(pid)[1]


def _lives(process: Process) -> bool:
    state, start_ticks = read_stat(process[0])
    return start_ticks == process[1] and state not in {b"", b"Z", b"X", b"x"}
