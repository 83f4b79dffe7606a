"""Has MPS let a client go before it is killed.

A client that is killed while its kernels run leaves the server and all other clients in a state that NVIDIA calls
undefined; `terminate_client` ends its work first (NVIDIA's guide to MPS). Standard library alone: see `shim`.
"""

from __future__ import annotations

# ruff: noqa: S606 - what is run is named by us
import _signal as signal  # type: ignore[import-not-found]
import os
import select
from collections.abc import Mapping

from colane.agent.supervisor.shim_system import become_user, read_all

CONTROL = "nvidia-cuda-mps-control"
PIPE_ENV = "CUDA_MPS_PIPE_DIRECTORY"
ANSWER_MAX_MS = 2000
"""A daemon that does not answer within this is not asked again: a job must come to its end all the same."""


class MpsClients:
    """The processes of one job, as the control daemon knows them."""

    def __init__(self, env: Mapping[str, str], run_as: tuple[int, ...]) -> None:
        """Begin; nothing is asked for a job whose environment leads to no daemon."""
        self._pipe = env.get(PIPE_ENV, "")
        self._run_as = run_as
        self._had: set[int] = set()

    def let_go(self, pids: list[int]) -> None:
        """End the work of those of these that are clients of a server; each is asked for once."""
        fresh = set(pids) - self._had
        if not self._pipe or not fresh:
            return
        self._had |= fresh
        for server in self._ask("get_server_list"):
            for client in self._ask(f"get_client_list {server}"):
                if client in fresh:
                    self._ask(f"terminate_client {server} {client}")

    def _ask(self, question: str) -> list[int]:
        """Ask the daemon, as the user whose it is, and give the numbers it answers."""
        if not self._pipe:
            return []
        question_fd, question_end = os.pipe()
        answer_fd, answer_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            self._become_asker(question_fd, answer_end)
        os.close(answer_end)
        with os.fdopen(question_end, "wb") as file:  # it is there: the other end is still open
            file.write(f"{question}\n".encode())
        os.close(question_fd)
        poll, words = select.poll(), b""
        poll.register(answer_fd, select.POLLIN | select.POLLHUP)
        if poll.poll(ANSWER_MAX_MS):
            words = read_all(answer_fd)
        else:
            self._pipe = ""
            os.close(answer_fd)
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return [int(word) for word in words.split() if word.isdigit()]

    def _become_asker(self, question_fd: int, answer_fd: int) -> None:
        try:
            for fd, target in ((question_fd, 0), (answer_fd, 1), (answer_fd, 2)):
                os.dup2(fd, target)
            if self._run_as:
                become_user(*self._run_as)
            os.execvpe(CONTROL, [CONTROL], {**os.environ, PIPE_ENV: self._pipe})
        finally:
            os._exit(127)
