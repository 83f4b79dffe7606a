"""What `logs -n` begins at, and what goes along from the submitting shell."""

from __future__ import annotations

import pytest

from colane.cli.jobs import logs
from colane.cli.submit.command import shell_environment
from colane.client.client import LogPart
from colane.client.errors import Refused
from colane.model.problem import Problem


class FakeLog:
    """A log as the scheduler gives it."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def log(self, offset: int, limit: int) -> LogPart:
        assert limit <= logs.PIECE_BYTES, "more is refused"
        start = max(len(self.data) + offset, 0) if offset < 0 else offset
        part = self.data[start : start + limit]
        return LogPart(part, start + len(part))


BARS = b"".join(b"\r%6d/200000 [00:10<00:10, 99.9it/s]" % number + b"#" * 50 for number in range(100_000))


@pytest.mark.parametrize(
    ("data", "lines", "last"),
    [
        (b"a\nb\nc\n", 2, b"b\nc\n"),
        (b"a\nb\nc", 1, b"c"),
        (b"a\r\nb\r\nc\r\n", 2, b"b\r\nc\r\n"),
        (b"", 3, b""),
        (b"a\n", 0, b""),
        (BARS + b"\nthe last words\n", 1, b"the last words\n"),
        (b"x" * (5 * 2**20) + b"\nend\n", 1, b"end\n"),
        (b"first\n" + b"x" * (5 * 2**20) + b"\nend\n", 2, b"x" * (5 * 2**20) + b"\nend\n"),
    ],
    ids=range(8),
)
def test_the_last_lines_whatever_ends_them(data: bytes, lines: int, last: bytes) -> None:
    offset, _ = logs.last_lines(FakeLog(data).log, lines)
    assert data[offset:] == last


def test_a_progress_bar_without_a_newline_has_lines_too() -> None:
    assert len(BARS) > 2 * 4 * 2**20
    offset, _ = logs.last_lines(FakeLog(BARS).log, 3)
    assert BARS[offset:].count(b"it/s]") == 3


ONE, TWO, THREE = b"1a\n1b\n1c\n", b"2a\r2b\n", b"3a\n3b"


@pytest.mark.parametrize(
    ("kept", "lines", "begin"),
    [
        ([ONE, TWO, THREE], 0, (3, 5)),
        ([ONE, TWO, THREE], 1, (3, 3)),
        ([ONE, TWO, THREE], 2, (3, 0)),
        ([ONE, TWO, THREE], 3, (2, 3)),
        ([ONE, TWO, THREE], 5, (1, 6)),
        ([ONE, TWO, THREE], 7, (1, 0)),
        ([ONE, TWO, THREE], 99, (1, 0)),
        ([ONE, b"", THREE], 3, (1, 6)),
        ([ONE, None, THREE], 3, (1, 6)),
        ([ONE, TWO, None], 1, (2, 3)),
        ([None, TWO, THREE], 99, (1, 0)),
    ],
)
def test_the_last_lines_of_several_attempts(kept: list[bytes | None], lines: int, begin: tuple[int, int]) -> None:
    """Of one whose node is away there is nothing to count."""

    def read(attempt: int | None, offset: int, limit: int) -> LogPart:
        data = kept[(attempt or 0) - 1]
        if data is None:
            raise Refused(502, [Problem("", "the agent does not answer")])
        return FakeLog(data).log(offset, limit)

    assert logs.begin_of_last(read, [1, 2, 3], lines) == begin


def test_who_the_shell_is_in_another_launch_does_not_go_along(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "SLURM_JOB_ID",
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "TORCHELASTIC_RUN_ID",
    ):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("RANKED", "mine")
    kept = shell_environment()
    assert kept["RANKED"] == "mine"
    assert not {"SLURM_JOB_ID", "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "TORCHELASTIC_RUN_ID"} & {*kept}


def test_a_variable_that_is_no_text_is_left_out_with_a_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ODD", "a\udcff")
    assert "ODD" not in shell_environment()
    assert "the variable ODD does not go along: it is not UTF-8" in capsys.readouterr().err
