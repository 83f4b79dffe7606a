"""What a compiling build writes out of records is what `dataclasses` makes of them."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from dataclasses import field, fields, is_dataclass, make_dataclass
from pathlib import Path
from typing import Any

import pytest

from colane.model.job_spec import JobSpec

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
SCRIPT = ROOT / "scripts" / "write_records.py"


HEAD = "from dataclasses import dataclass, field\nfrom typing import Final\n"


def script() -> Any:
    spec = importlib.util.spec_from_file_location("write_records", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


WRITE = script()
MODULES = [path for path in sorted(SOURCE.rglob("*.py")) if WRITE.MARK in path.read_text()]


MADE = inspect.signature(make_dataclass("Any", [("a", dict, field(default_factory=dict))])).parameters["a"].default


def parameters(record: type) -> list[tuple[str, object, object]]:
    """Of its `__init__`; a default made anew is None where it is written out, and a function is told by its name."""
    found = inspect.signature(record).parameters.values()
    defaults = [one.default.__name__ if inspect.isfunction(one.default) else one.default for one in found]
    return [(one.name, one.kind, None if made is MADE else made) for one, made in zip(found, defaults, strict=True)]


def test_there_are_records() -> None:
    assert {"plan.py", "load.py", "events.py"} <= {path.name for path in MODULES}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_it_takes_and_keeps_what_the_source_does(path: Path) -> None:
    name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
    text = WRITE.written_out(path.read_text())
    assert WRITE.MARK not in text, "every record is written out"
    source = importlib.import_module(name)
    made = {"__name__": name}
    exec(compile(text, path, "exec"), made)  # noqa: S102 - source of ours, as the build makes it
    for known in vars(source).values():
        if not (inspect.isclass(known) and is_dataclass(known) and known.__module__ == name):
            continue
        record: Any = made[known.__name__]
        assert parameters(record) == parameters(known), known.__name__
        if all(one.init for one in fields(known)) and parameters(known) and WRITE.MARK in inspect.getsource(known):
            given = {one.name: object() for one in fields(known)}
            kept = record(**given)
            assert {name: getattr(kept, name) for name in given} == given
            assert "def __init__" not in inspect.getsource(known)


def test_a_default_that_is_made_anew_is_so_in_each_record() -> None:
    text = f"{HEAD}{WRITE.MARK}\nclass A:\n    x: Final[dict] = field(default_factory=dict)\n"
    made: dict[str, Any] = {"__name__": "builtins"}
    exec(WRITE.written_out(text), made)  # noqa: S102 - the text above
    one, other = made["A"](), made["A"]()
    one.x["a"] = 1
    assert (one.x, other.x, made["A"]({"b": 2}).x) == ({"a": 1}, {}, {"b": 2})


def test_what_is_worked_out_is_no_argument() -> None:
    body = "    x: int = 1\n    y: int = field(init=False, compare=False)\n"
    after = "    def __post_init__(self) -> None:\n        self.y = 2 * self.x\n"
    made: dict[str, Any] = {"__name__": "builtins"}
    exec(WRITE.written_out(f"{HEAD}{WRITE.MARK}\nclass A:\n{body}{after}"), made)  # noqa: S102 - the text above
    assert [made["A"](3).y, made["A"]().y] == [6, 2]
    assert not fields(made["A"])[1].compare


def test_what_is_worked_out_and_copied_is_the_same() -> None:
    given: dict[str, Any] = {
        "name": "a",
        "family": "f",
        "gpus": 4,
        "sizes": (1, 4),
        "deadline_s": 5.0,
        "labels": {"b": "c"},
    }
    named = [one.name for one in fields(JobSpec)]
    text = WRITE.written_out((SOURCE / "colane/model/job_spec.py").read_text())
    made: dict[str, Any] = {"__name__": JobSpec.__module__}
    exec(text, made)  # noqa: S102 - source of ours, as the build makes it
    for record in (JobSpec, made["JobSpec"]):
        spec = record(**given)
        assert (spec.share, spec.need.gpus, spec.at(4) is spec) == (False, 4, True)
        same, smaller = spec.copied(), spec.at(1)
        assert [getattr(same, name) for name in named] == [getattr(spec, name) for name in named]
        assert {name for name in named if getattr(smaller, name) != getattr(spec, name)} == {"gpus", "need"}
        assert smaller.need == spec.need._replace(gpus=1)


def test_what_cannot_be_written_out_is_refused() -> None:
    text = f"{WRITE.MARK}\nclass A:\n    x: Final[int] = field(default=1, hash=False)\n"
    with pytest.raises(ValueError, match="line 3: field"):
        WRITE.written_out(text)
