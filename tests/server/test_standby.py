"""Two schedulers on one store: one leads, the other waits, shows what is there, and leads once the first is silent."""

from __future__ import annotations

import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import httpx
import pytest

from colane.cli.app import run
from colane.client.client import Client
from colane.client.errors import SchedulerError
from colane.server.assembly import make_service, make_standby
from colane.server.board.clock import Clocks
from colane.server.config import ServerConfig, ServiceConfig
from colane.server.handlers.standby import HANDED_MAX_S, Standby
from colane.server.main import ServerError, serve
from colane.server.service import Service
from colane.server.store.identity import LEADER, LEADER_KEY, Leader, begin_epoch
from colane.server.store.store import (
    META,
    AuditLine,
    ConflictError,
    Document,
    Put,
    StoreWriter,
    SupersededError,
    Transaction,
)
from colane.server.writer.lead import HANGS_S, Lead
from colane.settings.store_address import store_address
from tests.faults.cluster import AGENT, TOKEN
from tests.memory_store import MemoryStore
from tests.server.harness import DEADLINE_S, SLEEP, world
from tests.server.postgres_server import PostgresServer, postgres_server
from tests.server.processes import Scheduler, scheduler
from tests.server.proxy import proxy
from tests.server.redis_server import RedisServer, redis_server
from tests.server.test_epochs import AGENTS, two_nodes

LEASE_S = 3.0
LONG_S = 600.0
"""Where none takes over for silence."""
URL = "http://standby:1"


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with redis_server() as started:
        yield started


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as started:
        yield started


@pytest.fixture(params=["redis", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """Of a cluster of its own."""
    found: str = request.getfixturevalue(request.param).url(request.node.name[:30].replace("[", ".").strip("]"))
    return found


def before(url: str, lease_s: float, *, standby: bool) -> str:
    """What lets a scheduler's process have its store there."""
    return (
        "from colane.settings.store_address import store_address\n"
        "import colane.server.config as config, functools\n"
        f"config.ServerConfig = functools.partial(config.ServerConfig, store=store_address({url!r}),"
        f" standby={standby}, leader_lease_s={lease_s})\n"
    )


@dataclass
class Pair:
    """The scheduler that leads at first, and its standby."""

    first: Scheduler
    second: Scheduler

    @property
    def urls(self) -> str:
        return f"{self.first.url},{self.second.url}"

    def led_by_second(self) -> None:
        """Wait until it leads."""
        until(lambda: self.second.http.get("/health").json()["role"] == "leader")


@contextmanager
def pair(url: str, folder: Path, lease_s: float = LEASE_S) -> Iterator[Pair]:
    with ExitStack() as stack:
        leads, waits = (before(url, lease_s, standby=standby) for standby in (False, True))
        first = stack.enter_context(scheduler(folder / "a", before=leads, token=TOKEN))
        yield Pair(first, stack.enter_context(scheduler(folder / "b", before=waits, token=TOKEN)))


def until(look: Any) -> None:
    """Look until it is so."""
    end_s = time.monotonic() + DEADLINE_S
    while not look():
        assert time.monotonic() < end_s
        select.select([], [], [], 0.02)


class Users:
    """Clients that know both, and submit one job after another."""

    def __init__(self, urls: str) -> None:
        self.ids: list[int] = []
        self.errors: list[str] = []
        self._urls = urls
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._submit) for _ in range(3)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        until(lambda: len(self.ids) > 20)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(DEADLINE_S)

    def go_on(self) -> None:
        """Wait until some more are told yes."""
        known = len(self.ids)
        until(lambda: len(self.ids) > known + 20)

    def _submit(self) -> None:
        with Client(self._urls, TOKEN) as client:
            while not self._stop.is_set():
                try:
                    self.ids.append(client.submit(SLEEP))
                except SchedulerError as error:
                    self.errors.append(str(error))


def none_lost_none_twice(users: Users, led: Scheduler) -> None:
    jobs = [job["id"] for job in led.http.get("/live_jobs").json()]
    assert users.errors == []
    assert sorted(users.ids) == jobs
    assert len(set(jobs)) == len(jobs)


@pytest.mark.live
def test_a_standby_shows_what_is_there_and_sends_all_else_to_the_leader(redis: RedisServer, tmp_path: Path) -> None:
    with pair(redis.url("shown"), tmp_path, LONG_S) as both:
        key = {"Idempotency-Key": "k"}
        assert both.first.http.post("/job", json=SLEEP, headers=key).json() == {"id": 1}
        health = both.second.http.get("/health").json()
        assert (health["role"], health["status"], health["epoch"]) == ("standby", "ok", 1)
        assert health["cluster_id"] == both.first.http.get("/health").json()["cluster_id"]
        until(lambda: [job["id"] for job in both.second.http.get("/jobs").json()] == [1])
        assert both.second.http.get("/job/1").json()["state"] == "queued"
        with both.second.http.stream("GET", "/events?after=0", timeout=DEADLINE_S) as events:
            assert next(events.iter_lines()) == "id: 1"
        sent = both.second.http.post("/job?x=1", json=SLEEP, headers=key)
        assert (sent.status_code, sent.headers["location"]) == (307, f"{both.first.url}/job?x=1")
        assert both.second.http.get("/overview").status_code == 307
        assert httpx.post(f"{both.second.url}/job", json=SLEEP).status_code == 401, "strangers are told nothing"
        with (
            Client(both.second.url, TOKEN) as alone,
            pytest.raises(SchedulerError, match=f"leads is at {both.first.url}"),
        ):
            alone.submit(SLEEP)
        with Client(f"{both.second.url},{both.first.url}", TOKEN) as client:
            assert client.submit(SLEEP) == 2
            client.cancel(1)
            until(lambda: [job["id"] for job in both.second.http.get("/jobs").json()] == [2])


@pytest.mark.live
def test_after_a_kill_of_the_leader_no_request_is_lost_or_done_twice(url: str, tmp_path: Path) -> None:
    with pair(url, tmp_path) as both:
        key = {"Idempotency-Key": "k"}
        first = both.first.http.post("/job", json={**SLEEP, "name": "first"}, headers=key).json()
        with Users(both.urls) as users:
            users.ids.append(first["id"])
            both.first.process.kill()
            both.led_by_second()
            users.go_on()
        assert both.second.http.post("/job", json={**SLEEP, "name": "first"}, headers=key).json() == first
        none_lost_none_twice(users, both.second)
        assert both.second.http.get("/health").json()["epoch"] == 2


@pytest.mark.live
def test_a_leader_that_was_frozen_says_nothing_any_more(redis: RedisServer, tmp_path: Path) -> None:
    with pair(redis.url("frozen"), tmp_path) as both:
        with Users(both.urls) as users:
            both.first.process.send_signal(signal.SIGSTOP)
            both.led_by_second()
            users.go_on()
            both.first.process.send_signal(signal.SIGCONT)
            try:
                told = both.first.http.get("/jobs")
            except httpx.HTTPError:
                told = None  # it has ended already
            assert told is None or told.status_code == 503, told.text
            assert both.first.process.wait(DEADLINE_S) != 0
            assert "another scheduler has started on this store (epoch 2, this one has 1)" in both.first.errors()
            users.go_on()
        none_lost_none_twice(users, both.second)


@pytest.mark.live
def test_handing_over_leaves_no_gap(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLANE_TOKEN", TOKEN)
    monkeypatch.setenv("COLANE_STATE", str(tmp_path / "none"))

    def handed(urls: str) -> tuple[int, str]:
        monkeypatch.setenv("COLANE_URL", urls)
        code = run(["server", "--hand-over"])
        out, err = capsys.readouterr()
        return code, out + err

    with pair(url, tmp_path, LONG_S) as both:
        code, said = handed(both.first.url)
        assert (code, "name the scheduler that leads and its standby" in said) == (2, True), said
        code, said = handed(f"{both.first.url},http://127.0.0.1:9")
        assert (code, "no standby of this cluster answers, so nothing is done" in said) == (1, True), said
        with Users(both.urls) as users:
            code, said = handed(both.urls)
            assert (code, f"{both.second.url} leads (start 2)" in said) == (0, True), said
            assert both.first.process.wait(DEADLINE_S) == 0
            users.go_on()
        none_lost_none_twice(users, both.second)
        code, said = handed(both.second.url + ",http://127.0.0.1:9")
        assert code == 1


async def test_from_a_leader_without_a_lease_none_takes_over() -> None:
    store, now = MemoryStore(), [0.0]
    clocks = Clocks(steady=lambda: now[0], since_boot=lambda: now[0])
    leader = make_service(store, ServiceConfig(policy="fifo", leader_lease_s=0.0), clocks=clocks)
    service, standby = make_standby(store, ServiceConfig(policy="fifo", leader_lease_s=LEASE_S), clocks=clocks)
    await standby._look()
    now[0] += 100 * LEASE_S
    await standby._look()
    assert leader.driver.lead.is_held
    assert not standby._is_due()
    leader.driver.lead.release()
    await standby._look()
    assert standby._is_due(), "it has ended by itself"
    for each in (leader, service):
        await each.close()


async def stood_by(store: MemoryStore, now: list[float]) -> tuple[Service, Standby]:
    """A standby that has seen the leader lead."""
    clocks = Clocks(steady=lambda: now[0], since_boot=lambda: now[0])
    service, standby = make_standby(store, ServiceConfig(policy="fifo", leader_lease_s=LEASE_S), clocks=clocks)
    await standby._look()
    await standby._show()
    return service, standby


async def released() -> AskedStore:
    """What a leader with two nodes and a job has left to those that have seen it lead."""
    store = AskedStore()
    async with world(store, leader_lease_s=LEASE_S) as leader:
        await two_nodes(leader)
        await leader.submit()
        store.standbys = [await stood_by(store, store.now) for _ in range(3)]
    return store


async def test_who_is_handed_over_to_waits_for_no_agent() -> None:
    store = await released()
    service, standby = store.standbys[0]
    await standby._look()
    assert standby._is_due()
    assert await standby._begin()
    assert (service.leads, service.leading.behind.awaited, service.driver.waits_for()) == (True, set(), "")
    await service.close()


@pytest.mark.parametrize("how", ["looked too late", "has not seen it lead", "another led meanwhile"])
async def test_who_cannot_know_that_nothing_is_missing_hears_the_agents(how: str) -> None:
    store = await released()
    service, standby = store.standbys[0]
    if how == "looked too late":
        store.now[0] += HANDED_MAX_S + 0.1
    elif how == "has not seen it lead":
        service, standby = await stood_by(store, store.now)
    else:
        other, sooner = store.standbys[1]
        await sooner._look()
        assert await sooner._begin()
        other.driver.lead.release()
    await standby._look()
    assert await standby._begin()
    assert service.leading.behind.awaited == set(AGENTS)
    await service.close()


async def test_a_standby_asks_once_whether_anything_is_new() -> None:
    store = await released()
    _, standby = store.standbys[0]
    await standby._look()
    await standby._show()
    store.asked.clear()
    await standby._look()
    await standby._show()
    assert store.asked == ["version"]


class AskedStore(MemoryStore):
    """Counts what it is asked, and knows who waits."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.standbys: list[tuple[Service, Standby]] = []
        self.now = [0.0]

    def version(self) -> int:
        self.asked.append("version")
        return super().version()

    def get(self, collection: str, key: str) -> Document | None:
        self.asked.append(collection)
        return super().get(collection, key)

    def read_all(self, collection: str) -> Iterator[tuple[str, Document]]:
        self.asked.append(collection)
        return super().read_all(collection)

    def audit(self, after: int, limit: int) -> list[AuditLine]:
        self.asked.append("audit")
        return super().audit(after, limit)


@pytest.mark.live
def test_without_a_leader_a_standby_leads_and_ends_where_another_is_started(redis: RedisServer, tmp_path: Path) -> None:
    url = redis.url("alone")
    with scheduler(tmp_path / "b", before=before(url, LEASE_S, standby=True), token=TOKEN) as standby:
        assert standby.line.startswith("colane standby listens on ")
        until(lambda: standby.http.get("/health").json()["role"] == "leader")
        assert standby.http.post("/job", json=SLEEP).json() == {"id": 1}
        with scheduler(tmp_path / "a", before=before(url, LONG_S, standby=False), token=TOKEN) as newer:
            assert standby.process.wait(DEADLINE_S) != 0
            assert standby.errors().count("another scheduler has started on this store (epoch 2, this one has 1)") >= 1
            assert newer.http.post("/job", json=SLEEP).json() == {"id": 2}
            assert newer.http.get("/health").json()["role"] == "leader"


@contextmanager
def agent(urls: str, folder: Path, devices: int = 1) -> Iterator[None]:
    """An agent that knows all schedulers, in a process of its own."""
    words = [sys.executable, "-c", AGENT, str(folder), urls, f"cpu:{devices}:1GB", "node-1", "{}"]
    with subprocess.Popen(words) as process:
        try:
            yield
        finally:
            process.kill()


@pytest.mark.live
def test_jobs_go_on_and_others_start_under_the_standby(redis: RedisServer, tmp_path: Path) -> None:
    go = tmp_path / "go"
    waits = f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.05)"
    with (
        pair(redis.url("jobs"), tmp_path) as both,
        agent(both.urls, tmp_path / "agent"),
        Client(both.urls, TOKEN) as client,
    ):
        until(client.nodes)
        first, queued = [client.submit({"command": [sys.executable, "-c", waits]}) for _ in range(2)]
        until(lambda: client.job(first)["state"] in {"launching", "running"})
        both.first.process.kill()
        both.led_by_second()
        go.touch()
        until(lambda: client.job(queued)["state"] == "succeeded")
        shown = client.job(first)
        assert (shown["state"], len(shown["attempts"])) == ("succeeded", 1)


@pytest.mark.live
def test_a_leader_cut_off_from_its_store_is_silent_before_another_leads(redis: RedisServer, tmp_path: Path) -> None:
    """Its clients and its agents reach it all the while."""
    go, way = tmp_path / "go", redis.folder / "cut"
    waits = f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.05)"
    with ExitStack() as stack:
        between = stack.enter_context(proxy(way, redis.socket, b"colane_2_commit"))
        cut = before(f"unix://{way}?name=cut", LEASE_S, standby=False)
        waiting = before(redis.url("cut"), LEASE_S, standby=True)
        first = stack.enter_context(scheduler(tmp_path / "a", before=cut, token=TOKEN))
        both = Pair(first, stack.enter_context(scheduler(tmp_path / "b", before=waiting, token=TOKEN)))
        stack.enter_context(agent(both.urls, tmp_path / "agent"))
        client = stack.enter_context(Client(both.urls, TOKEN))
        until(client.nodes)
        job = client.submit({"command": [sys.executable, "-c", waits]})
        until(lambda: client.job(job)["state"] == "launching")
        between.part()
        assert first.http.post("/job", json=SLEEP).status_code == 503
        both.led_by_second()
        for path in ("/jobs", "/nodes", f"/job/{job}"):
            assert first.http.get(path).status_code == 503, path
        go.touch()
        until(lambda: client.job(job)["state"] == "succeeded")
        assert len(client.job(job)["attempts"]) == 1
        between.is_parted = False
        assert first.process.wait(DEADLINE_S) != 0
        assert "another scheduler has started on this store (epoch 2, this one has 1)" in first.errors()


class TestLead:
    """By one clock that tests set."""

    def test_another_can_lead_only_when_the_leader_is_silent(self) -> None:
        store, now = MemoryStore(), [0.0]
        lead = leading(store, now)
        now[0] = LEASE_S * 0.98
        assert lead.is_held
        lead.renew()
        assert store.version() == 2
        now[0] += LEASE_S
        assert not lead.is_held
        lead.commit(Transaction([Put(META, "x", {})]), 0)
        assert lead.is_held, "it has written, so none has taken over"

    def test_who_saw_an_older_version_is_refused(self) -> None:
        store, now = MemoryStore(), [0.0]
        lead = leading(store, now)
        seen_version = store.version()
        now[0] += LEASE_S / 2
        lead.renew()
        with pytest.raises(ConflictError):
            begin_epoch(store, 0.0, Leader(0, URL, LEASE_S), seen_version)
        begin_epoch(store, 0.0, Leader(0, URL, LEASE_S), store.version())
        known = LEADER.read(store.get(META, LEADER_KEY) or {})
        assert known == Leader(2, URL, LEASE_S)
        with pytest.raises(SupersededError):
            lead.commit(Transaction([Put(META, "x", {})]), 0)
        assert not lead.is_held

    def test_a_commit_taken_for_lost_is_found_by_the_next_renewal(self) -> None:
        store, now = MemoryStore(), [0.0]
        lead = leading(store, now)
        store.commit(Transaction([Put(META, "x", {})]), StoreWriter(1, None, lead.version))
        now[0] += LEASE_S / 2
        lead.renew()
        now[0] += LEASE_S * 0.6
        assert not lead.is_held

    def test_a_scheduler_that_hangs_does_not_go_on_leading(self) -> None:
        store, now = MemoryStore(), [0.0]
        lead = leading(store, now)
        for _ in range(int(HANGS_S) + 3):
            now[0] += 1.0
            lead.renew()
        known = store.version()
        now[0] += LEASE_S
        lead.renew()
        assert store.version() == known
        assert not lead.is_held
        lead.lives()
        lead.renew()
        assert lead.is_held

    def test_one_that_has_released_says_nothing(self) -> None:
        store, now = MemoryStore(), [0.0]
        lead = leading(store, now)
        lead.release()
        assert not lead.is_held
        assert LEADER.read(store.get(META, LEADER_KEY) or {}).released

    def test_without_a_lease_it_leads_for_ever(self) -> None:
        lead = Lead(MemoryStore(), None, lambda: 0.0)
        lead.renew()
        lead.release()
        assert lead.is_held


def leading(store: MemoryStore, now: list[float]) -> Lead:
    own = Leader(0, URL, LEASE_S)
    lead = Lead(store, LEASE_S, lambda: now[0])
    history = begin_epoch(store, 0.0, own, 0)
    lead.begin(history.current.number, 1, now[0], own._replace(epoch=history.current.number))
    return lead


async def test_what_a_standby_lacks_is_one_line(redis: RedisServer, tmp_path: Path) -> None:
    with pytest.raises(ServerError, match=r"standby: it reads the store of the scheduler that leads.*--store redis://"):
        await serve(ServerConfig(state_dir=tmp_path, port=0, standby=True, token=TOKEN))
    with pytest.raises(ServerError, match="standby: clients know both schedulers by one token: set COLANE_TOKEN"):
        await serve(ServerConfig(state_dir=tmp_path, port=0, standby=True, store=store_address(redis.url("x"))))
    store = store_address(redis.url("x"))
    off = ServerConfig(state_dir=tmp_path, port=0, standby=True, token=TOKEN, store=store, leader_lease_s=0.0)
    with pytest.raises(ServerError, match="standby: it leads once a lease has run out, so not with --leader-lease off"):
        await serve(off)
