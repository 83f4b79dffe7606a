"""The operator's programs around jobs, and the health check: what they are told, and what one that fails does."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from colane.agent.config import EPILOG, HEALTH_CHECK, HOOKS, PROLOG, AgentConfig
from colane.agent.link import hooks
from colane.agent.link.hooks import NodeHooks
from colane.settings.setting import SettingError
from colane.settings.sources import gather
from colane.settings.table import AGENT
from tests.agent.agents import running
from tests.agent.fake_scheduler import FakeScheduler
from tests.agent.waiting import DEADLINE_S


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.live
async def test_a_job_runs_between_its_prolog_and_its_epilog(
    fake: FakeScheduler, tmp_path: Path, mark: dict[str, str]
) -> None:
    log = tmp_path / "log"
    hook = program(tmp_path / "hook", f'echo "$COLANE_HOOK $SLURM_JOB_ID $COLANE_JOB_ID" >>{log}; sleep 300 &')
    fake.want(7, "sh", "-c", f"echo job >>{log}", env=mark)
    async with running(tmp_path / "state", fake, hooks={PROLOG: hook, EPILOG: hook}, hook_limit_s=60.0) as agent:
        await agent.until(lambda: fake.ends)
        assert log.read_text().splitlines() == ["prolog 7 7", "job", "epilog 7 7"]
        assert "notice" not in fake.reports[-1]


@pytest.mark.live
@pytest.mark.parametrize(
    ("text", "limit_s", "said"),
    [
        ("echo looking; echo 'GPU 3 is not there' >&2; exit 4", 60.0, "prolog: GPU 3 is not there"),
        ("exit 4", 60.0, "prolog: it ended with 4"),
        ("sleep 300 & wait", 0.2, "prolog: it took longer than 0.2 s, and was killed"),
    ],
    ids=["fails", "fails without a word", "hangs"],
)
async def test_a_prolog_that_fails_drains_the_node_and_its_job_goes_elsewhere(
    fake: FakeScheduler, tmp_path: Path, mark: dict[str, str], text: str, limit_s: float, said: str
) -> None:
    ran = tmp_path / "ran"
    fake.want(7, "touch", str(ran), env=mark)
    hook = program(tmp_path / "hook", text)
    async with running(tmp_path / "state", fake, hooks={PROLOG: hook}, hook_limit_s=limit_s) as agent:
        await agent.until(lambda: fake.ends)
        assert (fake.ends[7, 1]["outcome"], fake.ends[7, 1]["detail"]) == ("node-fault", said)
        assert fake.reports[-1]["notice"] == {"reason": said, "left_s": None}
    assert not ran.exists()


@pytest.mark.live
async def test_an_epilog_that_fails_drains_the_node_and_the_job_has_ended_as_it_did(
    fake: FakeScheduler, tmp_path: Path, mark: dict[str, str]
) -> None:
    fake.want(7, "sh", "-c", "exit 3", env=mark)
    hook = program(tmp_path / "hook", "echo no scratch; exit 1")
    async with running(tmp_path / "state", fake, hooks={EPILOG: hook}) as agent:
        await agent.until(lambda: fake.ends)
        assert (fake.ends[7, 1]["outcome"], fake.ends[7, 1]["exit_code"]) == ("exited", 3)
        await agent.until(lambda: fake.reports[-1].get("notice") == {"reason": "epilog: no scratch", "left_s": None})


async def test_a_node_is_drained_while_its_health_check_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "CHECKED_EVERY_S", 0.01)
    ill, heard = tmp_path / "ill", list[str | None]()
    news = asyncio.Event()

    def shut(kind: str, reason: str | None) -> None:
        assert kind == HEALTH_CHECK
        if not heard or heard[-1] != reason:
            heard.append(reason)
            news.set()

    check = program(tmp_path / "check", f"! cat {ill} 2>/dev/null")
    watch = NodeHooks({HEALTH_CHECK: check}, 60.0, shut, lambda: None)
    watch.start()
    async with asyncio.timeout(DEADLINE_S):
        for said in (None, "health check: a fan", None):
            await news.wait()
            news.clear()
            if said is None and len(heard) == 1:
                ill.write_text("a fan\n")
            elif said is not None:
                ill.unlink()
    await watch.close()
    assert heard == [None, "health check: a fan", None]


@pytest.mark.parametrize("kind", list(HOOKS))
def test_what_is_no_program_is_refused_before_the_agent_starts(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "hook"
    for make in (lambda: None, lambda: file.write_text("#!/bin/sh\n")):
        make()
        values = gather(AGENT, {HOOKS[kind].name: file}, environment={})
        with pytest.raises(SettingError, match=f"must be an executable file, {file} is none"):
            AgentConfig.of(values, name="n", url="http://s", state_dir=tmp_path, token=None, topology=None)
