"""The clients against a real scheduler process."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from colane.client.agent_link import AgentLink, _LinkPlace
from colane.client.client import Client, read_events
from colane.client.errors import Refused, SchedulerError, SchedulerUnreachable
from colane.client.keep_alive import Answered
from colane.client.locate import DEFAULT_URL, default_state_dir, find_token, find_url
from colane.model.problem import Problem
from tests.server.harness import SLEEP, finished, launched, node, report
from tests.server.processes import Scheduler, scheduler

TOKEN = "s3cret"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scheduler]:
    with scheduler(tmp_path_factory.mktemp("state"), token=TOKEN) as started:
        yield started


@pytest.fixture
def client(running: Scheduler) -> Iterator[Client]:
    with Client(running.url, TOKEN) as made:
        yield made
        made.cancel_queued()
        made.remove_finished()


@pytest.mark.live
class TestClient:
    def test_jobs(self, client: Client) -> None:
        first = client.submit({**SLEEP, "name": "a", "labels": {"run": "x"}})
        second, third = client.submit_batch([SLEEP, SLEEP])
        assert first < second < third
        assert [job["id"] for job in client.queued()] == [first, second, third]
        assert client.job(first)["name"] == "a"
        assert client.why(first)["why"] == "no-node"
        assert client.log(first) == (b"", 0)
        assert client.health()["queued"] == 3
        client.cancel(first, by="me")
        assert client.job(first)["reason"] == "cancelled by me"
        assert b"".join(client.follow_log(first)) == b""
        assert client.cancel_queued() == [second, third]
        assert client.live_jobs() == []
        assert [record["id"] for record in client.finished_jobs()] == [first, second, third]
        assert [record["id"] for record in client.finished_jobs(labels={"run": "x"})] == [first]
        assert list(client.finished_jobs(after=third)) == []

    def test_refusals_name_fields(self, client: Client) -> None:
        with pytest.raises(Refused) as refused:
            client.submit({**SLEEP, "gpus": -1})
        assert refused.value.status == 422
        assert refused.value.problems == (
            Problem("gpus", "must be a number of GPUs from 0 to 4096, a range as 1..4, or sizes as 1,2,4, got -1"),
        )
        assert (
            str(refused.value)
            == "gpus: must be a number of GPUs from 0 to 4096, a range as 1..4, or sizes as 1,2,4, got -1"
        )
        with pytest.raises(Refused, match="there is no job 999999"):
            client.job(999_999)
        with pytest.raises(Refused, match="there is no job 999999"):
            list(client.follow_log(999_999))

    def test_knowledge(self, client: Client) -> None:
        client.declare_profile({"key": {"family": "f", "gpu_type": "cpu"}, "step_s": 0.5})
        (profile,) = client.profiles()
        assert profile["step_s"] is not None
        assert (profile["key"]["family"], profile["step_s"]["source"]) == ("f", "declared")
        assert client.measurements() == []

    def test_events(self, client: Client) -> None:
        job = client.submit(SLEEP)
        event = next(event for event in client.events(after=0) if event.body.get("job") == job)
        assert (event.kind, event.body["state"]) == ("job", "queued")
        assert next(client.events(after=event.number - 1)) == event

    def test_a_wrong_token(self, running: Scheduler) -> None:
        with (
            Client(running.url, "wrong") as stranger,
            pytest.raises(Refused, match="not this scheduler's") as refused,
        ):
            stranger.queued()
        assert refused.value.status == 401


@pytest.mark.live
async def test_an_agent_says_and_hears(running: Scheduler) -> None:
    with Client(running.url, TOKEN) as client:
        async with AgentLink(running.url, TOKEN) as link:
            job = client.submit({**SLEEP, "env": {"A": "b"}})
            shall = await link.register(node(address=""))
            assert [each["id"] for each in shall["jobs"]] == [job]
            launch = await link.launch_info(job)
            assert (launch["command"], launch["env"], launch["attempt"]) == (SLEEP["command"], {"A": "b"}, 1)
            assert (await link.report("n1", report(launched(job))))["name"] == "n1"
            assert client.nodes() == [client.node("n1")]
            await link.finished(finished(job))
            await link.finished(finished(job))
            assert client.job(job)["state"] == "succeeded"
            with pytest.raises(Refused) as refused:
                await link.register(node(agent_id="a2", address=""))
            assert refused.value.status == 409
            with pytest.raises(SchedulerError) as unknown:
                await link.report("n2", report())
            assert unknown.value.status == 404
            assert client.remove_nodes() == ["n1"]
        client.remove_finished()


@pytest.fixture
def no_server() -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"http://127.0.0.1:{free.getsockname()[1]}"


class TestUnreachable:
    def test_the_message_names_the_fix(self, no_server: str) -> None:
        with Client(no_server) as client, pytest.raises(SchedulerUnreachable, match="colane up") as error:
            client.queued()
        assert error.value.url == no_server
        assert not error.value.was_sent
        assert error.value.status == 0

    @pytest.mark.parametrize("url", ["http://[", "nonsense", "http://127.0.0.1:99999"])
    def test_a_url_that_is_none(self, url: str) -> None:
        with Client(url) as client, pytest.raises(SchedulerUnreachable):
            client.queued()
        with Client(url) as client, pytest.raises(SchedulerUnreachable):
            client.submit(SLEEP)

    @pytest.mark.parametrize("url", ["http://[", "nonsense", "ftp://127.0.0.1", "http://127.0.0.1:99999"])
    async def test_an_agent_is_told_so_too(self, url: str) -> None:
        async with AgentLink(url) as link:
            for _ in range(2):
                with pytest.raises(SchedulerUnreachable):
                    await link.report("n1", report())

    async def test_an_agent_hears_it_too(self, no_server: str) -> None:
        async with AgentLink(no_server) as link:
            with pytest.raises(SchedulerUnreachable):
                await link.report("n1", report())

    @pytest.mark.live
    def test_streams_end_when_the_scheduler_stops(self, tmp_path: Path) -> None:
        with scheduler(tmp_path) as started, Client(started.url, started.token) as client:
            client.submit(SLEEP)
            events = client.events(after=0)
            assert next(events).number == 1
            assert started.stop(signal.SIGTERM) == 0
            assert [event for event in events if event.number == 1] == []


class TestLostAnswer:
    """An answer that gets lost is asked for again under the same key, so nothing is submitted twice."""

    @staticmethod
    def client(losses: int, error: type[httpx.TransportError]) -> tuple[Client, list[str]]:
        keys: list[str] = []

        def handle(request: httpx.Request) -> httpx.Response:
            keys.append(request.headers["Idempotency-Key"])
            if len(keys) <= losses:
                raise error("broken")
            return httpx.Response(200, json={"id": 7})

        made = Client("http://127.0.0.1:1")
        made._connections[made._places[0]] = httpx.Client(transport=httpx.MockTransport(handle))
        return made, keys

    def test_it_is_asked_for_again(self) -> None:
        client, keys = self.client(2, httpx.ReadError)
        with client:
            assert client.submit(SLEEP) == 7
        assert len(keys) == 3
        assert len(set(keys)) == 1

    def test_but_not_for_ever(self) -> None:
        client, keys = self.client(9, httpx.ReadError)
        with client, pytest.raises(SchedulerUnreachable) as error:
            client.submit(SLEEP)
        assert error.value.was_sent
        assert len(keys) == 3

    def test_what_was_never_sent_is_not_repeated(self) -> None:
        client, keys = self.client(9, httpx.ConnectError)
        with client, pytest.raises(SchedulerUnreachable):
            client.submit(SLEEP)
        assert len(keys) == 1


class TestSeveral:
    """Of several schedulers, one that does not answer is left alone for a while: it may be frozen."""

    URLS = ("http://127.0.0.1:1", "http://127.0.0.1:2")
    STANDS_BY = 4

    def test_a_silent_one_is_asked_once_while_another_answers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("colane.client.client.TURN_PAUSE_S", 0.0)
        asked: list[int] = []

        def handle(request: httpx.Request) -> httpx.Response:
            asked.append(request.url.port or 0)
            if request.url.port == 1:
                raise httpx.ReadTimeout("frozen")
            return httpx.Response(200, json={"id": 7}) if len(asked) > self.STANDS_BY else httpx.Response(503)

        with Client(",".join(self.URLS)) as client:
            for place in client._places:
                client._connections[place] = httpx.Client(transport=httpx.MockTransport(handle))
            assert [client.submit(SLEEP), client.submit(SLEEP)] == [7, 7]
        assert asked == [1, 2, 2, 2, 2, 2]

    async def test_an_agent_asks_one_that_was_silent_last(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("colane.client.agent_link.SILENT_S", 0.0)
        asked: list[str] = []

        async def exchange(_: AgentLink, place: _LinkPlace, *__: object) -> Answered:
            asked.append(place.url)
            if place.url == self.URLS[0]:
                raise httpx.ReadTimeout("frozen")
            return Answered(200, [], b"{}") if len(asked) > self.STANDS_BY else Answered(307, [], b"{}")

        monkeypatch.setattr(AgentLink, "_exchange", exchange)
        async with AgentLink(",".join(self.URLS)) as link:
            for _ in range(2):
                with pytest.raises(SchedulerError):
                    await link.launch_info(1)
            await link.launch_info(1)
        frozen, other = self.URLS
        assert asked == [frozen, other, other, frozen, other]

    async def test_an_agent_asks_a_silent_one_where_the_others_are_gone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[str] = []
        gone, busy = self.URLS

        async def exchange(_: AgentLink, place: _LinkPlace, *__: object) -> Answered:
            asked.append(place.url)
            if place.url == gone:
                raise httpx.ConnectError("gone")
            if len(asked) == len(self.URLS):
                raise httpx.ReadTimeout("busy")
            return Answered(200, [], b"{}")

        monkeypatch.setattr(AgentLink, "_exchange", exchange)
        async with AgentLink(f"{gone},{busy}") as link:
            with pytest.raises(SchedulerUnreachable):
                await link.launch_info(1)
            await link.launch_info(1)
        assert asked == [gone, busy, gone, busy]

    async def test_an_agent_asks_the_next_one_where_one_takes_long(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("colane.client.agent_link.NEXT_AFTER_S", 0.0)
        asked: list[str] = []
        frozen, other = self.URLS

        async def exchange(_: AgentLink, place: _LinkPlace, *__: object) -> Answered:
            asked.append(place.url)
            if place.url == frozen:
                await asyncio.Event().wait()
            return Answered(200, [], b'{"attempt": 3}')

        monkeypatch.setattr(AgentLink, "_exchange", exchange)
        async with AgentLink(f"{frozen},{other}") as link:
            assert [(await link.launch_info(1))["attempt"] for _ in range(2)] == [3, 3]
        assert asked == [frozen, other, other]


class TestLocate:
    def test_the_variable_comes_first(self, tmp_path: Path) -> None:
        (tmp_path / "server.json").write_text('{"url": "http://there:1", "pid": 1}')
        assert find_url(tmp_path, {"COLANE_URL": "http://here:2/"}) == "http://here:2"
        assert find_url(tmp_path, {}) == "http://there:1"
        assert find_url(None, {"COLANE_STATE": str(tmp_path)}) == "http://there:1"

    @pytest.mark.parametrize("text", [None, "", "{", "[]", '{"url": 7}'])
    def test_without_a_file_the_default(self, tmp_path: Path, text: str | None) -> None:
        if text is not None:
            (tmp_path / "server.json").write_text(text)
        assert find_url(tmp_path, {}) == DEFAULT_URL

    def test_state_and_token(self) -> None:
        assert default_state_dir({"COLANE_STATE": "/x"}) == Path("/x")
        assert default_state_dir({}).name == "colane"
        assert find_token("http://there:1", {"COLANE_TOKEN": "t"}) == "t"
        assert find_token("http://there:1", {"COLANE_TOKEN": "", "COLANE_STATE": "/nowhere"}) is None

    def test_the_token_of_a_state_directory_goes_to_its_scheduler_alone(self, tmp_path: Path) -> None:
        (tmp_path / "server.json").write_text('{"url": "http://there:1"}')
        (tmp_path / "token").write_text("mine\n")
        environment = {"COLANE_STATE": str(tmp_path)}
        assert find_token("http://there:1/", environment) == "mine"
        assert find_token("http://elsewhere:1", environment) is None
        (tmp_path / "other").write_text("given")
        environment["COLANE_TOKEN_FILE"] = str(tmp_path / "other")
        assert find_token("http://elsewhere:1", environment) == "given"


def test_events_are_read_from_lines() -> None:
    lines = [": ping", "id: 3", "event: job", 'data: {"a": 1}', "", ": ping", "", 'data: {"b": 2}', ""]
    assert list(read_events(iter(lines))) == [(3, "job", {"a": 1}), (0, "message", {"b": 2})]


def test_importing_the_client_does_not_import_httpx() -> None:
    check = "import sys, colane.client.client as c; c.Client('http://x'); sys.exit('httpx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
