"""What may be brought about as often as a caller likes is written once a minute."""

from __future__ import annotations

import logging

from colane.listening.seldom import KINDS_MAX, PERIOD_S, Seldom


def test_a_message_is_told_once_in_a_period_with_how_often_it_came() -> None:
    now_s = 0.0
    seldom = Seldom(clock=lambda: now_s)
    told = list[str | None]()
    for second in range(181):
        now_s = float(second)
        told += [seldom.due(f"the store is away (try {second})"), seldom.due(f"port {second} refuses")]
    lines = [line for line in told if line is not None]
    assert len(lines) == 2 * (1 + 180 // int(PERIOD_S))
    assert lines[2] == "the store is away (try 60) (and 59 more such since this was last said)"


def test_kinds_without_number_take_no_memory() -> None:
    seldom = Seldom(clock=lambda: 0.0)
    for number in range(10 * KINDS_MAX):
        seldom.due("x" * number)
    assert len(seldom._told) == KINDS_MAX


def test_other_messages_of_a_logger_pass() -> None:
    seldom = Seldom({"noise"}, clock=lambda: 0.0)
    record = logging.LogRecord("a", logging.INFO, "", 0, "news %d", (7,), None)
    assert all(seldom.filter(record) for _ in range(3))
    assert [seldom.filter(logging.LogRecord("a", 30, "", 0, "noise", (), None)) for _ in range(3)] == [
        True, False, False
    ]  # fmt: skip
