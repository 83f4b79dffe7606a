"""What a job cannot get out of: a cgroup (version 2) of its own, where this agent may make one.

In it a job opens no GPU but its own, has at most the memory that it booked and a bounded number of processes. What the
machine does not permit is said in `nodes`; the rest holds all the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from colane.agent.files.jobdir import JobDir, read_json
from colane.agent.reconcile import DesiredJob, Key
from colane.agent.supervisor.command import Command
from colane.devices.device_filter import DeviceNumber, reject
from colane.devices.makers import Files
from colane.model.hardware import Gpu

OWN, MOUNTS = Path("/proc/self/cgroup"), Path("/proc/self/mounts")
ON_HOST: Final = "host.json"  # in a job's directory while memory of its GPU is on the host, or may be (`host_memory`)
PROCESSES_MAX: Final = 32_768  # processes and threads of a job: what forks without end leaves the node to others
NO_CGROUP: Final = "this agent may make no cgroup (version 2)"
LIMITS: Final = "host memory of jobs that book some is {how}: one that uses more ends as out of memory"
BY_KERNEL, BY_LOOKING = "bounded by the kernel (cgroup)", "watched, as no cgroup bounds it"  # how
UNGUARDED: Final = "jobs could reach for each other's GPUs: {problem}"

log = logging.getLogger(__name__)


def own_cgroup(own: str, mounts: str) -> Path | None:
    """Return the directory of this process's cgroup of version 2; None where there is none.

    Args:
        own: Text of `/proc/self/cgroup`.
        mounts: Text of `/proc/self/mounts`.
    """
    places = [line.split()[1] for line in mounts.splitlines() if line.split()[2:3] == ["cgroup2"]]
    paths = [line.removeprefix("0::") for line in own.splitlines() if line.startswith("0::")]
    return Path(places[0] + paths[0].rstrip("/")) if places and paths else None


class Cages:
    """The cgroups of an agent's jobs."""

    def __init__(self, agent_id: str, own: Path | None, files: Files) -> None:
        """Make the directory they lie in, where there is anything to bound.

        Args:
            agent_id: Tells the agents of a machine apart.
            own: This process's own cgroup, None where it has none.
            files: The device files of GPUs.
        """
        self._root = None if own is None else own / f"colane-{agent_id[:12]}"
        self._files = dict(files)
        self._can_bound_memory = False
        self._limits_bytes: dict[Key, int] = {}
        self._problem = NO_CGROUP if own is None else ""
        try:
            self._open()
        except OSError as error:
            self._root, self._problem = None, f"{NO_CGROUP}: {error.strerror}"

    @classmethod
    def of_machine(cls, agent_id: str, files: Files) -> Cages:
        """Those of an agent on this machine, with these files of its GPUs."""
        try:
            own = own_cgroup(OWN.read_text(encoding="utf-8"), MOUNTS.read_text(encoding="utf-8"))
        except OSError:
            own = None
        return cls(agent_id, own, files)

    def _open(self) -> None:
        if self._root is None:
            return
        here = {*(self._root.parent / "cgroup.subtree_control").read_text(encoding="utf-8").split()}
        self._can_bound_memory = "memory" in here
        if not (self._files or self._can_bound_memory):
            return
        self._root.mkdir(exist_ok=True)
        for left in self._root.iterdir():
            if left.is_dir():
                _remove(left)
        wanted = " ".join(f"+{controller}" for controller in ("memory", "pids") if controller in here)
        if wanted:
            (self._root / "cgroup.subtree_control").write_text(wanted, encoding="utf-8")

    def messages(self) -> list[str]:
        """What is to be said of this node: nothing where it has no GPU that jobs could reach for."""
        return [UNGUARDED.format(problem=self._problem)] if self._problem and len(self._files) > 1 else []

    def memory_message(self) -> str:
        """How the memory that jobs book is bounded here."""
        return LIMITS.format(how=BY_KERNEL if self._root is not None and self._can_bound_memory else BY_LOOKING)

    def around(self, key: Key, command: Command, gpus: Sequence[Gpu]) -> Command:
        """Return the command as it runs in a cgroup of its own; as it is where nothing is to be bounded."""
        denied = self._denied(gpus)
        if self._root is None or not (denied or (self._can_bound_memory and command.memory_limit_bytes)):
            return command
        cage = self._root / str(key)
        try:
            cage.mkdir(exist_ok=True)
            limits = {"pids.max": PROCESSES_MAX, "memory.max": command.memory_limit_bytes}
            for name, limit in limits.items():
                _write(cage, name, limit)
            if denied:
                reject(cage, denied)
        except OSError as error:
            self._problem = f"{error.strerror} (cgroup {cage})"
            log.warning("job %s runs without a cgroup of its own: %s", key, self._problem)
            return command
        return replace(command, cgroup=str(cage))

    def follow(self, jobs: Iterable[DesiredJob], find: Callable[[Key], JobDir]) -> None:
        """Bound the host memory of jobs that run by what they book now.

        A job that goes on as fewer ranks books less once the processes of the others are gone, so none is killed
        while it exits. What is in force is written down, last: an agent that dies before does it again.

        Args:
            jobs: As the scheduler wants them.
            find: Gives a job's directory.
        """
        bounded = {job.key: job.memory_limit_bytes for job in jobs if job.run and job.memory_limit_bytes}
        self._limits_bytes = {key: had for key, had in self._limits_bytes.items() if key in bounded}
        for key, limit_bytes in bounded.items():
            if self._limits_bytes.get(key) != limit_bytes:
                self._limit(find(key), limit_bytes)

    def _limit(self, job: JobDir, limit_bytes: int) -> None:
        try:
            in_force_bytes = limit_bytes + moved_bytes(job)
            if job.memory_limit_bytes() != in_force_bytes:
                bound_memory(job, in_force_bytes)
        except FileNotFoundError:  # it is not prepared yet
            return
        except OSError as error:
            log.warning("the host memory of job %s is bounded in the next round: %s", job.key, error)
            return
        self._limits_bytes[job.key] = limit_bytes

    def _denied(self, gpus: Sequence[Gpu]) -> list[DeviceNumber]:
        """All GPUs but these; none where the driver's number of one of them is not known."""
        granted = {gpu.uuid for gpu in gpus if not gpu.is_cpu_device}
        if not granted <= self._files.keys():
            self._problem = "the driver does not tell which device file is which GPU's"
            return []
        own = {file for uuid in granted for file in self._files[uuid]}
        return sorted({file for files in self._files.values() for file in files} - own)

    def close(self) -> None:
        """Leave nothing where no job is left."""
        if self._root is not None:
            _remove(self._root)

    def remove(self, key: Key) -> None:
        """Take the cgroup of a job that has ended away."""
        if self._root is not None:
            _remove(self._root / str(key))


def moved_bytes(job: JobDir) -> int:
    """What a job holds of the host's memory beside its own: what was moved there from its GPU."""
    record = read_json(job.path / ON_HOST)
    return int(record["memory_bytes"]) if record is not None else 0


def bound_memory(job: JobDir, limit_bytes: int) -> None:
    """Bound the host memory of a job that runs; what is in force is written down, last.

    Raises OSError: it cannot be bounded.
    """
    cgroup = job.command().cgroup
    if cgroup:
        _write(Path(cgroup), "memory.max", limit_bytes)
    job.limit_memory(limit_bytes)


def _write(cage: Path, name: str, limit: int) -> None:
    if limit and (cage / name).exists():
        (cage / name).write_text(str(limit), encoding="utf-8")


def _remove(cage: Path) -> None:
    with suppress(OSError):  # a process is in it still, or it was never made
        cage.rmdir()
