"""What a supervisor runs, as the agent writes it down; `shim.Command` reads it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Command:
    """What to run."""

    argv: tuple[str, ...]  # program and arguments
    workdir: str  # directory to run in
    env: Mapping[str, str]  # its whole environment
    cores: tuple[int, ...] = ()  # ids of the cores to run on; empty leaves them as they are
    log_cap_bytes: int = 64 * 2**20  # bytes of output kept
    grace_s: float = 10.0  # from SIGTERM to SIGKILL
    memory_nodes: tuple[int, ...] = ()  # NUMA nodes to take memory from first; empty leaves that to the kernel
    memory_limit_bytes: int = 0  # host memory that all its processes may use together; 0 does not bound them
    run_as: tuple[int, ...] = ()  # user id, group id and further groups of its processes; empty leaves them the agent's
    cgroup: str = ""  # directory of the cgroup that its processes are put into; empty leaves them in the agent's
    output: str = ""  # file that gets a copy of what it writes, from `workdir` where it is relative; empty for none
    adds: bool = False  # what is in that file stays
    input: str = ""  # file that it reads as its standard input; empty for nothing
    has_terminal: bool = False  # it reads from and writes to a terminal of its own, which `shim_terminal` keeps

    def encode(self) -> bytes:
        """Give it as fields with a NUL after each: the one byte that no argument or variable can hold.

        Raises ValueError: there is no program, or a NUL or what is no text in a field: no process can be given that.
        """
        if not self.argv:
            raise ValueError("the command is empty")
        places = (",".join(map(str, ids)) for ids in (self.cores, self.memory_nodes, self.run_as))
        numbers = (*places, str(self.log_cap_bytes), str(self.grace_s), str(self.memory_limit_bytes))
        variables = (f"{key}={value}" for key, value in self.env.items())
        files = (self.output, "1" if self.adds else "", self.input, "1" if self.has_terminal else "")
        fields = (self.workdir, self.cgroup, *files, *numbers, str(len(self.argv)), *self.argv, *variables)
        encoded = [os.fsencode(field) for field in fields]
        if any(b"\0" in field for field in encoded):
            raise ValueError("the command, its directory or its environment holds a NUL character")
        return b"".join(field + b"\0" for field in encoded)
