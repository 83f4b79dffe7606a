"""Every command line that a document shows is one the command line really takes: no option that does not exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command

from colane.cli import app
from colane.cli.command import complaint
from colane.integrations.slurm.options import KNOWN
from tests.cli.test_misuse import leaves

ROOT = Path(__file__).parents[1]
PAGES = [
    *(page for page in ROOT.glob("*.md") if page.name != "CHANGELOG.md"),
    *(ROOT / "benchmarks").glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
]
CLI: Any = get_command(app.make_app())

FOLLOWERS = frozenset({"|", "||", "&&", ";", "&", ">", ">>", "2>&1", "<"})
"""Where a shell ends the words of a command."""

STANDS_FOR = {"JOB": "7", "@": "7", "N": "2", "TIME": "10m", "SIZE": "2GB", "COMMAND...": "true", "...": ""}
"""What is written for a value of the reader's own, and one of them."""

ABBREVIATED = re.compile(r"\w\|\w|\[|\]|<[a-z]|\w/--|\*|\{")
"""Several lines in one (`suspend|resume`, `[--wait]`) are no command line."""


def block_lines(text: str) -> Iterator[str]:
    """Lines of a page's blocks of code."""
    text = text.replace("\\\n", " ")
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    for line in (line for block in blocks for line in block.splitlines()):
        yield line.strip()
    yield from (line.strip() for line in without_blocks(text).splitlines() if line.startswith("    "))


def without_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def spans(text: str) -> Iterator[str]:
    """What stands between backticks."""
    yield from (" ".join(span.split()) for span in re.findall(r"`([^`]+)`", without_blocks(text)))


def ours(lines: Iterable[str]) -> list[str]:
    """Command lines of ours, from the program's name on."""
    lines = [re.sub(r"^\$ |^(\w+=\S+ )+", "", line) for line in lines]
    return [line for line in dict.fromkeys(lines) if line.startswith("colane ") and not ABBREVIATED.search(line)]


def words_of(line: str) -> list[str]:
    """The words behind the program's name, up to where a shell ends the command."""
    words = shlex.split(line, comments=True)[1:]
    return [STANDS_FOR.get(word, word) for word in takewhile(lambda word: word not in FOLLOWERS, words)]


def check(words: list[str]) -> None:
    """Read a command line as the program does, and do nothing."""
    command, context = CLI, typer.Context(CLI, info_name="colane")
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        name, command, words = command.resolve_command(context, words)
        context = typer.Context(command, info_name=name, parent=context)
    if not hasattr(command, "commands"):
        command.make_context(context.info_name, [*words], parent=context.parent)


def complaints(lines: Iterable[str], forgiven: str = "^$") -> dict[str, str]:
    """What is wrong with lines, but what is forgiven."""
    found = {}
    for line in lines:
        try:
            check(words_of(line))
        except typer.TyperException as error:
            found[line] = complaint(error)
        except typer.Exit:
            pass
    return {line: said for line, said in found.items() if not re.search(forgiven, said)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_shown_commands_are_taken(page: Path) -> None:
    """In running text a command may be named without what must follow."""
    text = page.read_text()
    assert complaints(ours(block_lines(text))) == {}
    assert complaints(ours(spans(text)), "^Missing argument|requires an argument") == {}


OTHERS = frozenset({"--nnodes", "--nproc-per-node", "--standalone"})
"""Options of other programs (torchrun) that documents name alone."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_options_named_alone_exist(page: Path) -> None:
    text, options = page.read_text(), [*CLI.params, *(param for _, command in leaves(CLI) for param in command.params)]
    known = {name for param in options for name in (*param.opts, *param.secondary_opts)} | OTHERS | {"--help"}
    if page.name == "slurm.md" or "of `sbatch`" in text:  # it tells of Slurm's own
        known |= {*KNOWN["sbatch"], *KNOWN["srun"]}
    of_benchmarks = BENCHMARKS if "benchmarks" in text else ""
    words = {word for span in spans(text) if span.startswith("--") for word in re.findall(r"(?<!\S)--[a-z-]+", span)}
    assert {word for word in words - known if f'"{word}"' not in of_benchmarks} == set()


BENCHMARKS = "".join(path.read_text() for path in sorted((ROOT / "benchmarks").glob("*.py")))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_benchmarks_that_are_named_exist(page: Path) -> None:
    text = page.read_text()
    for line in (*block_lines(text), *spans(text)):
        for name in re.findall(r"\b((?:benchmarks|scripts|gpu)/[\w/]+(?:\.\w+)?)", line):
            assert (ROOT / name).exists(), line
        if re.match(r"(?:chrt -f 1 )?python benchmarks/", line):
            words = re.findall(r"(?<!\S)--[a-z-]+", line)
            assert [word for word in words if f'"{word}"' not in BENCHMARKS] == [], line


def test_lines_are_found_in_blocks_and_in_text() -> None:
    text = "Say `colane ps\n--all`.\n\n    A=1 colane up --port 1 | head  # so\n\n```bash\n$ colane nodes\n```\n"
    assert [words_of(line) for line in ours(block_lines(text))] == [["nodes"], ["up", "--port", "1"]]
    assert [words_of(line) for line in ours(spans(text))] == [["ps", "--all"]]


def test_many_lines_are_looked_at() -> None:
    texts = [page.read_text() for page in PAGES]
    assert sum(len(ours(block_lines(text))) for text in texts) > 30
    assert sum(len(ours(spans(text))) for text in texts) > 100


@pytest.mark.parametrize("line", ["colane ps --alll", "colane submti", "colane show seven", "colane token maek"])
def test_a_wrong_line_would_be_found(line: str) -> None:
    assert complaints([line], "^Missing argument|requires an argument")
