"""Copies of all that a scheduler keeps: made while it runs, looked through, put back; jobs since then are not ours."""

from __future__ import annotations

import shutil
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from colane.server.store.sqlite import SqliteStore
from colane.server.store.store import META, NODES, Put, Transaction
from tests.cli.conftest import Colane, Said, Up, run_colane, start_up

pytestmark = pytest.mark.live


def by_command(copy: Path, state: Path) -> None:
    said = run_colane(["restore", str(copy), "--state", str(state), "--force"])
    assert (said.code, "put back" in said.out, "colane.db.replaced" in said.out) == (0, True, True), said.err


def by_hand(copy: Path, state: Path) -> None:
    for beside in ("-wal", "-shm"):
        (state / f"colane.db{beside}").unlink(missing_ok=True)
    shutil.copyfile(copy, state / "colane.db")


@pytest.mark.parametrize("put_back", [by_command, by_hand])
def test_a_job_of_an_id_that_is_given_again_runs_and_shows_its_own_output(
    tmp_path: Path, put_back: Callable[[Path, Path], None]
) -> None:
    state, copy = tmp_path / "state", tmp_path / "copy.db"

    def submit(up: Up, text: str) -> Said:
        return run_colane(["submit", "--wait", "--", "echo", text], **up.env)

    up = start_up(state, "--devices", "cpu:1:1GB")
    try:
        assert "one" in submit(up, "one").out
        said = run_colane(["backup", str(copy), "--state", str(state)])
        assert (said.code, "restore" in said.out, copy.stat().st_mode & 0o077) == (0, True, 0), said.err
        assert run_colane(["backup", str(copy), "--state", str(state)]).code == 2
        assert "another user's secret" in submit(up, "another user's secret").out
        with up.client as client:
            was = client.health()["cluster_id"]
        refused = run_colane(["restore", str(copy), "--state", str(state), "--force"])
        assert (refused.code, "another scheduler" in refused.err) == (1, True)
    finally:
        up.end(signal.SIGINT)
    assert run_colane(["restore", str(copy), "--state", str(state)]).code == 2
    put_back(copy, state)
    assert "is whole" in run_colane(["check", "--state", str(state)]).out
    up = start_up(state, "--devices", "cpu:1:1GB")
    try:
        said = submit(up, "the new one")
        assert (said.code, "the new one" in said.out) == (0, True), said.err
        with up.client as client:
            assert (client.health()["cluster_id"] != was) == (put_back is by_command)
            assert client.health()["former_cluster_ids"] == [was] * (put_back is by_command)
            (node,) = client.nodes()
            assert client.node(node["name"])["cluster_id"] != was, "its agent has heard of more"
            assert [job["id"] for job in client.finished_jobs()] == [1, 2]
        logs = run_colane(["logs", "2"], **up.env)
        assert logs.out.strip().splitlines()[-1] == "the new one"
        assert "secret" not in logs.out
    finally:
        up.end(signal.SIGINT)


def test_what_cannot_be_read_is_named(colane: Colane, tmp_path: Path) -> None:
    state = tmp_path / "state"
    assert "there is no store" in colane("check", "--state", str(state)).err
    assert colane("backup", str(tmp_path / "copy"), "--state", str(state)).code == 1
    (tmp_path / "text").write_text("no store\n")
    said = colane("check", str(tmp_path / "text"))
    assert (said.code, "no database" in said.err) == (1, True)
    assert "cannot be put back" in colane("restore", str(tmp_path / "text"), "--state", str(state)).err
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("CREATE TABLE x (y)")
    assert "no store of Colane" in colane("check", str(tmp_path / "other.db")).err


def test_what_cannot_be_read_is_gone_on_without(colane: Colane, tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    store = SqliteStore(state / "colane.db")
    store.commit(Transaction([Put(NODES, "n1", {}), Put(META, "whole", {})]))
    store.close()
    said = colane("check", "--state", str(state))
    assert (said.code, "nodes n1 cannot be read" in said.err) == (1, True)
    assert "not for a copy" in colane("check", "--set-aside", str(state / "colane.db")).err
    said = colane("check", "--set-aside", "--state", str(state))
    assert (said.code, "without nodes n1; the store of before is" in said.out, "is whole" in said.out) == (
        0,
        True,
        True,
    )
    assert (state / "colane.db.replaced").exists()
    assert "is whole" in colane("check", "--state", str(state)).out
