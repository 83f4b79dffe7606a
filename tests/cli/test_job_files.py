"""Files that a job writes and reads, from the shell: `--output`, `--input`."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from tests.cli.conftest import Colane

pytestmark = pytest.mark.live


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def done(live: Colane, *words: str) -> str:
    said = live("submit", *words)
    assert said.code == 0, said
    job = said.out.split()[-1]
    assert live("wait", job).code == 0, live("why", job)
    return job


def test_each_element_of_an_array_has_its_files(live: Colane, here: Path) -> None:
    for index in (0, 1):
        (here / f"{index}.txt").write_text(f"part {index}\n")
    array = done(live, "-a", "0-1", "-J", "sort", "-o", "logs/%x-%A-%a.out", "-i", "%a.txt", "--gpus", "0", "--", "cat")
    for index in (0, 1):
        assert (here / f"logs/sort-{array}-{index}.out").read_text() == f"part {index}\n"
        assert live("logs", f"{array}[{index}]").out == f"part {index}\n"


def test_standard_input_is_handed_on(live: Colane, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"from a pipe\n")))
    said = live("submit", "--input", "-", "--gpus", "0", "--wait", "--", "cat")
    assert (said.code, said.out) == (0, "from a pipe\n")
    assert [path.stat().st_mode & 0o777 for path in here.glob(".colane/*.input")] == [0o600]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-o", "%q"], "output: has '%q'; known are %j (the job's id)"),
        (["-o", "%a"], "output: has %a, which is of arrays: give --array, or leave it out"),
        (["-a", "0-1", "-o", "all.out"], "--output: would be one file for all elements of the array: put %a or %j in"),
        (["-i", "%q"], "input: has '%q'"),
    ],
)
def test_a_name_that_cannot_be_is_refused(live: Colane, words: list[str], said: str) -> None:
    told = live("submit", *words, "--", "true")
    assert told.code == 2
    assert said in told.err


def test_a_file_that_is_not_there_is_named(live: Colane) -> None:
    said = live("submit", "--wait", "--gpus", "0", "-i", "nowhere.txt", "--", "cat")
    assert said.code == 1
    assert "input 'nowhere.txt': No such file or directory" in said.err
