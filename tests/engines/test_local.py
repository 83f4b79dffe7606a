"""The engine of this machine: it starts an agent, keeps it there, and leaves nothing."""

from __future__ import annotations

import logging
import os
import select
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from colane.cli.service.agent import told_by_scheduler
from colane.engines import Engine
from colane.engines.local import LocalConfig, LocalEngine
from colane.settings.setting import Given, SettingError
from colane.settings.sources import gather
from colane.settings.table import AGENT, AGENTS, GRACE, HEARTBEAT, MPS, Mps
from tests.cli.conftest import marked, run_colane, until, until_gone
from tests.many_files import SELECT_MAX, many_files

pytestmark = pytest.mark.live


def test_a_scheduler_that_dies_while_its_agent_is_started_again_is_started_again_too(tmp_path: Path) -> None:
    """An agent that is waited for, until the dead scheduler has heard of it, would keep both from coming back."""
    said: list[str] = []
    with LocalEngine(LocalConfig.of(tmp_path / "state", "here", devices="cpu:1"), said.append) as local:
        agent, server = local._agent, local._server
        assert agent is not None
        assert server is not None

        def tell(line: str) -> None:
            said.append(line)
            os.kill(server.process.pid, signal.SIGKILL)
            local._tell = said.append

        local._tell = tell
        os.kill(agent.process.pid, signal.SIGKILL)
        select.select([agent.pidfd], [], [])
        local.watch(1.0)
        assert said[:2] == [
            "the agent has died (signal 9) and is started again",
            "the scheduler has died (signal 9) and is started again",
        ]
        assert (again := local._server) is not None
        assert again.process.poll() is None


def test_a_process_may_have_more_files_open_than_select_can_watch(tmp_path: Path) -> None:
    with many_files(), LocalEngine(LocalConfig.of(tmp_path / "state", "here", devices="cpu:1")) as local:
        agent = local._agent
        assert agent is not None
        assert agent.pidfd > SELECT_MAX
        os.kill(agent.process.pid, signal.SIGKILL)
        local.watch(1.0)
        assert local._agent is not agent


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
        until(lambda: (local.node()["last_seen_s"] or 0.0) > (first["last_seen_s"] or 0.0), "it is heard of")
        assert marked(tmp_path)
    finally:
        engine.stop()
    until_gone(tmp_path)
    engine.stop()


def test_agents_are_told_what_they_have_in_common(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It counts after all that an agent is told itself; without a scheduler, what it said last counts."""
    config = LocalConfig.of(tmp_path / "state", "here", devices="cpu:1")
    common = gather(AGENTS, {}, environment={"COLANE_AGENTS_GRACE": "7s", "COLANE_AGENTS_MPS": "off"})
    with LocalEngine(replace(config, agents=common, has_agent=False)) as engine:
        url, token, folder = engine.url, engine.token, tmp_path / "agent"
        told, lease_s = told_by_scheduler(url, token, folder)
        asked = ["agent", "--name", "there", "--heartbeat", "20.5", "--state", str(tmp_path / "there")]
        refused = run_colane(asked, COLANE_URL=url, COLANE_TOKEN=token or "")
    assert refused.code == 2
    assert refused.err == (
        "colane: --heartbeat: must be at most 4.67 s, a third of the scheduler's lease of 14 s, got 20.5: report more "
        "often, or start the scheduler with a longer --lease\n"
    )
    assert lease_s == 14.0
    assert not caplog.records
    values = gather(AGENT, {"grace": "3s"}, environment={}, told=told)
    assert (values[GRACE], values[MPS], values.is_given(HEARTBEAT)) == (3.0, Mps.OFF, False)
    assert gather(AGENT, {}, environment={}, told=told)[GRACE] == 7.0
    with caplog.at_level(logging.WARNING):
        assert told_by_scheduler(url, token, folder) == (told, lease_s)
        assert told_by_scheduler(url, token, tmp_path / "another") == ({}, None)
    what_it_said, defaults = (record.getMessage() for record in caplog.records)
    assert what_it_said.endswith("is set to what it said last")
    assert defaults.endswith("is set to defaults")


def test_a_value_that_an_agent_cannot_take_names_the_schedulers_file() -> None:
    told = {"grace": Given("soon", "[agents] of the scheduler at http://head:8642: grace")}
    with pytest.raises(SettingError, match=r"^\[agents\] of the scheduler at http://head:8642: grace: must be"):
        gather(AGENT, {}, environment={}, told=told)
