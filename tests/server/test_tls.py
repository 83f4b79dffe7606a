"""TLS by files: callers who trust its CA come in, others do not; what cannot be used is one line at the start."""

from __future__ import annotations

import shutil
import ssl
from pathlib import Path
from typing import Any

import httpx
import pytest

from colane.agent.errors import AgentError
from colane.cli.app import run
from colane.client.agent_link import AgentLink
from colane.client.client import Client
from colane.client.errors import BadUrl, SchedulerUnreachable
from colane.client.tls import TlsError, TlsFiles, trusted
from colane.server.config import ServerConfig
from colane.server.main import ServerError, serve
from tests.agent.agents import running
from tests.agent.fake_scheduler import FakeScheduler
from tests.certificates import own_certificate
from tests.server.processes import scheduler

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return own_certificate(tmp_path_factory.mktemp("tls"))


@pytest.mark.live
async def test_who_trusts_its_certificate_comes_in(
    files: TlsFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLANE_CA_FILE", str(files.cert))
    with scheduler(tmp_path / "state", tls=[str(files.cert), str(files.key)]) as started:
        assert started.url.startswith("https://127.0.0.1:")
        with Client(started.url, started.token) as client:
            assert client.nodes() == []
        async with AgentLink(started.url, started.token) as link:
            described: Any = {"name": "n", "gpus": []}
            assert (await link.register(described))["name"] == "n"
        monkeypatch.delenv("COLANE_CA_FILE")
        with Client(started.url, started.token) as stranger, pytest.raises(SchedulerUnreachable, match="certificate"):
            stranger.nodes()


@pytest.mark.live
async def test_an_agent_is_called_over_it(files: TlsFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLANE_CA_FILE", str(files.cert))
    async with running(tmp_path / "state", FakeScheduler(), tls=files) as agent:
        assert agent.address.startswith("https://127.0.0.1:")
        async with httpx.AsyncClient(verify=trusted(), trust_env=False) as http:
            assert (await http.get(f"{agent.address}/health")).status_code == 200


async def test_files_that_cannot_be_used_are_one_line(files: TlsFiles, tmp_path: Path) -> None:
    for wrong in (TlsFiles(files.cert, files.cert), TlsFiles(tmp_path / "none", files.key)):
        with pytest.raises(TlsError) as error:
            wrong.context()
        assert "\n" not in str(error.value)
        assert str(wrong.cert) in str(error.value)
        with pytest.raises(ServerError, match="tls-cert: "):
            await serve(ServerConfig(state_dir=tmp_path / "state", port=0, tls=wrong))
        with pytest.raises(AgentError, match="--tls-cert: "):
            async with running(tmp_path / "agent", FakeScheduler(), tls=wrong):
                raise AssertionError
    assert not (tmp_path / "state").exists()


def test_a_certificate_needs_its_key(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["server", "--tls-cert", "c.pem", "--state", str(tmp_path / "state")]) == 2
    assert capsys.readouterr().err == "colane: --tls-cert and --tls-key: give both, or none of them\n"


def test_a_ca_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("nothing")
    with pytest.raises(BadUrl, match=r"COLANE_CA_FILE: .*ca holds no certificates"):
        trusted({"COLANE_CA_FILE": str(tmp_path / "ca")})
    assert isinstance(trusted({}), ssl.SSLContext)
