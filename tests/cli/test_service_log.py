"""What a service says where no journal keeps it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SAYS = """
import logging
from colane.cli.service import command
command.LOG_MAX_BYTES = 2_000
command.log_to_stderr("agent")
for number in range(100):
    logging.getLogger("x").warning("line %d", number)
"""
DATED = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} colane agent: line \d+"


def said_to(stderr: object) -> str:
    done = subprocess.run([sys.executable, "-c", SAYS], stderr=stderr, check=True, text=True)  # type: ignore[call-overload]
    return str(done.stderr)


@pytest.mark.parametrize("mode", ["w", "a"])
def test_a_file_has_dated_lines_and_is_begun_anew(tmp_path: Path, mode: str) -> None:
    log = tmp_path / "agent.log"
    with log.open(mode) as opened:
        said_to(opened)
    now, before = log.read_text().splitlines(), (tmp_path / "agent.log.1").read_text().splitlines()
    assert all(re.fullmatch(DATED, line) for line in [*before, *now])
    numbers = [int(line.split()[-1]) for line in [*before, *now]]
    assert numbers == [*range(numbers[0], 100)], "nothing between is lost"
    assert len("\n".join(before)) < 2_200


def test_a_journal_dates_lines_itself() -> None:
    assert said_to(subprocess.PIPE).splitlines()[0] == "colane agent: line 0"
