"""What the scheduler refuses is named as it was typed: the option on a command line, the field's line in a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from colane.cli import app
from colane.cli.app import make_app
from colane.cli.jobs import suspend
from colane.cli.submit.handing_in import complaint
from colane.cli.submit.jobfile import JobFile, read_job_file
from colane.cli.submit.scripts import missing_program
from colane.client.errors import Refused
from colane.client.typed_fields import as_typed, options_of
from colane.model.job_fields import JOB_FIELDS, JobField
from colane.model.problem import Problem

TYPED = JobFile(Path(), [{}])
WITH_OPTION = [field for field in JOB_FIELDS if field.option is not None]


@pytest.mark.parametrize("field", WITH_OPTION, ids=lambda field: field.name)
@pytest.mark.parametrize("place", ["", "jobs[0]."])
def test_an_option_is_named_in_place_of_its_field(field: JobField, place: str) -> None:
    assert field.option is not None
    for name in {field.name, field.said}:
        assert complaint(TYPED, f"{place}{name}", "is bad") == f"{field.option.names[0]}: is bad"


@pytest.mark.parametrize(
    ("field", "message", "said"),
    [
        ("labels.notify", "there is no channel 'x'", "--notify: there is no channel 'x'"),
        ("env.A", "must be text", "--env.A: must be text"),
        ("anti_collocation", "needs multi_node: no two", "--anti-collocation: needs --multi-node: no two"),
        ("gpu_memory", "give gpu_memory or gpu_memory_bytes", "--gpu-memory: give --gpu-memory or --gpu-memory"),
        ("family", "unknown 'gpu_type'; known: gpu_type=a", "--family: unknown 'gpu_type'; known: gpu_type=a"),
        ("command", "must not be empty", "command: must not be empty"),
        ("if_plan", "plan 7 does not hold any more", "plan 7 does not hold any more"),
        ("", "the body is too large", "the body is too large"),
    ],
)
def test_what_is_said_of_what_was_typed(field: str, message: str, said: str) -> None:
    assert complaint(TYPED, field, message) == said


def test_a_file_is_named_with_the_line_unless_an_option_says_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "jobs.yaml"
    path.write_text("- command: a\n  gpu_memory: 2GB\n  deadline: 1h\n")
    file = read_job_file(path)
    assert complaint(file, "jobs[0].deadline", "is too soon") == f"{path}:3: deadline: is too soon"
    typed = JobFile(path, file.jobs, file.lines, is_batch=True, overridden=frozenset({"deadline"}))
    assert complaint(typed, "jobs[0].deadline", "is too soon") == "--deadline: is too soon"
    assert complaint(typed, "jobs[0].gpu_memory", "is bad") == f"{path}:2: gpu_memory: is bad"


def test_every_command_knows_its_options_by_their_fields() -> None:
    commands: Any = get_command(make_app()).commands  # type: ignore[attr-defined] # typer's own type
    drain, change = (options_of(commands[name].params) for name in ("drain", "change"))
    assert as_typed("deadline_s", "must be more than 0", drain) == "--deadline: must be more than 0"
    assert as_typed("time_limit_s", "must be at most 5", change) == "--time-limit: must be at most 5"
    assert as_typed("reason_s", "x", change) == "reason_s: x"


def test_a_refusal_of_any_command_names_its_option(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise Refused(422, [Problem("time_limit", "must be at most 60m of qos short")])

    monkeypatch.setattr(suspend, "change", refuse)
    assert app.run(["change", "7", "--time-limit", "2h"]) == 2
    assert capsys.readouterr().err == "colane: --time-limit: must be at most 60m of qos short\n"


def test_a_command_in_quotes_is_told_from_a_program_that_is_missing(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"]}
    said = missing_program(["python3 train.py --lr 0.1"], env, str(tmp_path)) or ""
    assert "without the quotes, as its words, -- python3 train.py --lr 0.1, or" in said
    assert said.endswith("-- sh -c 'python3 train.py --lr 0.1'")
    assert "quotes" not in (missing_program(["no-such-program", "a b"], env, str(tmp_path)) or "quotes")
    assert missing_program(["python3"], env, str(tmp_path)) is None
