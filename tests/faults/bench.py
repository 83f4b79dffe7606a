"""What tests share that kill jobs, their supervisors, agent and scheduler at random while jobs come and go."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any, TypeVar

from colane.agent import processes
from colane.agent.files.jobdir import JobDir
from colane.api.jobs import JobObject

from .cluster import WAIT_MAX_S, Cluster

SEED = 20261122

BenchT = TypeVar("BenchT", bound="FaultBench")


class FaultBench:
    """A cluster, and the jobs it was given, which note what they do in a file for each attempt."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.random = cluster, Random(SEED)
        self.notes = cluster.folder / "notes"
        self.notes.mkdir()

    def submit(self, count: int, *words: object, **fields: Any) -> list[int]:
        """Submit equal jobs, started by a shell that knows `$COLANE_JOB_ID` and `$COLANE_ATTEMPT`."""
        first, *rest = [str(word) for word in words]
        job = {"command": ["sh", "-c", first, *rest], "workdir": "/", **fields}
        return [int(each) for each in self.cluster.client().submit_batch([job] * count)]

    def live(self) -> dict[int, JobObject]:
        """All jobs that have not ended."""
        return {int(job["id"]): job for job in self.cluster.client().live_jobs()}

    def records(self) -> dict[int, JobObject]:
        """All jobs that have ended; none is there twice."""
        ended = list(self.cluster.client().finished_jobs())
        records = {int(record["id"]): record for record in ended}
        assert len(records) == len(ended)
        return records

    def until(self, look: Callable[[], Any], what: str, *, every_s: float = 0.01) -> Any:
        """Look until there is something to see."""
        deadline_s = time.monotonic() + WAIT_MAX_S
        while not (seen := look()):
            assert time.monotonic() < deadline_s, f"waited in vain: {what}\n{self.cluster.logs()}\n{self.standing()}"
            select.select([], [], [], every_s)
        return seen

    def standing(self) -> str:
        """How all stand, for who must find out why nothing goes on."""
        client = self.cluster.client()
        jobs = [f"{job}: {one['state']}: {one['story'][-3:]}" for job, one in FaultBench.live(self).items()]
        return "\n".join([*jobs, str(client.node("node-1"))])

    def noted(self, job: int) -> dict[int, list[list[str]]]:
        """What a job noted, line by line, by attempt; a line that a kill cut off is left out."""
        paths = {int(path.name.partition("-")[2]): path for path in self.notes.glob(f"{job}-*")}
        return {
            number: [line.split() for line in paths[number].read_text().split("\n")[:-1]] for number in sorted(paths)
        }

    def jobdir(self, job: int, attempt: int) -> JobDir:
        """Where the agent keeps an attempt."""
        return JobDir(self.cluster.folder / "agent" / "jobs" / f"{job}-{attempt}")

    def restart(self, names: Sequence[str]) -> None:
        """Start again which of these are down."""
        for name in names:
            if name not in self.cluster.processes:
                self.cluster.start(name)

    def all_is_free(self) -> None:
        """No job holds a device any more."""
        node = self.cluster.client().node("node-1")
        assert (node["jobs"], node["messages"]) == ([], [])


def kill(one: processes.ProcessId) -> bool:
    """Kill a process; false where it is gone."""
    pidfd = processes.open_pidfd(one)
    if pidfd is None:
        return False
    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    os.close(pidfd)
    return True


@contextmanager
def benched(make: Callable[[Cluster], BenchT], cluster: Cluster) -> Iterator[BenchT]:
    """Have scheduler and agent run."""
    cluster.start("server")
    cluster.client()
    cluster.start("agent")
    yield make(cluster)
    cluster.close()
