"""The scheduler's records were lost: it counts its jobs from 1 again, and means others by the same numbers."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from colane.agent.files.heard import KnownHistory, as_text, from_text
from colane.agent.files.jobdir import LaunchFacts, StateDir
from colane.agent.reconcile import Key
from colane.agent.supervisor.command import Command
from tests.agent.agents import running
from tests.agent.fake_scheduler import FakeScheduler

pytestmark = pytest.mark.live


async def test_a_job_of_a_new_cluster_runs_though_one_of_its_number_has_ended_here(
    fake: FakeScheduler, tmp_path: Path, mark: dict[str, str]
) -> None:
    fake.cluster_id = "first"
    fake.want(1, "true", env=mark)
    fake.want(2, "sleep", "600", env=mark)
    async with running(tmp_path / "state", fake) as agent:
        await agent.until(lambda: (1, 1) in fake.ends and fake.launched(2))
        lost = FakeScheduler()
        fake.__dict__.update(lost.__dict__)
        fake.cluster_id = "second"
        fake.want(1, "sh", "-c", "exit 3", env=mark)
        await agent.until(lambda: fake.ends.get((1, 1), {}).get("exit_code") == 3)
        assert fake.ends[2, 1]["cluster_id"] == "first"
        assert fake.ends[1, 1]["cluster_id"] == "second"
    assert (tmp_path / "state" / "former" / "2-1").is_dir()


async def test_another_cluster_that_knows_this_node_is_followed_though_less_has_happened_on_it(
    fake: FakeScheduler, tmp_path: Path, mark: dict[str, str]
) -> None:
    """A copy of the store that was put back: the node is in it, and its generation is that of then."""
    fake.cluster_id = "first"
    fake.want(1, "sleep", "600", env=mark)
    async with running(tmp_path / "state", fake) as agent:
        await agent.until(lambda: fake.launched(1))
        for _ in range(50):  # much happens after the copy
            fake.want(2, "true", env=mark)
        await agent.until(lambda: (2, 1) in fake.ends)
        lost, nodes = FakeScheduler(), fake.nodes
        fake.__dict__.update({**lost.__dict__, "nodes": nodes, "cluster_id": "second"})
        fake.want(3, "true", env=mark)
        await agent.until(lambda: {(1, 1), (3, 1)} <= fake.ends.keys())
        assert (fake.ends[1, 1]["cluster_id"], fake.ends[3, 1]["cluster_id"]) == ("first", "second")
        assert fake.registrations == 0


async def test_a_scheduler_that_is_older_than_the_one_followed_is_not_obeyed(
    fake: FakeScheduler, tmp_path: Path, mark: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    newer, older = {"number": 2, "id": "b"}, {"number": 1, "id": "a"}
    fake.cluster_id, fake.epoch, fake.events = "one", newer, 40
    fake.want(1, "sleep", "600", env=mark)
    async with running(tmp_path / "state", fake) as agent:
        await agent.until(lambda: fake.launched(1))
        fake.epoch, fake.events = older, 900
        fake.end(1)
        fake.want(2, "true", env=mark)
        count = len(fake.reports)
        await agent.until(lambda: len(fake.reports) > count + 3)
        assert fake.launched(1)
        assert not fake.ends
        assert "older than the one this node follows" in caplog.text
        said = fake.reports[-1]
        assert (said["epoch"], said["events_seen"], said["version_seen"]) == (newer, 40, 40)
    async with running(tmp_path / "state", fake) as agent:  # it is remembered
        count = len(fake.reports)
        await agent.until(lambda: len(fake.reports) > count + 2)
        assert fake.launched(1)
        assert fake.reports[-1]["epoch"] == newer
        fake.epoch = {"number": 3, "id": "c"}
        await agent.until(lambda: {(1, 1), (2, 1)} <= fake.ends.keys())


async def test_an_end_that_an_older_scheduler_takes_is_told_again(
    fake: FakeScheduler, tmp_path: Path, mark: dict[str, str]
) -> None:
    fake.cluster_id, fake.epoch = "one", {"number": 2, "id": "b"}
    fake.want(1, "sleep", "600", env=mark)
    async with running(tmp_path / "state", fake) as agent:
        await agent.until(lambda: fake.launched(1))
        fake.epoch = {"number": 1, "id": "a"}
        os.kill(int((fake.launched(1) or {})["pid"]), signal.SIGKILL)
        await agent.until(lambda: fake.told[1, 1] > 2)
        assert not (tmp_path / "state" / "ended" / "1-1").exists()
        fake.epoch = {"number": 3, "id": "c"}
        told = fake.told[1, 1]
        await agent.until((tmp_path / "state" / "ended" / "1-1").exists)
        assert fake.told[1, 1] > told


async def test_what_was_heard_of_a_former_cluster_is_not_held_against_a_new_one(
    fake: FakeScheduler, tmp_path: Path, mark: dict[str, str]
) -> None:
    fake.cluster_id, fake.epoch, fake.events = "first", {"number": 9, "id": "x"}, 400
    async with running(tmp_path / "state", fake) as agent:
        await agent.until(lambda: fake.reports and fake.reports[-1]["epoch"])
        fake.cluster_id, fake.epoch, fake.events = "second", {"number": 1, "id": "y"}, 2
        fake.want(1, "true", env=mark)
        await agent.until(lambda: fake.ends)
        await agent.until(lambda: fake.reports[-1]["epoch"] == fake.epoch)
        assert fake.reports[-1]["events_seen"] == 2


class TestHeard:
    def test_versions_are_counted_within_one_start(self) -> None:
        heard = KnownHistory(2, "b", 7, 9)
        assert heard.with_news(KnownHistory(2, "b", 6, 8)) == heard
        assert heard.with_news(KnownHistory(3, "c", 8, 1)) == KnownHistory(3, "c", 8, 1)

    @pytest.mark.parametrize(
        ("text", "heard"),
        [
            (None, KnownHistory()),
            ("", KnownHistory()),
            ("41\n", KnownHistory(events=41)),
            ("-3", KnownHistory()),
            ("[]", KnownHistory()),
            ('{"epoch": "two"}', KnownHistory()),
            ('{"epoch": 2, "epoch_id": "b", "events": 7, "new": 1}', KnownHistory(2, "b", 7)),
            ('{"epoch": 2, "epoch_id": "b", "events": 7, "version": 9}', KnownHistory(2, "b", 7, 9)),
            ('{"epoch": 2, "epoch_id": "b", "events": 7, "version": "x"}', KnownHistory()),
        ],
    )
    def test_is_read_whatever_has_written_it(self, text: str | None, heard: KnownHistory) -> None:
        assert from_text(text) == heard
        assert from_text(as_text(heard)) == heard

    def test_is_on_disk_before_a_job_is(self, tmp_path: Path) -> None:
        command = Command(("true",), str(tmp_path), {}, grace_s=0.2)
        state = StateDir(tmp_path)
        state.join("one")
        state.note(KnownHistory(1, "a", 5))
        assert kept_in(tmp_path) == KnownHistory(1, "a", 5), "a new start at once"
        state.note(KnownHistory(1, "a", 6))
        assert kept_in(tmp_path) == KnownHistory(1, "a", 5), "events of it now and then"
        state.prepare(Key(7, 1), command, LaunchFacts("boot", 1.0))
        assert kept_in(tmp_path) == KnownHistory(1, "a", 6)
        state.note(KnownHistory(1, "a", 7))
        state.deliver(state.job_dir(Key(7, 1)))
        assert kept_in(tmp_path) == KnownHistory(1, "a", 7), "an end that is known is known to have been told"
        state.note(KnownHistory(1, "a", 8))
        (tmp_path / "events.new").mkdir()  # it cannot be written
        with pytest.raises(OSError, match="directory"):
            state.prepare(Key(8, 1), command, LaunchFacts("boot", 1.0))
        assert not state.job_dir(Key(8, 1)).path.exists()
        state.close()


def kept_in(root: Path) -> KnownHistory:
    return from_text((root / "events").read_text())
