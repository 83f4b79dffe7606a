"""The report as one self-contained HTML page: no script, no outside asset, readable in light and dark, on a phone too.

What it looks like stands in `templates`; here is what goes where.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from colane.lab.report.tables import Table, TableColumn
from colane.model.glossary import WORDS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SENTENCES_FIRST = 3  # so many sentences stand first, in large letters; the others follow
JOB_ROWS_MAX = 2000
"""A table shows at most so many rows; a browser cannot usefully show more, and jobs.csv has them all."""

OPEN_ROWS_MAX = 20  # a longer table that is no result is folded up


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure of the page."""

    key: str  # its anchor
    svg: str  # an `<svg>` element
    caption: str  # what it shows
    wide: bool = False  # takes the whole width of the page


class Chart(NamedTuple):
    """A figure of a report."""

    key: str  # name of its file, and its anchor on the page
    figure: Figure  # what is drawn
    caption: str  # what it shows
    wide: bool = False  # takes the whole width of the page


class Written(NamedTuple):
    """Where a report went."""

    html: Path  # the page
    summary_json: Path  # numbers for programs
    figures: tuple[Path, ...]  # PNG files
    jobs_csv: tuple[Path, ...] = ()  # a row a job


def write(
    html: Path, summary_json: Path, charts: Iterable[Chart], page_of: Callable[[Sequence[Picture]], str], told: object
) -> Written:
    """Write each chart as PNG beside the page, the page, and what is told as JSON; the directory is made.

    Raises OSError: one cannot be written.
    """
    from colane.lab.report import style  # noqa: PLC0415 - matplotlib takes half a second to import

    html.parent.mkdir(parents=True, exist_ok=True)
    drawn = list(charts)
    figures = tuple(style.save(chart.figure, html.with_name(f"{chart.key}.png")) for chart in drawn)
    pictures = [
        Picture(key, style.inline_svg(figure, key, caption.rstrip(".")), caption, wide)
        for key, figure, caption, wide in drawn
    ]
    html.write_text(page_of(pictures), encoding="utf-8")
    text = json.dumps(told, indent=1, allow_nan=False, ensure_ascii=False)
    summary_json.write_text(f"{text}\n", encoding="utf-8")
    return Written(html, summary_json, figures)


PHONE_COLUMNS_MAX = 4
"""A table of more columns is wider than a phone: it is slid sideways there, which is said above it."""

RESULT_TABLES = ("mixed", "groups", "comparisons")
TURNED_MAX = 5
"""Up to so many groups stand side by side, a line for each metric: nothing is beyond the edge of the window."""

EQUAL_FROM_ROWS = 4


def page(
    title: str,
    said: Sequence[str],
    tables: Sequence[Table],
    pictures: Sequence[Picture],
    notes: Sequence[str],
    *,
    notes_title: str = "What was not measured",
) -> str:
    """The whole document: the sentences that matter, tables of results, figures, then long tables and notes."""
    full = [table for table in tables if table.rows]
    return (
        _templates()
        .get_template("report.html.j2")
        .render(
            title=title,
            first=said[:SENTENCES_FIRST],
            further=said[SENTENCES_FIRST:],
            results=[
                _turned(table) if table.key == "groups" and len(table.rows) <= TURNED_MAX else table
                for table in full
                if table.key in RESULT_TABLES
            ],
            pictures=pictures,
            others=[without_equal(table) for table in full if table.key not in RESULT_TABLES],
            notes=notes,
            notes_title=notes_title,
            words=WORDS,
            rows_max=JOB_ROWS_MAX,
            open_rows_max=OPEN_ROWS_MAX,
            phone_columns_max=PHONE_COLUMNS_MAX,
        )
    )


@cache
def _templates() -> Environment:
    """Everything that is put in is escaped, but for figures; a name that is not given is an error."""
    folder = FileSystemLoader(Path(__file__).parent / "templates")
    return Environment(
        loader=folder, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True,
    )  # fmt: skip


def _turned(table: Table) -> Table:
    """A table with a line for each of its columns."""
    names, *lines = zip(*table.texts(), strict=True)
    columns = (table.columns[0], *(TableColumn(name, name, str) for name in names))
    rows = tuple((column.heading, *cells) for column, cells in zip(table.columns[1:], lines, strict=True))
    return Table(table.key, table.title, (columns[0]._replace(heading=""), *columns[1:]), rows, table.note)


def without_equal(table: Table) -> Table:
    """A long table without the columns that say the same in every row; its note says it once."""
    texts = table.texts()
    if len(texts) < EQUAL_FROM_ROWS:
        return table
    equal = [place for place in range(1, len(table.columns)) if len({row[place] for row in texts}) == 1]
    if not equal:
        return table
    kept = [place for place in range(len(table.columns)) if place not in equal]
    said = "; ".join(f"{table.columns[place].heading}: {texts[0][place]}" for place in equal if texts[0][place] != "-")
    rows = tuple(tuple(row[place] for place in kept) for row in table.rows)
    note = f"{table.note} The same in every row: {said}.".strip() if said else table.note
    return Table(table.key, table.title, tuple(table.columns[place] for place in kept), rows, note)
