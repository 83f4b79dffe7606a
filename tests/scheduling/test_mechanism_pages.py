"""Every mechanism has a page in its folder, and what the page names is there: options, reasons, files, laws."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from colane.model.reason import Why
from colane.scheduling import mechanisms
from colane.scheduling.engine.options import PARTS

ROOT = Path(__file__).parents[2]
FOLDER = Path(next(iter(mechanisms.__path__)))
SOURCES = Path(__file__).parents[2] / "src/colane/scheduling/mechanisms"
"""The same in the repository: what is compiled lies elsewhere, without the documents that pages link to."""
NAMES = sorted(path.name for path in FOLDER.iterdir() if (path / "__init__.py").exists())
DOES = ("bind", "plan", "place", "serve")
"""What a part of a policy has one of."""

each = pytest.mark.parametrize("name", NAMES)


def page(name: str) -> str:
    return (FOLDER / name / "README.md").read_text()


def section(name: str, heading: str) -> str:
    found = re.search(rf"^## {heading}.*?\n(.*?)(?=^## |\Z)", page(name), re.MULTILINE | re.DOTALL)
    assert found is not None, f"{name} has no section {heading}"
    return found[1]


def options(name: str) -> set[str]:
    """Fields of the parts of a mechanism that are set by text."""
    found = set[str]()
    for path in (FOLDER / name).glob("[a-z]*.py"):
        module = import_module(f"{mechanisms.__name__}.{name}.{path.stem}")
        for kind in vars(module).values():
            is_own = isinstance(kind, type) and kind.__module__ == module.__name__ and not kind.__name__.startswith("_")
            if is_own and is_dataclass(kind) and any(hasattr(kind, does) for does in DOES):
                found |= set(told_by(kind)) - PARTS - {"ways", "sizes"}
    return found


def told_by(kind: Any) -> Iterator[str]:
    """Fields of a part; of one that parts have in common its own."""
    for field in fields(kind):
        is_common = is_dataclass(field.default) and field.name not in {"sizes", *PARTS}
        yield from told_by(type(field.default)) if is_common else (field.name,)


@each
def test_its_page_names_every_option_and_no_other(name: str) -> None:
    rows = re.findall(r"^\| (`.*?) \|", section(name, "(?:Parts and options|Options)"), re.MULTILINE)
    # sizes come to an elastic job by parts that have no method of those above
    more = {"goodput", "normalised", "size_worth_min", "variance_max"} if name == "elastic" else set()
    assert {option for row in rows for option in re.findall(r"`([a-z_]+)`", row)} == options(name) | more


@each
def test_its_page_names_every_reason_it_gives(name: str) -> None:
    told = set(re.findall(r"`([a-z-]+)`", section(name, "Reasons")))
    given = {
        Why[code].value
        for path in (FOLDER / name).glob("*.py")
        for code in re.findall(r"\bWhy\.([A-Z_]+)", path.read_text())
    }
    assert given <= told
    assert told <= {why.value for why in Why}


@each
def test_what_moves_running_jobs_lies_where_its_page_says(name: str) -> None:
    for file in re.findall(r"`([a-z_/]+\.py)`", section(name, "What moves running jobs")):
        assert (FOLDER / name / file).exists() or (ROOT / "src/colane" / file).exists(), file


@each
def test_its_laws_are_tests_that_there_are_and_its_formula_is_told(name: str) -> None:
    laws = re.findall(r"`(tests/[a-z_/]+\.py)`", section(name, "Laws"))
    assert len(laws) >= 2
    assert [law for law in laws if not (ROOT / law).exists()] == []
    assert re.search(r"^    \S", section(name, "Formula"), re.MULTILINE), "a formula stands on a line of its own"


@each
def test_links_of_its_page_lead_somewhere(name: str) -> None:
    for link in re.findall(r"\]\(([^)#]+)", page(name)):
        assert (SOURCES / name / link).exists(), link
