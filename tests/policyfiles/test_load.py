"""Files that hold a policy, and files that do not: one line that names file and fix."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from colane.policyfiles.load import PolicyFileError, create, is_file
from colane.scheduling.admissions.ageing import Ageing
from colane.scheduling.engine.loop import Composed
from colane.scheduling.registry import UnknownPolicyError

from .files import EXAMPLE, HEAD

GOOD = f"{HEAD}        return Draft(view).plan()\n"

REFUSED = {
    "syntax": ("def (", "P", "line 1: SyntaxError: "),
    "import": ("import sys\nimport no_such_module\n", "P", "line 2: ModuleNotFoundError: No module named"),
    "exits": ("raise SystemExit(3)\n", "P", "line 1: SystemExit: 3"),
    "near": (GOOD, "Mime", "has no 'Mime'; did you mean Mine?"),
    "unnamed": (GOOD, "", "needs the name of a policy in it, as"),
    "nothing": ("x = 1\n", "P", "has no 'P'; it defines nothing"),
    "number": ("x = 1\n", "x", "x of FILE is no policy: it has no plan(view)"),
    "makes none": ("def make():\n    return 3\n", "make", "make of FILE is no policy"),
    "needs more": (
        "class P:\n    def __init__(self, x): pass\n    def plan(self, view): pass\n",
        "P",
        "P() failed: Type",
    ),
    "takes none": (
        "class P:\n    name = 'p'\n    def plan(self): pass\n",
        "P",
        "plan must take one argument, the view",
    ),
    "nameless": ("class P:\n    def plan(self, view): pass\n", "P", "its name must be text of letters"),
    "path": ("class P:\n    name = '../p'\n    def plan(self, view): pass\n", "P", "got '../p'"),
    "taken": ("class P:\n    name = 'fifo'\n    def plan(self, view): pass\n", "P", "name it otherwise"),
    "optionless": (GOOD, "Mine:depth=3", "takes no options: make it a dataclass with a name"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_policy_is_refused_in_one_line(case: str, tmp_path: Path) -> None:
    content, name, expected = REFUSED[case]
    path = tmp_path / "mine.py"
    path.write_text(content)
    with pytest.raises(PolicyFileError) as refused:
        create(f"{path}:{name}")
    assert expected.replace("FILE", str(path)) in str(refused.value)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_missing_file_and_other_files_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(PolicyFileError, match=re.escape(f"there is no file {tmp_path}/no.py")):
        create(f"{tmp_path}/no.py:P")
    with pytest.raises(PolicyFileError, match=r"a policy of your own is FILE\.py:NAME"):
        create("./mine:P")


@pytest.mark.parametrize("made", ["Mine", "mine", "make"])
def test_an_object_a_class_and_a_function_are_taken(made: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(f"{GOOD}\nmine = Mine()\ndef make():\n    return mine\n")
    assert create(f"{path}:{made}").name == "mine"


def test_options_are_those_of_its_fields() -> None:
    policy = create(f"{EXAMPLE}:FewestRunning:max_wait_s=60")
    assert policy.name == "fewest-running:max_wait_s=60"
    assert isinstance(policy, Composed)
    assert policy.admits == (Ageing(60.0),)
    with pytest.raises(UnknownPolicyError, match="no option 'max_wait'; did you mean max_wait_s"):
        create(f"{EXAMPLE}:FewestRunning:max_wait=60")


def test_registered_names_are_no_files() -> None:
    assert not any(map(is_file, ("fifo", "fifo:gpu_types=v100/p100", "pack:share_when=always")))
    assert create("fifo").name == "fifo"


def test_the_page_shows_the_end_of_the_file_that_is_tested() -> None:
    page = (EXAMPLE.parents[1] / "how-to/own-policy.md").read_text()
    shown = page.partition("```python\n")[2].partition("```")[0]
    assert shown.startswith("@dataclass")
    assert EXAMPLE.read_text().endswith(shown)
