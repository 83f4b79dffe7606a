"""What the built-in trainer knows, and how paper A's job object becomes its command. Needs no framework.

Source: paper A (Tabrizian 2020), the job object of its API and the five models of chapter 4. `EXTRA_FIELDS`
are Colane's own, for scaled-down runs.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from colane.workloads import cifar10

MODELS = ("resnet18", "resnet50", "se_resnet18", "vgg11", "vgg19")
DATASETS = ("cifar10", "digits", "synthetic")
OPTIMIZERS = ("adam", "adamw", "rmsprop", "sgd")
DEVICES = ("auto", "cpu", "cuda")

CLASSES = {"cifar10": cifar10.CLASSES, "digits": 10}
"""How many classes a dataset has; synthetic data has as many as asked for."""

IMAGE_SIDES_MIN = {"resnet18": 16, "resnet50": 16, "se_resnet18": 16, "vgg11": 32, "vgg19": 32}
"""Smallest image side, pixels: the last batch norm must see more than one pixel, whatever the batch size."""
IMAGE_SIDE_MAX = 1024

MODULE = "colane.workloads"

Problem = tuple[str, str]
"""(field, message that names the fix)."""


@dataclass(frozen=True)
class Field:
    """One field of the job object: how to judge its value, and the paper's own value as default."""

    default: object
    judge: Callable[[object], str | None]


def canonical(name: str, known: tuple[str, ...] = MODELS) -> str | None:
    """Return the catalogue's spelling of `name` ("VGG-19", "se-resnet-18", "CIFAR-10"), None if unknown."""
    wanted = _plain(name)
    return next((each for each in known if _plain(each) == wanted), None)


def _plain(name: str) -> str:
    return re.sub(r"[\s_.-]+", "", name).lower()


def _one_of(known: tuple[str, ...]) -> Callable[[object], str | None]:
    def judge(value: object) -> str | None:
        if not isinstance(value, str):
            return f"must be a name, got {value!r}; known: {', '.join(known)}"
        if canonical(value, known):
            return None
        near = difflib.get_close_matches(_plain(value), [_plain(each) for each in known], n=2)
        meant = [each for each in known if _plain(each) in near]
        hint = f"did you mean {' or '.join(meant)}? " if meant else ""
        return f"unknown {value!r}; {hint}known: {', '.join(known)}"

    return judge


def _whole(least: int, most: int = 2**31 - 1) -> Callable[[object], str | None]:
    def judge(value: object) -> str | None:
        if isinstance(value, bool) or not isinstance(value, int):
            return f"must be a whole number, got {value!r}"
        if value < least:
            return f"must be at least {least}, got {value}"
        return f"must be at most {most}, got {value}" if value > most else None

    return judge


def _real(*, least: float = 0.0, above: bool = False, below: float = math.inf) -> Callable[[object], str | None]:
    def judge(value: object) -> str | None:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return f"must be a finite number, got {value!r}"
        if value < least or (above and value == least):
            return f"must be {'more than' if above else 'at least'} {least:g}, got {value!r}"
        return f"must be less than {below:g}, got {value!r}" if value >= below else None

    return judge


def _path(value: object) -> str | None:
    if not isinstance(value, str) or not value or "\0" in value:
        return f"must be a path, got {value!r}"
    return None


FIELDS: Mapping[str, Field] = {
    "model_name": Field(None, _one_of(MODELS)),
    "batch_size": Field(128, _whole(1, 2**20)),
    "lr": Field(0.01, _real(above=True)),
    "dataset": Field("cifar10", _one_of(DATASETS)),
    "optim": Field("sgd", _one_of(OPTIMIZERS)),
    "iters": Field(100, _whole(1)),
    "dataset_path": Field("./data", _path),
    "workers": Field(2, _whole(0, 1024)),
    "weight_decay": Field(1e-4, _real()),
    "momentum": Field(0.1, _real(below=1.0)),
    "num_class": Field(10, _whole(2, 2**20)),
}
"""Exactly paper A's fields, with its example's values; `model_name` alone must be given."""

EXTRA_FIELDS: Mapping[str, Field] = {
    "image_size": Field(32, _whole(1, IMAGE_SIDE_MAX)),
    "augment": Field(0, _whole(0, 1000)),
    "width": Field(1.0, _real(above=True, below=16.0)),
    "seed": Field(None, _whole(0, 2**63 - 1)),
    "device": Field("auto", _one_of(DEVICES)),
    "checkpoint_dir": Field(None, _path),
    "checkpoint_every_s": Field(600.0, _real()),
}

_ALL = {**FIELDS, **EXTRA_FIELDS}
_NAMES = {"model_name": MODELS, "dataset": DATASETS, "optim": OPTIMIZERS, "device": DEVICES}


def problems(job_object: Mapping[str, Any], workdir: str | Path | None = None) -> list[Problem]:
    """Say what is wrong with a job object, field by field; empty when nothing is.

    Args:
        job_object: fields of `FIELDS` and `EXTRA_FIELDS` only; any other is a problem too.
        workdir: what a relative `dataset_path` is relative to; None leaves the files unlooked at, for a
            caller that does not see the job's file system.
    """
    found = [(name, _unknown(name)) for name in job_object if name not in _ALL]
    if job_object.get("model_name") is None:
        found.append(("model_name", f"is missing; one of {', '.join(MODELS)}"))
    for name, field in _ALL.items():
        message = field.judge(job_object[name]) if job_object.get(name) is not None else None
        if message:
            found.append((name, message))
    return found or _mismatches(_completed(job_object), workdir)


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, list(_ALL), n=1)
    return f"is not a field of a built-in job{f'; did you mean {near[0]}?' if near else ''}"


def _mismatches(job: Mapping[str, Any], workdir: str | Path | None) -> list[Problem]:
    """Judge fields against one another, once each is sound by itself."""
    found: list[Problem] = []
    classes = CLASSES.get(job["dataset"], job["num_class"])
    if job["num_class"] != classes:
        found.append(("num_class", f"must be {classes} for {job['dataset']}, got {job['num_class']}"))
    least = IMAGE_SIDES_MIN[job["model_name"]]
    if job["image_size"] < least:
        found.append(("image_size", f"must be at least {least} for {job['model_name']}, got {job['image_size']}"))
    if job["dataset"] == "cifar10" and workdir is not None:
        try:
            cifar10.locate(Path(workdir, Path(job["dataset_path"]).expanduser()))
        except (cifar10.DatasetError, OSError) as error:
            found.append(("dataset_path", f"{error}; or use dataset digits or synthetic"))
    return found


def _completed(job_object: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in defaults and the catalogue's own spelling of names."""
    job = {name: field.default for name, field in _ALL.items()}
    job.update((name, value) for name, value in job_object.items() if value is not None)
    for name, known in _NAMES.items():
        job[name] = canonical(str(job[name]), known)
    return job


def complete(job_object: Mapping[str, Any]) -> dict[str, Any]:
    """Return every field of `FIELDS` and the extra fields that were given, names in canonical spelling.

    Raises:
        ValueError: the object has problems (see `problems`).
    """
    found = problems(job_object)
    if found:
        raise ValueError("; ".join(f"{field}: {message}" for field, message in found))
    job = _completed(job_object)
    return {name: job[name] for name in _ALL if name in FIELDS or job_object.get(name) is not None}


SPEED_FIELDS = ("dataset", "workers", "image_size", "width")
"""What changes the speed of a model at a batch size, beside the machine."""


def family(job_object: Mapping[str, Any]) -> str:
    """Return the profile key of a job: its model, and what makes it quicker or slower than the paper's jobs of it.

    Raises:
        ValueError: the object has problems (see `problems`).
    """
    job = complete(job_object)
    others = (f"{name}={job[name]}" for name in SPEED_FIELDS if job.get(name, _ALL[name].default) != _ALL[name].default)
    return " ".join([str(job["model_name"]), *others])


def command(job_object: Mapping[str, Any]) -> list[str]:
    """Return the arguments that run the job, to be put after a Python interpreter: `-m colane.workloads ...`.

    Raises:
        ValueError: the object has problems (see `problems`).
    """
    job = complete(job_object)
    return ["-m", MODULE, *(part for name, value in job.items() for part in (option(name), _text(value)))]


def option(name: str) -> str:
    """Return the command-line option of a field."""
    return f"--{name.replace('_', '-')}"


def _text(value: object) -> str:
    text = repr(value) if isinstance(value, float) else str(value)
    return f"./{text}" if text.startswith("-") else text  # a path that would read as an option
