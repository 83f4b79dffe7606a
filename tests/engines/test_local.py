"""The engine of this machine: it starts an agent, keeps it there, and leaves nothing."""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path

import pytest

from colane.engines import Engine
from colane.engines.local import LocalConfig, LocalEngine
from tests.cli.conftest import marked, until_gone

pytestmark = pytest.mark.live


def test_start_watch_and_stop(tmp_path: Path) -> None:
    said: list[str] = []
    local = LocalEngine(LocalConfig.of(tmp_path / "state", "here", devices="cpu:1"), said.append)
    engine: Engine = local
    engine.stop()  # nothing is there, and it does no harm
    engine.start()
    try:
        first = local.node()
        assert (first["name"], first["lost"]) == ("here", False)
        agent = local._agent
        assert agent is not None
        os.kill(agent.process.pid, signal.SIGKILL)
        select.select([agent.pidfd], [], [])
        engine.watch(0.5)
        assert said == ["the agent has died (signal 9) and is started again"]
        assert (after := local._agent) is not None
        assert after.process.pid != agent.process.pid
        assert after.process.poll() is None
        assert (local.node()["last_seen_s"] or 0.0) > (first["last_seen_s"] or 0.0)
        assert marked(tmp_path)
    finally:
        engine.stop()
    until_gone(tmp_path)
    engine.stop()
