"""The documents say what the code does: every code, policy, state, room and link."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

from colane.cli.reference import job_fields, reference
from colane.core.lifecycle import diagram
from colane.model.glossary import WORDS
from colane.model.job import JobState
from colane.model.plan import ACTION_NAMES
from colane.model.reason import Why
from colane.model.sentences import SENTENCES
from colane.perf.config import SPREADS
from colane.perf.rate import Factors, RateSource
from colane.scheduling.engine.contracts import Admission, Candidate, Choice, Order, SchedulingContext, Sizer, Source
from colane.scheduling.registry import ALIASES, NAMES, UnknownPolicyError, create
from colane.server.assembly import make_service
from colane.server.config import ServiceConfig
from colane.server.ground.access import Callers
from colane.server.http.app import create_app
from colane.server.http.door import GateRules
from tests.memory_store import MemoryStore

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def headings(name: str) -> set[str]:
    text = (DOCS / name).read_text()
    return set(re.findall(r"^#+ (.+)$", text, re.MULTILINE))


def test_the_readme_says_what_each_extra_brings_and_no_other() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    rows = re.findall(r"^\| ((?:`[a-z]+`(?:, )?)+) \| ", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert sorted(name for row in rows for name in re.findall(r"`(\w+)`", row)) == sorted(extras)


def test_the_newest_version_of_the_changelog_is_the_one_that_is_installed() -> None:
    (newest, *_) = re.findall(
        r"^## (\d+\.\d+\.\d+) \(\d{4}-\d\d-\d\d\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    assert f'version = "{newest}"' in (ROOT / "pyproject.toml").read_text()
    assert version("colane") == newest


def test_every_reason_has_a_sentence_and_a_heading() -> None:
    assert set(SENTENCES) == set(Why)
    assert {why.value for why in Why} <= headings("reference/reasons.md")


def test_the_documented_sentences_are_the_ones_printed() -> None:
    text = (DOCS / "reference/reasons.md").read_text()
    for why, sentence in SENTENCES.items():
        assert f"### {why.value}\n" in text
        assert f"> {sentence}\n" in text


def test_every_factor_and_source_of_a_rate_is_explained() -> None:
    text = (DOCS / "explanation/speed.md").read_text()
    rows = "\n".join(line for line in text.splitlines() if line.startswith("| `"))
    assert all(f"`{name}`" in rows for name in (*Factors._fields, *RateSource))
    for source, spread in SPREADS.items():
        row = next(line for line in rows.splitlines() if f"`{source}`" in line.split("|")[1])
        assert row.split("|")[3].strip().startswith(f"{100 * spread:.0f} %" if spread else "0")


def test_every_flaw_has_a_heading() -> None:
    source = (ROOT / "src/colane/core/check.py").read_text()
    codes = set(re.findall(r'Flaw\("([a-z-]+)"', source))
    assert len(codes) > 10
    assert codes <= headings("reference/reasons.md")


def test_every_policy_and_every_state_has_a_heading() -> None:
    assert set(NAMES) <= headings("reference/policies.md")
    assert {state.name for state in JobState} <= headings("reference/lifecycle.md")


def test_every_short_name_of_a_policy_stands_beside_what_it_means() -> None:
    page = (DOCS / "reference/policies.md").read_text()
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| `([^`]+)` \|$", page, re.MULTILINE))
    assert rows == dict(ALIASES)


def test_every_option_of_a_policys_table_is_one_it_has() -> None:
    sections = re.split(r"^## ", (DOCS / "reference/policies.md").read_text(), flags=re.MULTILINE)
    looked_at = 0
    for name, _, section in (text.partition("\n") for text in sections if text.partition("\n")[0] in NAMES):
        for row in re.findall(r"^\| (`[^|]*)\|", section.partition("| option |")[2], re.MULTILINE):
            for option in re.findall(r"`(\w+)(?:=\w+)?`", row):
                with pytest.raises(UnknownPolicyError, match=rf"{option} must be"):
                    create(f"{name}:{option}=?")
                looked_at += 1
    assert looked_at > 10


def test_every_row_has_the_options_of_every_row() -> None:
    page = (DOCS / "reference/policies.md").read_text()
    table = re.search(r"^Options of every row:\n\n(.*?)\n\n", page, re.MULTILINE | re.DOTALL)
    assert table is not None
    rows = re.findall(r"^\| `(\w+)`(?:, not of ([^|]*))? \|", table[1], re.MULTILINE)
    assert len(rows) == 4
    for option, others in rows:
        without = re.findall(r"`([\w-]+)`", others)
        for name in NAMES:
            expected = rf"has no option '{option}'" if name in without else rf"{option} must be"
            with pytest.raises(UnknownPolicyError, match=expected):
                create(f"{name}{',' if ':' in name else ':'}{option}=?")


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda p: str(p.relative_to(DOCS)))
def test_policies_that_are_shown_with_options_are_taken(page: Path) -> None:
    spelled = "|".join(sorted({*NAMES, *ALIASES}, key=len, reverse=True))
    value = r"\w+=[\w/=@.]*[\w@]"
    for shown in re.findall(rf"(?<![\w:/-])(?:{spelled}):{value}(?:,{value})*", page.read_text()):
        create(shown)


def test_the_diagram_is_drawn_from_the_table() -> None:
    assert diagram() in (DOCS / "reference/lifecycle.md").read_text()


def test_the_command_reference_is_the_one_the_commands_write() -> None:
    assert (DOCS / "reference/commands.md").read_text() == reference(), (
        "run: python -m colane.cli.reference > docs/reference/commands.md"
    )


def test_the_page_of_a_jobs_fields_is_the_one_the_table_writes() -> None:
    page = (DOCS / "reference/job-fields.md").read_text()
    assert page == job_fields(), "run: python -m colane.cli.reference fields > docs/reference/job-fields.md"


def test_every_endpoint_has_its_row() -> None:
    interfaces = (DOCS / "reference/interfaces.md").read_text()
    rows = set(re.findall(r"`(/[a-z_{}/.]*)`", interfaces))
    service = make_service(MemoryStore(), ServiceConfig(policy="fifo", workdir="/"))
    routes = {
        re.sub(r"{\w+}", "{}", path)
        for path in create_app(service, GateRules(callers=Callers(token="t"))).openapi()["paths"]
    }
    documented = {re.sub(r"{\w+}", "{}", row) for row in rows}
    assert routes <= documented


def test_every_room_is_on_the_plan_and_no_other() -> None:
    rooms = {path.name for path in (ROOT / "src/colane").iterdir() if (path / "__init__.py").is_file()}
    rows = set(re.findall(r"^\| `(\w+)` \|", (DOCS / "explanation/architecture.md").read_text(), re.MULTILINE))
    assert rows == rooms


def test_the_glossary_explains_each_word_once() -> None:
    words = re.findall(r"\*\*([^*]+)\*\*", (DOCS / "reference/glossary.md").read_text())
    assert sorted(words) == sorted(set(words))
    parts = {Admission, Choice, SchedulingContext, Candidate, Order, Sizer, Source}
    assert {
        *ACTION_NAMES.values(),
        *(re.sub(r"(?<=[a-z])(?=[A-Z])", " ", part.__name__).lower() for part in parts),
    } <= set(words)


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")) + sorted(DOCS.rglob("*.md")), ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]*))?\)", page.read_text())
    targets = [(page.parent / link if link else page, anchor) for link, anchor in links]
    assert [str(target) for target, _ in targets if not target.exists()] == []
    named = [(target, anchor) for target, anchor in targets if anchor and target.suffix == ".md"]
    assert [f"{target}#{anchor}" for target, anchor in named if anchor not in anchors(target)] == []


def anchors(page: Path) -> set[str]:
    """Of its headings, as a site and a repository's pages have them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in plain}


def test_the_words_of_the_commands_stand_in_the_glossary() -> None:
    page = (DOCS / "reference/glossary.md").read_text().lower()
    assert [word for word in WORDS if f"**{word.lower()}**" not in page] == []


FOLDERS = (ROOT, ROOT / "src/colane", ROOT / "src/colane/scheduling")
"""From where documents name files and folders of ours."""


@pytest.mark.parametrize(
    "page",
    [
        ROOT / "CONTRIBUTING.md",
        *(page for folder in ("explanation", "papers", "reference") for page in sorted((DOCS / folder).glob("*.md"))),
        *sorted((ROOT / "src/colane/scheduling").rglob("README.md")),
    ],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_files_that_are_named_exist(page: Path) -> None:
    """A name counts as one of ours if it is Python's, or begins with a folder of the repository or a room."""
    rooms = {path.name for folder in FOLDERS for path in folder.iterdir() if path.is_dir()}
    named = set(re.findall(r"`(\w+(?:/[\w.-]+)+)/?`", page.read_text()))
    ours = {name for name in named if name.endswith(".py") or name.partition("/")[0] in rooms} - WRITTEN
    assert [
        name for name in sorted(ours) if not any((folder / name).exists() for folder in (*FOLDERS, page.parent))
    ] == []


WRITTEN = {"tests/versions/VERSION.json"}
"""Files that are written by what a page says to do."""
