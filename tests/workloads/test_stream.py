"""The built-in job that uses up memory bandwidth."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

STREAM = [sys.executable, "-m", "colane.workloads", "stream"]


def test_it_copies_and_says_how_fast() -> None:
    run = subprocess.run([*STREAM, "--seconds", "0.5", "--threads", "2"], capture_output=True, text=True, check=True)
    assert float(re.findall(r"^([\d.]+) GB read and written in all$", run.stdout, re.MULTILINE)[-1]) >= 0.2


@pytest.mark.parametrize("threads", ["0", "-1", "two"])
def test_a_wrong_number_of_threads_is_named(threads: str) -> None:
    run = subprocess.run([*STREAM, f"--threads={threads}"], capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert f"must be a whole number from 1 up, got '{threads}'" in run.stderr
