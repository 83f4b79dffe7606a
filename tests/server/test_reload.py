"""What files say of users, pools and channels is read again while the scheduler runs; `config check` judges it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from colane.cli.app import run
from colane.server.config import file_rules
from colane.settings.sources import gather
from colane.settings.table import SERVER
from tests.server.harness import SLEEP, World, node, world

LOW = "[default]\ngpus = 1\n[pool.default]\ntime_limit_max = '1h'\n"
HIGH = "[default]\ngpus = 3\n[features]\na100 = ['n1']\n"
CHANNELS = "[[channel]]\nname = 'pager'\ncommand = ['true']\n"


async def has_started(w: World, job: int) -> None:
    await w.line(lambda line: line.kind == "job" and line.body["job"] == job and line.body["state"] == "assigned")


async def test_limits_pools_and_channels_count_as_soon_as_they_are_read_again(tmp_path: Path) -> None:
    limits, notify = tmp_path / "limits.toml", tmp_path / "notify.toml"
    limits.write_text(LOW)
    notify.write_text(CHANNELS)
    read = partial(file_rules, gather(SERVER, {"limits": limits, "notify": notify}, environment={}))
    rules = read()
    async with world(quotas=rules.quotas, pools=rules.pools, notify=rules.notify, read=read) as w:
        await w.good("POST", "/node", node(gpus=4))
        jobs = [await w.submit(**SLEEP, user="ann") for _ in range(4)]
        await has_started(w, jobs[0])
        assert (await w.good("GET", f"/job/{jobs[1]}/why"))["why"] == "limit"
        assert await w.good("POST", "/config/reload", {}) == {"limits": False, "notify": False}
        limits.write_text(HIGH)
        assert await w.good("POST", "/config/reload", {}) == {"limits": True, "notify": False}
        await has_started(w, jobs[2])
        assert (await w.good("GET", f"/job/{jobs[3]}/why"))["why"] == "limit"
        assert (await w.good("GET", "/pools"))[0]["time_limit_max_s"] is None
        limits.write_text("[default]\ngpu = 1\n")
        status, said = await w.refused("POST", "/config/reload", {})
        assert (status, "default.gpu: did you mean gpus" in str(said)) == (422, True)
        assert (await w.good("GET", f"/job/{jobs[3]}/why"))["why"] == "limit", "all stays as it was"
        notify.write_text(CHANNELS.replace("pager", "bell"))
        limits.write_text(HIGH)
        assert await w.good("POST", "/config/reload", {}) == {"limits": False, "notify": True}
        limits.unlink()
        assert (await w.refused("POST", "/config/reload", {}))[0] == 422
        limits.write_text("")
        await w.good("POST", "/config/reload", {})
        await has_started(w, jobs[3])


async def test_users_do_not_have_settings_read_again() -> None:
    async with world() as w:
        made = await w.good("POST", "/tokens", {"digest": "0" * 64, "user": "ann"})
        assert made["id"]
        answer = await w.http.post("/config/reload", json={}, headers={"Authorization": "Bearer none"})
        assert answer.status_code == 401


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("limits", "[default]\ngpu = 1\n", "default.gpu: did you mean gpus"),
        ("limits", "[pool.a]\ngroups = ['no-such-group']\n", "has no group 'no-such-group'"),
        ("notify", "x = 1\n", "x"),
    ],
)
def test_check_judges_the_files_that_settings_name_as_the_scheduler_does(
    tmp_path: Path, capsys: Any, name: str, text: str, says: str
) -> None:
    (tmp_path / "its.toml").write_text(text)
    (tmp_path / "colane.toml").write_text(f'[server]\n{name} = "{tmp_path}/its.toml"\n')
    assert run(["config", "check", str(tmp_path / "colane.toml")]) == 2
    told = capsys.readouterr().err
    assert says in told
    assert told.count("\n") == 1
    (tmp_path / "its.toml").write_text("" if name == "limits" else CHANNELS)
    assert run(["config", "check", str(tmp_path / "colane.toml")]) == 0
