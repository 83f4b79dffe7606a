"""What people who know Slurm type first: its times, its scripts, its directives, data on standard input."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from colane.cli.errors import MisuseError
from colane.cli.submit.scripts import directives, dos_breaks, runnable
from tests.cli.conftest import Colane


@pytest.mark.parametrize("text", ["1", "90", "1.5", " 30 "])
def test_a_bare_time_limit_is_refused_with_both_readings(colane: Colane, text: str) -> None:
    said = colane("submit", "-t", text, "--", "true")
    assert said.code == 2
    assert f"say {text.strip()}s for seconds, or {text.strip()}m for minutes as Slurm reads {text.strip()}" in said.err


@pytest.mark.parametrize("text", ["10m", "00:10:00", "1-00:00", "1h30m", "90s", "2d"])
def test_times_with_a_unit_are_taken(colane: Colane, text: str) -> None:
    """They get as far as the scheduler, of which there is none."""
    assert colane("submit", "-t", text, "--", "true").code == 1


def test_a_time_limit_that_is_no_time_is_refused_before_anybody_is_asked(colane: Colane) -> None:
    said = colane("submit", "-t", "soon", "--", "true")
    assert said.code == 2
    assert "must be a duration such as" in said.err


def test_a_script_is_run_by_its_bare_name(tmp_path: Path) -> None:
    (tmp_path / "s.sh").write_text("echo hello\n")
    (tmp_path / "first.sh").write_text("#!/bin/sh -e\necho hello\n")
    (tmp_path / "train.py").write_text("print(1)\n")
    (tmp_path / "data.bin").write_text("x")
    there = str(tmp_path)
    assert runnable(["s.sh", "a"], there) == ["bash", "s.sh", "a"]
    assert runnable(["first.sh"], there) == ["/bin/sh", "-e", "first.sh"]
    assert runnable(["train.py", "--lr", "1"], there)[0] in {"python", "python3"}
    assert runnable(["./s.sh"], there) == ["./s.sh"]
    assert runnable(["nowhere.sh"], there) == ["nowhere.sh"]
    with pytest.raises(MisuseError, match=r"data\.bin is a file and no program; name what runs it"):
        runnable(["data.bin"], there)


def test_directives_are_said_not_to_be_read_and_translated(tmp_path: Path) -> None:
    (tmp_path / "s.sh").write_text(
        "#!/bin/bash\n#SBATCH --job-name=resnet\n#SBATCH -t 30 # half an hour\n#SBATCH --gres=gpu:a100:2\n"
        "#SBATCH --mem=4G\n#SBATCH -c4\n#SBATCH --mail-user=me@x\npython train.py\n"
    )
    said = directives(["bash", "s.sh", "arg"], str(tmp_path))
    assert said is not None
    assert "s.sh has #SBATCH lines, which colane submit does not read" in said
    assert "colane submit --name resnet --time-limit 30m --gpus 2 --host-memory 4GiB --cores 4 s.sh" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "#!/bin/sh\n#COLANE --gpus 2 -l 'a=b c' # ours\ntrue\n",
            (
                "s.sh has #COLANE lines, which colane submit does not read; sbatch does (colane shims); as options: "
                "colane submit --gpus 2 -l 'a=b c' s.sh"
            ),
        ),
        (
            "#!/bin/sh\n#SBATCH -c2\n#COLANE --retries 1\ntrue\n#SBATCH -t 5\n",
            (
                "s.sh has #COLANE and #SBATCH lines, which colane submit does not read; what of it Colane knows, as "
                "options: colane submit --cores 2 --retries 1 s.sh; lines behind the first command of s.sh are not "
                "read by Slurm either: 5"
            ),
        ),
        (
            "#!/bin/sh\ntrue\n#SBATCH -t 5\n",
            "lines behind the first command of s.sh are not read by Slurm either: 3",
        ),
        ("#!/bin/sh\n#COLANE is named here\n", None),
    ],
)
def test_whose_lines_are_read_by_which_program_is_said(tmp_path: Path, text: str, said: str | None) -> None:
    (tmp_path / "s.sh").write_text(text)
    assert directives(["s.sh"], str(tmp_path)) == said


@pytest.mark.parametrize("command", [["python", "train.py"], ["bash", "-c", "true"], [], None, ["nowhere.sh"]])
def test_commands_without_directives_are_not_spoken_of(tmp_path: Path, command: object) -> None:
    assert directives(command, str(tmp_path)) is None


def test_standard_input_that_a_job_will_not_read_is_spoken_of(colane: Colane, tmp_path: Path) -> None:
    file = tmp_path / "in.txt"
    file.write_text("1 2 3\n")
    kept = os.dup(0)
    try:
        for source, is_said in ((file, True), (Path(os.devnull), False)):
            handle = os.open(source, os.O_RDONLY)
            os.dup2(handle, 0)
            os.close(handle)
            said = colane("submit", "--", "cat")
            assert ("a job does not read standard input; --input - hands it on" in said.err) is is_said
        read, write = os.pipe()
        os.dup2(read, 0)
        assert "standard input" not in colane("submit", "--", "cat").err  # an open pipe that has not been filled
        os.write(write, b"data")
        assert "a job does not read standard input" in colane("submit", "--", "cat").err
        os.close(read)
        os.close(write)
    finally:
        os.dup2(kept, 0)
        os.close(kept)


@pytest.mark.parametrize(
    ("command", "text", "is_refused"),
    [
        (["bash", "s"], b"echo hi\r\n", True),
        (["./s"], b"#!/usr/bin/env python3\r\nprint()\r\n", True),
        (["/bin/sh", "-e", "s"], b"#!/bin/sh\r\n", True),
        (["python", "s"], b"print()\r\n", False),
        (["bash", "s"], b"echo hi\n", False),
        (["./s"], b"\x7fELF\r\n", False),
    ],
)
def test_scripts_with_dos_line_breaks_are_refused_where_these_are_not_read(
    tmp_path: Path, command: list[str], text: bytes, is_refused: bool
) -> None:
    (tmp_path / "s").write_bytes(text)
    said = dos_breaks(command, str(tmp_path))
    assert (said is not None and "has DOS line breaks" in said and "sed -i" in said) is is_refused
