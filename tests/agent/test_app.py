"""The agent's API: which callers it lets in, and what it makes of odd numbers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from colane.agent.app import make_app
from colane.agent.files.jobdir import StateDir

KEY = {"Authorization": "Bearer s"}
JSON = {"Content-Type": "application/json"}


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    with closing(StateDir(tmp_path / "agent", 1.0)) as state:
        app = make_app(state, lambda: None, name="n0", secret="s", on_loopback=True)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:1") as client:
            yield client


@pytest.mark.parametrize("host", ["evil.example", "", "127.0.0.1.evil.example", "[::2]"])
async def test_who_names_another_host_is_refused_even_the_health(http: httpx.AsyncClient, host: str) -> None:
    for path in ("/health", "/run"):
        assert (await http.get(path, headers={"Host": host, **KEY})).status_code == 421


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:99", "[::1]:8", "LOCALHOST"])
async def test_the_names_of_loopback_are_its_own(http: httpx.AsyncClient, host: str) -> None:
    assert (await http.get("/health", headers={"Host": host})).status_code == 200


async def test_a_nudge_needs_the_secret_and_is_json(http: httpx.AsyncClient) -> None:
    assert (await http.post("/run", json={})).status_code == 401
    assert (await http.post("/run", json={}, headers={b"Authorization": b"Bearer \xff"})).status_code == 401
    assert (await http.post("/run", content="{}", headers={**KEY, "Content-Type": "text/plain"})).status_code == 415
    assert (await http.post("/run", json={}, headers=KEY)).json() == {"accepted": True}


@pytest.mark.parametrize("number", ["9" * 5000, "9" * 17, "-1", "1.5", "\u0661", "a"])
async def test_no_number_is_too_odd_for_a_path(http: httpx.AsyncClient, number: str) -> None:
    assert (await http.get(f"/log/{number}/1", headers=KEY)).status_code == 404
    assert (await http.get(f"/log/1/{number}", headers=KEY)).status_code == 404


@pytest.mark.parametrize("field", ["offset", "limit"])
@pytest.mark.parametrize("number", ["9" * 5000, "9" * 4000, "-" + "9" * 4000, "1e5", "x"])
async def test_no_number_is_too_odd_for_a_query(
    http: httpx.AsyncClient, field: str, number: str, tmp_path: Path
) -> None:
    (tmp_path / "agent" / "jobs" / "1-1").mkdir(parents=True)
    assert (await http.get("/log/1/1", params={field: number}, headers=KEY)).status_code in {200, 404, 422}
