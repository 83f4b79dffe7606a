"""Real processes of 0.2.0 with running jobs, upgraded to today's in both orders: every process of a job goes on."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import pytest

from colane.agent.launch.gang import find_port
from colane.agent.processes import ProcessId, identify
from colane.model.versions import own_version
from tests.versions.record import DEADLINE_S, OVER, SOURCES, Client, started

pytestmark = [pytest.mark.live, pytest.mark.faults]

RELEASED: Final = "792cf223"
"""The commit of 0.2.0 of which `0.2.0-792cf22.json` tells."""
COUNTING: Final = 'n=0; while :; do n=$((n + 1)); echo "$COLANE_ATTEMPT $$ $n" >>"$0-${NODE_RANK:-0}"; sleep 0.2; done'
JOBS: Final[dict[str, dict[str, Any]]] = {
    "plain": {},
    "gang": {"gpus": 3, "multi_node": True},
    "serves": {"kind": "inference", "gpus": 0, "cores": 0},
    "limited": {"time_limit": "1h", "retries": 2, "gpus": 0, "cores": 0},
}
GOING: Final = {"launching", "running-protected", "running"}
"""What counts no steps is taken to run a while after its launch."""
UNTOLD: Final = ""
"""Of an agent that was new before its scheduler, until it registers anew: that of 0.2.0 has not kept its version."""
STEPS: Final = {
    "scheduler first": ("server", "n1", "n2"),
    "agents first": ("n1", "n2", "server"),
    "one agent, scheduler, the other": ("n1", "server", "n2"),
}


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of 0.2.0."""
    if shutil.which("git") is None:
        pytest.skip("needs git, for the sources of 0.2.0")
    packed = subprocess.run(["git", "archive", RELEASED, "src"], cwd=SOURCES, capture_output=True, check=False)
    if packed.returncode != 0:
        pytest.skip("needs the history of the repository, for the sources of 0.2.0")
    place = tmp_path_factory.mktemp("released")
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
        archive.extractall(place, filter="data")
    return place


class Upgraded:
    """A scheduler and two agents, each of a version of its own."""

    def __init__(self, stack: ExitStack, root: Path, sources: Path) -> None:
        self._root, self._sources, self._stack = root, sources, stack
        self._port = find_port(frozenset())
        self._running = dict[str, ExitStack]()
        self.start("server")
        self.until((root / "server" / "token").exists, "the scheduler starts")
        self.client = Client(f"http://127.0.0.1:{self._port}", (root / "server" / "token").read_text().strip())
        for name in ("n1", "n2"):
            self.start(name)
        self.until(lambda: len(self.client.ask("GET", "/nodes")) == 2, "both agents register")

    def start(self, name: str) -> None:
        """Start one, of the version that is there now."""
        state, where = str(self._root / name), dict[str, str]()
        words = ["server", "--policy", "colane", "--port", str(self._port), "--state", state]
        if name != "server":
            words = ["agent", "--name", name, "--devices", "cpu:2:2GB", "--heartbeat", "0.2", "--state", state]
            token = (self._root / "server" / "token").read_text().strip()
            where = {"COLANE_URL": f"http://127.0.0.1:{self._port}", "COLANE_TOKEN": token}
        one = self._running[name] = self._stack.enter_context(ExitStack())
        one.enter_context(started(self._sources, self._root, *words, log=name, **where))

    def upgrade(self, name: str, sources: Path) -> None:
        """End one by order, and start it from other sources."""
        self._sources = sources
        self._running[name].close()
        self.start(name)

    def until(self, seen: Callable[[], Any], what: str) -> None:
        """Look until it is so."""
        deadline_s = time.monotonic() + DEADLINE_S
        while True:
            try:
                if seen():
                    return
            except OSError:
                pass
            told = {log.name: log.read_text()[-3000:] for log in self._root.glob("*.log")}
            assert time.monotonic() < deadline_s, f"{what}: {told}"
            time.sleep(0.1)


@pytest.fixture
def cluster(released: Path, tmp_path: Path) -> Iterator[Upgraded]:
    with ExitStack() as stack:
        yield Upgraded(stack, tmp_path, released)


def told(path: Path) -> list[list[int]]:
    """What a process of a job has written: its attempt, its number, and how far it was."""
    return [[int(word) for word in line.split()] for line in path.read_text().splitlines()]


def are_further(far: Mapping[Path, int]) -> bool:
    """Whether each process has made some steps more."""
    return all(told(path)[-1][2] > before + 2 for path, before in far.items())


@pytest.mark.parametrize("order", STEPS)
def test_every_process_of_a_job_goes_on_through_an_upgrade(cluster: Upgraded, tmp_path: Path, order: str) -> None:
    ask, env = cluster.client.ask, {"PATH": "/usr/bin:/bin"}
    ids = {
        name: ask("POST", "/job", {
            "name": name, "command": ["sh", "-c", COUNTING, str(tmp_path / name)], "workdir": "/", "env": env, **more,
        })["id"]
        for name, more in JOBS.items()
    }  # fmt: skip
    files = [tmp_path / f"{name}-{rank}" for name in JOBS for rank in range(2 if name == "gang" else 1)]
    cluster.until(lambda: all(path.exists() and told(path) for path in files), "all run")
    before: dict[Path, ProcessId | None] = {path: identify(told(path)[0][1]) for path in files}
    for name in STEPS[order]:
        cluster.upgrade(name, SOURCES)
        far = {path: told(path)[-1][2] for path in files}
        cluster.until(partial(are_further, far), "all go on")
    cluster.until(lambda: ask("GET", "/health")["status"] == "ok", "the scheduler is well")
    cluster.until(
        lambda: {node["agent_version"] for node in ask("GET", "/nodes")} <= {own_version(), UNTOLD}, "both are new"
    )
    assert {path: identify(told(path)[0][1]) for path in files} == before, "the same processes"
    for path in files:
        lines = told(path)
        assert [line[2] for line in lines] == list(range(1, len(lines) + 1)), "each step made once"
        assert {line[0] for line in lines} == {1}
    for name, one in ids.items():
        assert ask("GET", f"/job/{one}")["state"] in GOING, name
        ask("DELETE", f"/job/{one}")
        cluster.client.until(f"/job/{one}", "state", OVER)
        assert ask("GET", f"/job/{one}")["attempt"] == 1
    assert [identify(told(path)[0][1]) for path in files] == [None] * len(files)
    logs = "\n".join(log.read_text() for log in tmp_path.glob("*.log"))
    assert "Traceback" not in logs, logs
    assert "set aside" not in logs, logs
