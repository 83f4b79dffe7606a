"""Notice of the machine's end: what is written is understood, and a command is asked until it is there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from colane.agent.link import notice
from colane.agent.link.notice import Notice, NoticeWatch, parse_notice
from tests.agent.waiting import DEADLINE_S

UNIX_S = 1_800_000_000.0
"""2027-01-15T08:00:00Z."""


@pytest.mark.parametrize(
    ("text", "reason", "left_s"),
    [
        ("", "", None),
        ("120 spot instance is taken back\nmore", "spot instance is taken back", 120.0),
        ("30s", "", 30.0),
        ("2027-01-15T08:02:00Z terminate", "terminate", 120.0),
        ("2027-01-15T09:02:00+01:00", "", 120.0),
        ("2027-01-15T07:00:00Z late", "late", 0.0),
        ("maintenance at night", "maintenance at night", None),
        ("-5 minutes", "-5 minutes", None),
        ("nan what", "nan what", None),
        ("TRUE\x07\x1b[31m", "TRUE[31m", None),
    ],
)
def test_what_is_written_is_understood(text: str, reason: str, left_s: float | None) -> None:
    known = parse_notice(text, 7.0, UNIX_S)
    assert (known.reason, known.until_s) == (reason, None if left_s is None else pytest.approx(7.0 + left_s))


def test_jobs_are_told_to_go_before_the_machine_does() -> None:
    assert Notice("", None).told(10.0) == {"reason": "", "left_s": None}
    assert Notice("x", 0.0).told(10.0)["left_s"] == 0.0


def test_a_file_counts_from_when_it_was_seen_until_it_goes(tmp_path: Path) -> None:
    file = tmp_path / "notice"
    watch = NoticeWatch(file, "", lambda: None)
    assert watch.look() is None
    file.write_text("120 spot")
    first = watch.look()
    assert first is not None
    assert watch.look() == first
    watch.leave("told to stop", 60.0)
    sooner = watch.look()
    assert sooner is not None
    assert sooner.reason == "told to stop"
    file.unlink()
    file.mkdir()
    watch.look()
    assert "cannot be read: Is a directory" in watch.messages()[0]


async def test_a_command_is_asked_until_it_has_notice_and_one_that_cannot_be_run_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notice, "ASKED_EVERY_S", 0.01)
    there, news = tmp_path / "there", asyncio.Event()
    watch = NoticeWatch(None, f"cat {there}", news.set)
    watch.start()
    async with asyncio.timeout(DEADLINE_S):
        there.write_text("100 spot")
        await news.wait()
        known = watch.look()
        assert known is not None
        assert known.reason == "spot"
        news.clear()
        there.unlink()
        await news.wait()
    assert watch.look() is None
    await watch.close()
    broken = NoticeWatch(None, "/no/such/program", news.set)
    news.clear()
    broken.start()
    async with asyncio.timeout(DEADLINE_S):
        await news.wait()
    assert "cannot be run: /no/such/program" in broken.messages()[0]
    await broken.close()


async def test_a_command_that_hangs_is_ended_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notice, "ANSWERS_WITHIN_S", 0.05)
    news = asyncio.Event()
    watch = NoticeWatch(None, "sleep 1000 & wait", news.set)
    watch.start()
    async with asyncio.timeout(DEADLINE_S):
        await news.wait()
    assert "does not answer within" in watch.messages()[0]
    await watch.close()


def test_a_suspicion_is_notice_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = NoticeWatch(None, "", lambda: None)
    watch.suspect("a job there was ended")
    assert watch.look() == Notice("a job there was ended", None)
    watch.leave("its agent was told to stop", 10.0)
    seen = watch.look()
    assert seen is not None
    assert seen.reason == "its agent was told to stop"
    monkeypatch.setattr(notice, "SUSPECTED_FOR_S", 0.0)
    watch = NoticeWatch(None, "", lambda: None)
    watch.suspect("a job there was ended")
    assert watch.look() is None
