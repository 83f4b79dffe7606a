"""How fast a machine moves GPU memory: the latest moves, kept over restarts, and nothing of a spoilt record."""

from __future__ import annotations

from pathlib import Path

import pytest

from colane.agent.running.move_speed import MOVES_MAX, RECORD, MoveSpeed

GB = 10**9


def test_both_ways_together_and_the_latest_moves_alone(tmp_path: Path) -> None:
    speed = MoveSpeed(tmp_path)
    assert (speed.bytes_per_s, speed.is_news) == (None, False)
    speed.note(9 * GB, 4.0)
    speed.note(9 * GB, 2.0)
    assert speed.bytes_per_s == 3 * GB
    assert speed.is_news
    assert speed.tell() == 3 * GB
    assert not speed.is_news
    for _ in range(MOVES_MAX):
        speed.note(10 * GB, 1.0)
    assert (speed.bytes_per_s, speed.is_news) == (10 * GB, True)
    assert MoveSpeed(tmp_path).bytes_per_s == 10 * GB


def test_a_small_move_says_nothing(tmp_path: Path) -> None:
    speed = MoveSpeed(tmp_path)
    speed.note(10**6, 3.0)
    speed.note(GB, 0.0)
    assert speed.bytes_per_s is None
    assert not (tmp_path / RECORD).exists()


@pytest.mark.parametrize("text", ["", "[]", '{"moves": 3}', '{"moves": [[1, "x"]]}', '{"moves": [[5000000000, -1]]}'])
def test_a_spoilt_record_is_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / RECORD).write_text(text)
    assert MoveSpeed(tmp_path).bytes_per_s is None
