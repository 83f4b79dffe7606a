"""Terminals of jobs on their machine: what is typed, what is left, who is there."""

from __future__ import annotations

import asyncio
import json
import os
import select
import time
from pathlib import Path

import pytest

from colane.agent.running.terminals import SHOWN_MAX_BYTES, TypedWords, at_terminal
from colane.agent.supervisor import shim_terminal
from colane.agent.supervisor.shim_terminal import KEYS, LEFT_MAX_S, SIZE, TYPED, TYPED_MAX_BYTES, Terminal, message


@pytest.fixture
def ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Terminal, int, select.poll]:
    """A terminal in a job's directory, and its job's end."""
    monkeypatch.chdir(tmp_path)
    ours, jobs = shim_terminal.open_terminal(())
    os.set_blocking(ours, False)
    poll, terminal = select.poll(), Terminal(ours)
    terminal.listen(poll)
    return terminal, jobs, poll


async def test_what_is_typed_arrives_whole_however_many_type(
    ends: tuple[Terminal, int, select.poll], tmp_path: Path
) -> None:
    terminal, jobs, poll = ends
    for text in ("bHM=", "IC1sCg=="):  # "ls", " -l\n"
        await at_terminal(tmp_path, TypedWords.read(json.dumps({"typed": text, "rows": 31, "columns": 97}).encode()))
    while poll.poll(0):
        terminal.hear()
    assert os.read(jobs, 100) == b"ls -l\n"
    assert tuple(os.get_terminal_size(jobs)) == (97, 31)
    assert (tmp_path / KEYS).stat().st_mode & 0o777 == 0o600


def test_a_job_that_does_not_read_keeps_nothing_waiting_and_loses_what_is_too_much(
    ends: tuple[Terminal, int, select.poll], tmp_path: Path
) -> None:
    terminal, _, poll = ends
    fd = os.open(tmp_path / KEYS, os.O_WRONLY | os.O_NONBLOCK)
    for _ in range(200):
        os.write(fd, message(TYPED, b"x" * 1000))
        while poll.poll(0):
            terminal.hear()
    assert len(terminal._typed) <= TYPED_MAX_BYTES
    assert terminal.look_ms < 100


def test_nonsense_in_the_pipe_is_passed_over(ends: tuple[Terminal, int, select.poll], tmp_path: Path) -> None:
    terminal, jobs, poll = ends
    fd = os.open(tmp_path / KEYS, os.O_WRONLY | os.O_NONBLOCK)
    for sent in (message(b"?", b"what"), message(SIZE, b"x"), message(SIZE, b""), message(TYPED, b"echo\n")):
        os.write(fd, sent)
    while poll.poll(0):
        terminal.hear()
    assert os.read(jobs, 100) == b"echo\n"


def test_it_is_left_once_nobody_was_there_for_an_hour(
    ends: tuple[Terminal, int, select.poll], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal, _, poll = ends
    now_s = time.monotonic()
    assert not terminal.is_left(now_s + LEFT_MAX_S / 2)
    assert terminal.is_left(now_s + LEFT_MAX_S + 1)
    monkeypatch.setattr("colane.agent.supervisor.shim_terminal.time.monotonic", lambda: now_s + LEFT_MAX_S)
    asyncio.run(at_terminal(tmp_path, TypedWords()))
    while poll.poll(0):
        terminal.hear()
    assert not terminal.is_left(now_s + LEFT_MAX_S + 1), "to look is to be there"


async def test_output_is_waited_for_until_it_comes_or_the_job_has_ended(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / KEYS)
    os.open(tmp_path / KEYS, os.O_RDWR | os.O_NONBLOCK)
    (tmp_path / "log.0").write_bytes(b"before ")
    waiting = asyncio.create_task(at_terminal(tmp_path, TypedWords(offset=7, wait_s=10.0)))
    await asyncio.sleep(0)
    (tmp_path / "log.0").write_bytes(b"before after")
    assert (await waiting)[:] == (b"after", 12)
    (tmp_path / "exit").write_text(json.dumps({}))
    assert (await at_terminal(tmp_path, TypedWords(offset=12, wait_s=10.0)))[:] == (b"", 12)


async def test_a_job_without_one_is_told_from_one_whose_terminal_is_hung_up(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await at_terminal(tmp_path, TypedWords(offset=0))
    with pytest.raises(FileNotFoundError):
        await at_terminal(None, TypedWords(offset=0))
    (tmp_path / "log.0").write_bytes(b"the end")
    assert (await at_terminal(tmp_path, TypedWords(offset=0))).data == b"the end"


@pytest.mark.parametrize("body", [b"", b"[]", b"7", b'{"typed": 7}', b'{"typed": "not base 64"}'])
def test_what_is_no_word_of_a_scheduler_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        TypedWords.read(body)


async def test_what_a_job_shows_without_end_comes_in_pieces(tmp_path: Path) -> None:
    (tmp_path / "log.0").write_bytes(b"y\n" * SHOWN_MAX_BYTES)
    behind = 0
    for _ in range(2):
        part = await at_terminal(tmp_path, TypedWords(offset=behind))
        assert (len(part.data), part.next_offset) == (SHOWN_MAX_BYTES, behind + SHOWN_MAX_BYTES)
        behind = part.next_offset
