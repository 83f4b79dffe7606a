"""Runs one job's command, outlives the agent, and leaves behind how the command ended and what it printed.

One process for each attempt of a job, from its start to its end, forked by the agent's `fork_server`. Its rules:

* Standard library and its parts (`shim_files`, `shim_system`) alone: an upgrade under a running agent changes nothing.
* It claims the directory by linking a complete file to one name, which succeeds once. A second shim goes
  away, so that a launch repeated after a crash never runs a job twice.
* It is the subreaper (prctl(2)) of everything the job starts: daemons come back to it, so no child left means
  that nothing of the job is left. The job's first process dies with it (PR_SET_PDEATHSIG).
* SIGTERM orders it to end the job, in the one way there is: `shim_ending`. Where the agent has not said why (`stop`),
  the order is from outside of Colane, as at a machine's shutdown. Who sends it then sends it to each process in some
  order (Slurm does, to a pilot), so a job that failed is told of only after a moment in which the shim was not told.
* It halts the job when the agent's lease has run out, as another attempt may be started elsewhere then. The job goes on
  once the lease is renewed. An order to end meanwhile kills it where it stands, and so does a halt that lasts too long.
  What cannot be halted (`shim_halt.runs_elsewhere`) ends within the lease. One that spans nodes is halted, too, while
  the agent says so (`halt`), and it is written by which such order it stands (`stands`).
* It keeps the agent's user when the job is another user's: the job can neither end it nor write its records.
* It kills the job when its processes together use more host memory than it may: its booking is what others count on.
* It writes `exit` only when the whole tree is gone, so its sight means that the devices are free.

Files: reads `command`, and `memory_limit`, `halt`, `stop` and `asked.json` while it runs; writes `claim`, `started`,
`stands`, `log.OFFSET` (segments of the output, named by where in the output they begin) and `exit`.
"""

# ruff: noqa: PTH110, S606 - pathlib and eager imports slow every start

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import json
import os
import select
import socket
import time
import warnings  # noqa: F401 - for execvpe: a job's user may not be able to read this Python's library

from colane.agent.supervisor.shim_copy import OutputCopy, hand_over, open_output, taken_over
from colane.agent.supervisor.shim_ending import ROUND_S, Ending
from colane.agent.supervisor.shim_files import (
    ASKED,
    COMMAND,
    HALTED_MAX_S,
    LEASE_PATH,
    STANDS,
    STARTED,
    STOP,
    CappedLog,
    claim,
    halt_at_s,
    publish,
    publish_exit,
    read_lease,
    read_memory_limit,
    read_object,
    read_order,
    reserve,
    since_boot_s,
)
from colane.agent.supervisor.shim_halt import Halt, runs_elsewhere
from colane.agent.supervisor.shim_mps import MpsClients
from colane.agent.supervisor.shim_system import (
    PR_SET_CHILD_SUBREAPER,
    READ_BYTES,
    become_user,
    before_killing,
    count_oom_kills,
    descendants,
    die_with,
    prctl,
    prefer_memory,
    read_file,
    read_start_ticks,
    restore_signals,
    send,
    used_memory_bytes,
)
from colane.agent.supervisor.shim_terminal import LEFT, TERMINAL_LOOK_MS, Terminal, open_terminal

NO_WORD = "the scheduler was not heard of for too long"
NOT_ALL = "another node of it was not heard of for too long"

FROM_OUTSIDE = "its supervisor got SIGTERM from outside of Colane, as at the shutdown of a machine"

STOPPED = "stopped"
"""The outcome of an attempt that was ended on an order which its scheduler had not given."""

SIGNAL_ENV, LEAD_ENV = "COLANE_CHECKPOINT_SIGNAL", "COLANE_CHECKPOINT_LEAD_S"
TO_SHELL_ENV = "COLANE_CHECKPOINT_TO_SHELL"
"""In the job's environment: the signal that asks it to save its state, and how long that may take."""

ASKED_SINCE_S = 30.0
"""A job that was asked within its lead and so long is not asked again by the end of the same asking."""

LEFTOVER_GRACE_S = 1.0
"""What a job leaves running when its main process ends has this long to end itself: its result is known, and
its devices wait."""

LEASE_ROUND_MS = 20
"""A lease that runs out now is looked at again so soon."""

ENDLESS_S = float("inf")
LEASE_LOOK_MS = 1000
"""A lease is looked at this often: an endless one may be bounded any time, and a machine that has slept has lost time
by the lease's clock and none by that of its timers."""

HALT_LOOK_MS = 100
"""How often the lease of a halted job is looked at, and whether any of its processes was woken."""

OTHERS_TOLD_MS = 250
"""After the first process of a job that is told to end, the shim above it may be told so late."""

MEMORY_LOOK_MS = 200
"""How often the memory of a bounded job is looked at: some 20 microseconds for each of its processes."""

DETAIL_CHARS = 1000


class ShimCommand:
    """What to run, read from what `colane.agent.supervisor.command.Command` wrote: the same fields."""

    def __init__(self, data: bytes) -> None:
        fields = [os.fsdecode(field) for field in data.split(b"\0")[:-1]]
        if fields[5] not in {"", "1"}:  # the most that is kept of a log: an agent of 0.2.0 has written this
            fields[2:2] = [""] * 4
        workdir, cgroup, output, adds, put_in, terminal, cores, nodes, run_as, cap, grace, limit, count, *rest = fields
        self.argv = rest[: int(count)]
        self.workdir, self.cgroup = workdir, cgroup
        self.output, self.adds, self.input, self.has_terminal = output, bool(adds), put_in, bool(terminal)
        self.env = dict(variable.split("=", 1) for variable in rest[int(count) :])
        self.cores = tuple(int(core) for core in cores.split(",") if core)
        self.memory_nodes = tuple(int(node) for node in nodes.split(",") if node)
        self.run_as = tuple(int(number) for number in run_as.split(",") if number)
        self.log_cap_bytes = int(cap)
        self.grace_s = float(grace)
        self.memory_limit_bytes = int(limit)


class Supervisor:
    """One job: its processes, its output, its end."""

    def __init__(self, command: ShimCommand, wake_fd: int) -> None:
        self._command = command
        before_killing(MpsClients(command.env, command.run_as).let_go)
        self._wake_fd = wake_fd
        self._log = CappedLog(command.log_cap_bytes)
        self._poll = select.poll()
        self._poll.register(wake_fd, select.POLLIN)
        self._output_fd = -1
        self._terminal: Terminal | None = None
        self._copy: OutputCopy | None = None
        self._pid = 0
        self._status: int | None = None
        self._problem = ""
        self._stopped = False
        self._lease = read_lease(LEASE_PATH)
        self._no_word = False
        self._halt = Halt()
        self._halted_at_s = 0.0
        self._stands_by = ""
        self._is_beyond_stop = False
        self._lease_look_s = 0.0
        self._ending: Ending | None = None
        self._ordered: dict[str, object] = {}
        self._start_s = self._end_s = time.time()
        self._steady_s = time.monotonic()
        self._cpu_s = 0.0
        self._rss_bytes_max = 0
        self._oom_kills = count_oom_kills()
        self._outgrown = ""
        self._limit_bytes = command.memory_limit_bytes
        self._next_look_s = 0.0

    def start(self) -> bool:
        """Start the command; False when that is not possible, and then `record` says why."""
        if self._lease is not None and halt_at_s(self._lease) <= since_boot_s():
            self._problem, self._no_word = NO_WORD, True
            return False
        self._output_fd, output = open_terminal(self._command.run_as) if self._command.has_terminal else os.pipe()
        os.set_blocking(self._output_fd, False)
        if self._command.has_terminal:  # it hears before it is said that the job runs
            self._terminal = Terminal(self._output_fd)
        trouble, trouble_end = os.pipe()
        copy, copy_end = socket.socketpair()
        self._start_s, self._steady_s = time.time(), time.monotonic()
        supervisor_pid = os.getpid()
        try:
            self._pid = os.fork()
        except OSError as error:
            self._problem = f"no process could be started: {error.strerror}"
            return False
        if self._pid == 0:
            become(self._command, output, copy_end, trouble_end, supervisor_pid)
        os.close(output)
        os.close(trouble_end)
        copy_end.close()
        self._problem = self._wait_for_start(trouble).decode(errors="replace")
        copy_fd = taken_over(copy)
        if copy_fd >= 0:
            self._copy = OutputCopy(copy_fd, self._command.output, self._command.run_as)
        if not self._problem:
            self._publish_start()
        return not self._problem

    def _wait_for_start(self, trouble_fd: int) -> bytes:
        """Return what kept the command from starting, once it has started or cannot; close the descriptor.

        The job's directory, or a file it names, may be on a file system that hangs, or be a pipe without a writer: a
        job that is to end meanwhile has nothing to save, and is killed.
        """
        os.set_blocking(trouble_fd, False)
        self._poll.register(trouble_fd, select.POLLIN)
        parts = [b""]
        while True:
            for fd, _ in self._poll.poll(self._timeout_ms()):
                if fd != trouble_fd:
                    self._apply()
                elif part := os.read(trouble_fd, READ_BYTES):
                    parts.append(part)
                else:
                    self._poll.unregister(trouble_fd)
                    os.close(trouble_fd)
                    return b"".join(parts)
            self._apply_lease()
            if self._ending is not None:
                send(self._pid, signal.SIGKILL)

    def run(self) -> None:
        """Return when no process of the job is left."""
        self._poll.register(self._output_fd, select.POLLIN)
        if self._terminal is not None:
            self._terminal.listen(self._poll)
        while self._reap():
            self._keep_pace()
            self._apply_lease()
            self._apply_memory()
            if self._ending is not None and not self._halt.is_on:
                self._ending.look(time.monotonic())
            self._look_around()
        while self._pump():
            pass
        self._hear_of_others()
        if self._copy is not None:
            self._copy.close()
            self._say(self._copy.problem())
        self._log.close()

    def _look_around(self) -> None:
        """Wait for the next thing to happen, or to be looked at, and see to it."""
        if self._terminal is not None:
            self._terminal.type()
            if self._terminal.is_left(time.monotonic()):
                self._say(LEFT)
                self._hang_up()
            elif self._ending is not None and descendants() == [self._pid]:
                send(self._pid, signal.SIGHUP)  # an interactive shell takes no notice of SIGTERM
        for fd, _ in self._poll.poll(self._timeout_ms()):
            if fd == self._output_fd:
                self._pump()
            elif fd == self._wake_fd:
                self._hear()
            elif self._terminal is not None:
                self._terminal.hear()

    def _hear_of_others(self) -> None:
        """A job that failed may be but the first of all on its machine, or in its pilot, that get a SIGTERM."""
        until_s = time.monotonic() + OTHERS_TOLD_MS / 1000
        while self._status and not self._stopped and (left_s := until_s - time.monotonic()) > 0:
            for _ in self._poll.poll(left_s * 1000):
                self._apply()

    def record(self) -> dict[str, object]:
        """How it ended."""
        status = self._status
        signalled = status is not None and os.WIFSIGNALED(status)
        exited = status is not None and not signalled and not self._problem
        return {
            "outcome": self._outcome(signalled=signalled),
            "exit_code": os.WEXITSTATUS(status) if exited and status is not None else None,
            "signal": os.WTERMSIG(status) if signalled and status is not None else None,
            "detail": self._detail()[:DETAIL_CHARS],
            "start_s": self._start_s,
            "end_s": self._end_s if status is not None else self._now_s(),
            "cpu_s": self._cpu_s,
            "rss_bytes_max": self._rss_bytes_max,
            "oom_kills": count_oom_kills() - self._oom_kills,
            "stopped": self._stopped,
            "log_bytes": self._log.seen_bytes,
            "log_truncated": self._log.truncated,
        }

    def _outcome(self, *, signalled: bool) -> str:
        if self._no_word:
            return "lease-run-out"
        if self._outgrown:
            return "out-of-memory"
        if self._problem:
            return "not-started"
        return str(self._ordered.get("outcome") or ("signalled" if signalled else "exited"))

    def _detail(self) -> str:
        """What is to be said of its end."""
        if self._no_word:
            return NO_WORD
        return self._outgrown or self._problem or str(self._ordered.get("cause", ""))

    def _apply_lease(self) -> None:
        """Halt the job while the lease is not renewed; one that was there and is gone counts as not renewed."""
        now_s = since_boot_s()
        if self._lease is None or self._no_word or now_s < self._lease_look_s:
            return
        self._lease = read_lease(LEASE_PATH) or self._lease
        order = read_order()
        stop_s, halt_s = self._lease[0], halt_at_s(self._lease)
        self._lease_look_s = now_s + (HALT_LOOK_MS if order or halt_s <= now_s else LEASE_LOOK_MS) / 1000
        for due_s in (stop_s, halt_s):
            if now_s < due_s < self._lease_look_s:
                self._lease_look_s = due_s
        was_beyond_stop, self._is_beyond_stop = self._is_beyond_stop, stop_s <= now_s
        is_asked_now = self._is_beyond_stop and not was_beyond_stop and self._status is None and not self._stopped
        if is_asked_now and runs_elsewhere():
            self._end_within_lease(now_s)
        elif now_s < halt_s:
            self._stand(order) if order else self._go_on()
        elif now_s < halt_s + HALTED_MAX_S:
            self._stand(order)
        else:
            self._stopped = self._no_word = self._status is None
            self._kill_halted()

    def _end_within_lease(self, now_s: float) -> None:
        """Nothing may be left at the end of the lease: what there is of it is for saving, and half of that to ask."""
        assert self._lease is not None  # noqa: S101 - it has run out
        self._stopped = self._no_word = True
        self._say(NO_WORD)
        left_s = max(self._lease[1] - now_s, 0.0)
        self._end(left_s, lead_max_s=left_s / 2, within_s=left_s)

    def _stand(self, order: str) -> None:
        if not self._halt.is_on:
            self._halted_at_s = time.monotonic()
        self._halt.keep()
        if order and order != self._stands_by:
            try:
                publish(STANDS, order, durable=False)
                self._stands_by = order
            except OSError:  # the disk is full: that it stands is told later
                return

    def _go_on(self) -> None:
        if not self._halt.is_on:
            return
        lasted_s = time.monotonic() - self._halted_at_s
        self._halt.lift()
        if self._ending is not None:
            self._ending.put_off(lasted_s)
        self._say(f"{NO_WORD if not self._stands_by else NOT_ALL}: halted for {lasted_s:.1f} s, and goes on")
        self._stands_by = ""

    def _kill_halted(self) -> None:
        """Let it end without another moment in which it runs."""
        self._say(f"{NO_WORD}: killed while it was halted")
        self._halt.kill()
        now_s = time.monotonic()
        self._ending = self._ending or Ending(0.0, now_s)
        self._ending.kill(now_s)
        self._ending.look(now_s)

    def _apply_memory(self) -> None:
        """Kill the job when it uses more memory than it may, as the kernel would."""
        now_s = time.monotonic()
        if not self._limit_bytes or self._stopped or self._outgrown or now_s < self._next_look_s:
            return
        self._next_look_s = now_s + MEMORY_LOOK_MS / 1000
        self._limit_bytes = read_memory_limit(self._limit_bytes)
        used_bytes = used_memory_bytes(self._limit_bytes)
        if used_bytes > self._limit_bytes:
            used, asked = used_bytes / 1e6, self._limit_bytes / 1e6
            self._outgrown = f"used {used:.0f} MB of host memory and had asked for {asked:.0f} MB (--host-memory)"
            self._ending = self._ending or Ending(0.0, now_s)
            self._ending.kill(now_s)

    def _now_s(self) -> float:
        """Unix time of the start and what has passed since: setting the clock must not change how long it ran."""
        return self._start_s + time.monotonic() - self._steady_s

    def _publish_start(self) -> None:
        text = f'{{"pid": {self._pid}, "start_ticks": {read_start_ticks(self._pid)}, "start_s": {self._start_s!r}, '
        text += '"halts": true, "halts_told": true}'
        try:
            publish(STARTED, text, durable=False)
        except OSError:  # the disk is full: the job runs all the same, only its pid is not shown
            return

    def _reap(self) -> bool:
        """Collect what has ended; False when nothing of the job is left."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            self._cpu_s += usage.ru_utime + usage.ru_stime
            self._rss_bytes_max = max(self._rss_bytes_max, usage.ru_maxrss * 1024)
            if pid == self._pid:
                self._status, self._end_s = status, self._now_s()
                if self._ending is None:
                    self._ending = Ending(LEFTOVER_GRACE_S, time.monotonic())

    def _hear(self) -> None:
        """Act on signals; what has ended by now had ended before any order to end."""
        self._reap()
        self._apply()

    def _apply(self) -> None:
        """Read which signals came; that a child ended needs no answer here, the loop looks anyway."""
        if signal.SIGTERM not in os.read(self._wake_fd, 512):
            return
        self._lease_look_s = 0.0
        self._apply_lease()  # an agent renews it before it orders an end that leaves time to save
        if self._stopped and not self._halt.is_on:
            return
        order = read_object(STOP) or {"cause": FROM_OUTSIDE, "outcome": STOPPED}
        if self._has_ended_first(order):
            if self._halt.is_on:
                self._kill_halted()
            return  # what it has left is ending already
        self._stopped, self._ordered = True, order
        self._say(str(order.get("cause", "")))
        if self._halt.is_on:
            self._kill_halted()
        else:
            self._end(self._command.grace_s)

    def _has_ended_first(self, order: dict[str, object]) -> bool:
        """Whether the main process had ended before an order; one that failed may have died of what the order is for.

        So it is where a machine or an agent ends with all that it runs: then the order has an outcome.
        """
        return self._status is not None and (self._status == 0 or not order.get("outcome"))

    def _end(self, grace_s: float, lead_max_s: float = ENDLESS_S, within_s: float = ENDLESS_S) -> None:
        """End the job, unless what its main process has left is ending already."""
        if self._ending is not None:
            return
        now_s, asked = time.monotonic(), read_object(ASKED)
        name, lead_s = self._contract()
        self._ending = Ending(grace_s, now_s, now_s + within_s)
        at_s, told = asked.get("at_s"), asked.get("told")
        is_asked = isinstance(at_s, float) and time.time() < at_s + lead_s + ASKED_SINCE_S
        if is_asked and asked.get("signal") == "SIGTERM" and isinstance(told, list):
            self._ending.has_had([(int(pid), int(ticks)) for pid, ticks in told])
        elif name and not is_asked:
            lead_s = min(lead_s, lead_max_s)
            to_shell = TO_SHELL_ENV in self._command.env
            self._ending.ask(int(getattr(signal, name)), lead_s, now_s, to_shell=to_shell)
            if self._ending.told:
                self._say(f"{name} asks it to save its state within {lead_s:g} s")

    def _contract(self) -> tuple[str, float]:
        """The signal that asks the job to save its state, empty for none, and how long that may take."""
        env, order = self._command.env, self._ordered
        name = str(order.get("signal") or env.get(SIGNAL_ENV, ""))
        lead = str(order.get("lead_s") or env.get(LEAD_ENV, ""))
        try:
            return name if hasattr(signal, name) else "", float(lead)
        except ValueError:
            return "", 0.0

    def _say(self, cause: str) -> None:
        """Tell the job's owner, in its log."""
        if cause:
            self._log.write(f"colane: {cause}\n".encode(errors="replace"))

    def _keep_pace(self) -> None:
        """Read no output while its file does not take what was read: the job waits for it, as for any file."""
        if self._copy is None:
            return
        self._say(self._copy.problem())
        if self._output_fd >= 0:
            self._poll.modify(self._output_fd, 0 if self._copy.is_behind else select.POLLIN)

    def _timeout_ms(self) -> float | None:
        if self._ending is not None or (self._copy is not None and self._copy.is_behind):
            return ROUND_S * 1000
        bound_ms: float | None = MEMORY_LOOK_MS if self._command.memory_limit_bytes else None
        if self._terminal is not None:
            bound_ms = min(bound_ms or TERMINAL_LOOK_MS, self._terminal.look_ms)
        if self._lease is None:
            return bound_ms
        lease_ms = max((self._lease_look_s - since_boot_s()) * 1000, LEASE_ROUND_MS)
        return lease_ms if bound_ms is None else min(bound_ms, lease_ms)

    def _pump(self) -> bool:
        """Move output to the log; False when there is none now."""
        try:
            data = os.read(self._output_fd, READ_BYTES) if self._output_fd >= 0 else b""
        except BlockingIOError:
            return False
        except OSError:  # of a terminal that none of its processes has open any more
            data = b""
        if data:
            self._log.write(data)
            if self._copy is not None:
                self._copy.write(data)
        elif self._output_fd >= 0:
            self._hang_up()
        return bool(data)

    def _hang_up(self) -> None:
        """Read no more output; who has a terminal is told so by the kernel, by SIGHUP."""
        self._poll.unregister(self._output_fd)
        os.close(self._output_fd)
        self._output_fd = -1
        if self._terminal is not None:
            self._terminal.close(self._poll)
            self._terminal = None


def become(command: ShimCommand, output_fd: int, copy: socket.socket, trouble_fd: int, supervisor_pid: int) -> None:
    """Turn this freshly forked process into the job; what prevents it goes to `trouble_fd`."""
    what = "process"
    try:
        die_with(supervisor_pid)
        os.setsid()
        restore_signals()
        what = f"cgroup {command.cgroup}"
        if command.cgroup:
            join_cgroup(command.cgroup)
        what = f"cores {','.join(map(str, command.cores))}"
        if command.cores:
            os.sched_setaffinity(0, command.cores)
        prefer_memory(command.memory_nodes)
        if command.run_as:
            what = f"user {command.run_as[0]}"
            become_user(*command.run_as)
            die_with(supervisor_pid)  # the kernel forgot it with the change of user
        what = f"working directory {command.workdir!r}"
        os.chdir(command.workdir)
        if command.output:
            what = f"output {command.output!r}"
            hand_over(copy, open_output(command.output, adds=command.adds))
        if command.has_terminal:
            what = "terminal"
            input_fd = output_fd
            os.close(os.open(os.ttyname(output_fd), os.O_RDWR))  # it is this session's from now on
        else:
            what = f"input {command.input!r}"
            input_fd = os.open(command.input or os.devnull, os.O_RDONLY | os.O_NOCTTY)
        what = f"command {command.argv[0]!r}"
        for fd, target in ((input_fd, 0), (output_fd, 1), (output_fd, 2)):
            os.dup2(fd, target)
        os.execvpe(command.argv[0], command.argv, command.env)
    except (OSError, ValueError) as error:
        os.write(trouble_fd, f"{what}: {explain(error, command)}".encode(errors="replace"))
    finally:
        os._exit(127)


def join_cgroup(path: str) -> None:
    """Put this process, and all that it starts, into a cgroup; while it may still."""
    fd = os.open(f"{path}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
    os.write(fd, b"0")
    os.close(fd)


def explain(error: OSError | ValueError, command: ShimCommand) -> str:
    """Say what is wrong; a missing interpreter reads like a missing file."""
    program = command.argv[0]
    if isinstance(error, FileNotFoundError) and "/" in program and os.path.exists(program):
        return f"{error.strerror}: the interpreter of its first line"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def catch_signals() -> int:
    """Turn SIGTERM and SIGCHLD into bytes of a pipe, and give its end to read."""
    wake_fd, signal_fd = os.pipe()
    os.set_blocking(wake_fd, False)
    os.set_blocking(signal_fd, False)
    signal.set_wakeup_fd(signal_fd, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    return wake_fd


def supervise(ready_fd: int) -> None:
    """Run the job of the current directory; close `ready_fd` once it runs, or with this process where it cannot."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    wake_fd = catch_signals()
    if not claim():
        return
    reserve()
    supervisor = Supervisor(ShimCommand(read_file(COMMAND)), wake_fd)
    started = supervisor.start()
    if started:
        os.close(ready_fd)
        supervisor.run()
    publish_exit(json.dumps(supervisor.record()), wake_fd)
