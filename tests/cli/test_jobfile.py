from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from colane.cli.errors import MisuseError
from colane.cli.submit.jobfile import JobFile, merged, read_job_file, split_command


def read(tmp_path: Path, text: str, name: str = "job.yaml") -> JobFile:
    path = tmp_path / name
    path.write_text(text)
    return read_job_file(path)


def test_one_job(tmp_path: Path) -> None:
    file = read(tmp_path, "name: a\ncommand: python 'my train.py' --lr 0.1\ngpus: 2\ngpu_memory: 2GB\n")
    assert file.jobs == [
        {"name": "a", "command": ["python", "my train.py", "--lr", "0.1"], "gpus": 2, "gpu_memory": "2GB"}
    ]
    assert not file.is_batch


@pytest.mark.parametrize(
    "text",
    ["- command: a\n- command: b\n", "jobs:\n- command: a\n- command: b\n", "command: a\n---\ncommand: b\n"],
)
def test_several_jobs(tmp_path: Path, text: str) -> None:
    file = read(tmp_path, text)
    assert [job["command"] for job in file.jobs] == [["a"], ["b"]]
    assert file.is_batch


def test_values_of_env_and_labels_are_texts_as_written(tmp_path: Path) -> None:
    file = read(tmp_path, "command: a\nenv: {A: 1.10, B: yes, C: }\nlabels: {1: 007}\n")
    assert file.jobs[0]["env"] == {"A": "1.10", "B": "yes", "C": ""}
    assert file.jobs[0]["labels"]["1"] == "007"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("command: a\n gpus: 1\n", ":2: is not valid YAML"),
        ("command: [a\n", "is not valid YAML"),
        ("command: a\ngpus: 1\ngpus: 2\n", ":3: gpus: is given already in line 2"),
        ("command: a\nenv:\n  A: 1\n  A: 2\n", ":4: A: is given already in line 3"),
        ("command: a\ncwd: /x\n", ":2: cwd: is not a known field; did you mean workdir?"),
        ("command: a\ntimeout: 50ms\n", ":2: timeout: is not a known field; did you mean time_limit?"),
        ("command: a | b\n", ":1: command: '|' needs a shell; put it into a script, or give a list"),
        ("command: a $HOME\n", "'$HOME' needs a shell"),
        ("name: x\ncommand: |\n  a\n  b\n", ":2: command: has several lines"),
        ("command: a 'b\n", "no closing quotation"),
        ("just words\n", ":1: a job must be fields and values"),
        ("- command: a\n- words\n", ":2: a job must be fields and values"),
        ("jobs: 5\n", ":1: jobs: must be a list"),
        ("[]\n", "holds no job"),
        ("", "holds no job"),
        ("command: a\n---\n\tb", "is not valid YAML"),
        ("!!python/object/apply:os.system [ls]\n", "must be fields and values"),
        ("command: !!python/object/apply:os.system [ls]\n", ":1: is of a type that a job cannot have: python"),
    ],
)
def test_bad_yaml_names_line_and_field(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(MisuseError) as raised:
        read(tmp_path, text)
    message = str(raised.value.format_message())
    assert message.startswith(str(tmp_path / "job.yaml"))
    assert expected in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"model_name": "vgg19",}', ":1: is not valid JSON"),
        ("[1]", "job 1 must be an object, got 1"),
        ("[]", "holds no job"),
    ],
)  # fmt: skip
def test_bad_json(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(MisuseError) as raised:
        read(tmp_path, text, "job.json")
    assert expected in raised.value.format_message()


def test_paper_a_objects_stay_as_they_are(tmp_path: Path) -> None:
    whole = {"model_name": "vgg11", "batch_size": 128, "lr": 0.01, "dataset": "cifar10", "iters": 100}
    assert read(tmp_path, json.dumps(whole), "job.json").jobs == [whole]
    batch = read(tmp_path, json.dumps([whole]), "job.json")
    assert batch.is_batch
    assert read(tmp_path, json.dumps({"jobs": [whole, whole]}), "job.json").jobs == [whole, whole]


@pytest.mark.parametrize(("name", "expected"), [("missing.yaml", "No such file"), ("dir.yaml", "Is a directory")])
def test_unreadable_files(tmp_path: Path, name: str, expected: str) -> None:
    (tmp_path / "dir.yaml").mkdir()
    with pytest.raises(MisuseError) as raised:
        read_job_file(tmp_path / name)
    assert expected in raised.value.format_message()


def test_a_binary_file(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(MisuseError, match="UTF-8"):
        read_job_file(path)


def test_fields_are_found_in_their_lines(tmp_path: Path) -> None:
    file = read(tmp_path, "- command: a\n- command: b\n  labels:\n    x: y\n  gpus: 0\n")
    assert file.where("jobs[1].gpus") == (f"{file.path}:5", "gpus")
    assert file.where("jobs[1].labels.x") == (f"{file.path}:4", "labels.x")
    assert file.where("jobs[1].workdir") == (f"{file.path}:2", "workdir")
    single = read(tmp_path, "command: a\ngpus: 0\n")
    assert single.where("gpus") == (f"{single.path}:2", "gpus")


def test_layers_of_a_job() -> None:
    shell: dict[str, Any] = {"user": "me", "env": {"PATH": "/bin", "A": "shell", "B": "shell"}, "workdir": "/here"}
    job = {"workdir": "/there", "env": {"A": "file", "C": "file"}, "labels": {"x": "file"}}
    options = {"env": {"C": "option"}, "labels": {"y": "option"}, "gpus": 2}
    assert merged(job, options, shell) == {
        "user": "me",
        "workdir": "/there",
        "gpus": 2,
        "env": {"PATH": "/bin", "A": "file", "B": "shell", "C": "option"},
        "labels": {"x": "file", "y": "option"},
    }


def test_a_wrong_kind_is_left_for_the_scheduler_to_refuse() -> None:
    assert merged({"env": 5}, {}, {"env": {"A": "b"}})["env"] == 5


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("python train.py", ["python", "train.py"]),
        ("a --name='x y' \"z\"", ["a", "--name=x y", "z"]),
        ("a #b", ["a", "#b"]),
        ("a (b)c", None),
        ("a && b", None),
        ("a > b", None),
        ("a 2>&1", None),
    ],
)
def test_splitting_a_command(text: str, words: list[str] | None) -> None:
    if words is None:
        with pytest.raises(ValueError, match="needs a shell"):
            split_command(text)
    else:
        assert split_command(text) == words


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{this}: &{this} [{', '.join([f'*{before}'] * 9)}]\n" for before, this in pairwise("abcdefghij")
)
"""A billion laughs: half a kilobyte that stands for 9^10 values."""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (BOMB, "holds too much, or itself"),
        ("command: &a [*a]\n", ":1: holds too much, or itself"),
        ("command: a\nlabels: &a {b: *a}\n", "holds too much, or itself"),
        ("command: a\nname: !!binary aGk=\n", ":2: is of a type that a job cannot have: binary"),
        ("command: a\ngpus: !!set {a}\n", ":2: is of a type that a job cannot have: set"),
        ("command: a\ngpus: .nan\n", ":2: .nan is not a number"),
        ("command: a\nname: \x00\n", "is not valid YAML"),
        ('command: "a\\0b"\n', ":1: a text holds a NUL character"),
        ("[" * 5000, "is nested too deeply"),
    ],
    ids=range(9),
)
def test_what_is_no_job_in_any_json(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(MisuseError) as refused:
        read(tmp_path, text)
    assert expected in str(refused.value)


def test_a_date_is_the_text_it_is_written_as_and_aliases_are_what_they_stand_for(tmp_path: Path) -> None:
    file = read(tmp_path, "- command: a\n  name: 2020-01-01\n  labels: &l {b: c}\n- command: d\n  labels: *l\n")
    assert file.jobs[0]["name"] == "2020-01-01"
    assert file.jobs[1]["labels"] == {"b": "c"}
