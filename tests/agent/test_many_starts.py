"""An agent that is to start hundreds of commands: a few at a time, ends and questions in between."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from colane.agent.loop import STARTS_PER_ROUND_MAX, Agent
from colane.agent.running.jobs import Jobs
from tests.agent.agents import running
from tests.agent.fake_scheduler import FakeScheduler

pytestmark = pytest.mark.live

COMMANDS = 200
FIRST = 1000


async def test_starts_of_hundreds_of_commands_keep_neither_ends_nor_questions_waiting(
    fake: FakeScheduler, state: Path, mark: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds of the agent are counted, and nothing is timed."""
    rounds, done = [0], list[tuple[int, str, int]]()

    def told(what: str, method: Any) -> Any:
        def call(jobs: Jobs, key: tuple[int, int], *rest: Any) -> Any:
            done.append((rounds[0], what, key[0]))
            return method(jobs, key, *rest)

        return call

    async def counted(agent: Agent) -> None:
        rounds[0] += 1
        await reconcile_all(agent)

    reconcile_all = Agent.reconcile_all
    monkeypatch.setattr(Agent, "reconcile_all", counted)
    monkeypatch.setattr(Jobs, "spawn", told("start", Jobs.spawn))
    monkeypatch.setattr(Jobs, "stop", told("stop", Jobs.stop))
    fake.want(1, "sh", "-c", "echo hello; exec sleep 1000", env=mark)
    async with running(state, fake, heartbeat_s=1000.0) as agent:
        await agent.until(lambda: fake.launched(1), "the first job")
        while (await agent.get("/log/1/1")).content != b"hello\n":
            assert not agent.task.done()
        for number in range(COMMANDS):
            fake.want(FIRST + number, "true", gpus=(), env=mark)
        await agent.get("/run")
        waited, at = list[int](), 0
        while not any(what == "stop" for _, what, _ in done):
            asked = rounds[0]
            assert (await agent.get("/log/1/1")).content == b"hello\n"
            waited.append(rounds[0] - asked)
            started = [job for _, what, job in done if what == "start"]
            if len(started) > COMMANDS // 4 and not at:
                at = rounds[0]
                fake.end(1)
        await agent.until(lambda: len(fake.ends) == COMMANDS + 1, "all ends")
    starts = Counter(round_ for round_, what, _ in done if what == "start")
    assert max(starts.values()) == STARTS_PER_ROUND_MAX
    stops = [round_ for round_, what, job in done if what == "stop" and job == 1]
    in_it = [what for round_, what, _ in done if round_ == stops[0]]
    assert stops[0] <= at + 2, "an end waits for no more than the round that goes on"
    assert in_it[0] == "stop", "ends come before starts"
    assert max(starts) > stops[0], "there was more to start"
    assert max(waited) <= 2, "a question waits for no more than the round that goes on"
