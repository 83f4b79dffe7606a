"""A Redis replica that lagged takes over: real servers, a scheduler, and an agent that knows more than the replica."""

from __future__ import annotations

import signal
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from colane.cli.app import run
from tests.faults.cluster import TOKEN
from tests.server.processes import Scheduler, scheduler
from tests.server.redis_server import RedisServer, redis_server
from tests.server.test_redis_store import free_port
from tests.server.test_standby import LEASE_S, agent, before, until

WAITS = "import os, time\nwhile not os.path.exists({!r}): time.sleep(0.05)"


@pytest.mark.live
def test_a_replica_that_lagged_is_led_on_only_once_it_is_adopted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    port, go = free_port(), tmp_path / "go"
    waits = {"command": [sys.executable, "-c", WAITS.format(str(go))]}
    with redis_server() as primary, redis_server() as replica, ExitStack() as stack:
        stack.callback(go.touch)
        way = primary.folder / "way"
        way.symlink_to(primary.socket)
        at = partial(scheduler, tmp_path / "a", token=TOKEN, port=port)
        at = partial(at, before=before(f"unix://{way}?name=lag", LEASE_S, standby=False))
        first = stack.enter_context(at())
        stack.enter_context(agent(first.url, tmp_path / "agent", devices=2))
        until(lambda: first.http.get("/nodes").json())
        kept = started(first, waits)
        parted(primary, replica)
        lost = started(first, waits)
        primary.kill()
        way.unlink()
        way.symlink_to(replica.socket)
        until(lambda: "the store has gone back from version" in first.http.get("/health").json().get("detail", ""))
        assert first.http.post("/job", json=waits).status_code == 503
        first.stop(signal.SIGKILL)

        again = stack.enter_context(at())
        until(lambda: again.http.get("/store/behind").json()["lost"])
        behind = again.http.get("/store/behind").json()
        assert (behind["nodes"], behind["jobs"]) == (["node-1"], [kept, lost])
        assert again.http.post("/job", json=waits).status_code == 503
        assert [job["id"] for job in again.http.get("/live_jobs").json()] == [kept]
        monkeypatch.setenv("COLANE_TOKEN", TOKEN)
        monkeypatch.setenv("COLANE_URL", again.url)
        assert run(["store", "adopt", "--lost", str(behind["lost"])]) == 0
        assert "the store is adopted without" in " ".join(capsys.readouterr().out.split())
        assert again.http.post("/job", json=waits).json() == {"id": lost}, "an id that the store never knew"
        former = tmp_path / "agent" / "former"
        until(lambda: sorted(each.name for each in former.glob("*")) == [f"{kept}-1", f"{lost}-1"])
        go.touch()
        for job in (kept, lost):
            until(lambda job=job: again.http.get(f"/job/{job}").json()["state"] == "succeeded")


def started(on: Scheduler, asked: dict[str, Any]) -> int:
    """Submit a job and wait until its process is there."""
    job: int = on.http.post("/job", json=asked).json()["id"]
    until(lambda: on.http.get(f"/job/{job}").json()["state"] == "launching")
    return job


def parted(primary: RedisServer, replica: RedisServer) -> None:
    """Let the replica have all that there is, and hear no more."""
    with primary.raw(decode_responses=True) as there, replica.raw(decode_responses=True) as here:
        port = free_port()
        there.config_set("port", port)
        here.replicaof("127.0.0.1", port)
        until(lambda: here.info("replication")["master_link_status"] == "up")
        written = there.info("replication")["master_repl_offset"]
        until(lambda: here.info("replication")["slave_repl_offset"] >= written)
        here.replicaof("NO", "ONE")
