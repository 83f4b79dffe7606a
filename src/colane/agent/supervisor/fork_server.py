"""Forks a supervisor for each job directory that the agent names: an interpreter started for each costs far more.

    python -I -S fork_server.py      with the other end of the agent's SOCK_SEQPACKET socket as standard input

A message is a job's directory, with two descriptors: one that its supervisor closes once the job runs or cannot, and
the file that takes what the supervisor complains about. Nothing is answered: the caller waits for the first to close,
which it does, too, when no supervisor could be forked or there is no server to fork one.

* It ends when the agent has closed its end or is gone, after what was asked before; supervisors go on without it.
* One thread, and all modules are imported before the first fork, so that a fork is a whole, small process.
* Supervisors are not waited for: the kernel does that, as SIGCHLD is ignored here (wait(2)).
"""

# ruff: noqa: PTH120 - as `shim`, a copy that runs beside those of its parts

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]
import gc
import os
import socket
import sys

if __name__ == "__main__":  # wherever colane is installed: see `programs`
    sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))

from colane.agent.supervisor.shim import supervise

PATH_BYTES_MAX = 4096


def serve(asked: socket.socket) -> None:
    """Fork a supervisor for each message, until the other end is closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        directory, fds, _, _ = socket.recv_fds(asked, PATH_BYTES_MAX, 2)
        if not directory:
            return
        for fd in fds:  # Python 3.11 does not pass MSG_CMSG_CLOEXEC on
            os.set_inheritable(fd, False)
        fork(asked, directory, *fds)
        for fd in fds:
            os.close(fd)


def fork(asked: socket.socket, directory: bytes, ready_fd: int, errors_fd: int) -> None:
    """Start one; where that is not possible it is complained about."""
    try:
        if os.fork():
            return
    except OSError as error:
        os.write(errors_fd, f"no process could be started: {error.strerror}\n".encode())
        return
    try:
        asked.close()
        os.setsid()
        os.dup2(errors_fd, 2)
        os.chdir(directory)
        supervise(ready_fd)
    except BaseException:  # noqa: BLE001 - this process must not go on in the loop above
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(0)


def main() -> None:
    """Take the socket from standard input, which supervisors and jobs must not have."""
    asked = socket.socket(fileno=os.dup(0))
    os.set_inheritable(asked.fileno(), False)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    gc.freeze()
    serve(asked)


if __name__ == "__main__":
    main()
