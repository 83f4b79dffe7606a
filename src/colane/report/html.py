"""The report as one self-contained HTML page: no script, no outside asset, readable in light and dark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from colane.report.glossary import WORDS
from colane.report.tables import Table, TableColumn

JOB_ROWS_MAX = 2000
"""A table shows at most so many rows; a browser cannot usefully show more, and jobs.csv has them all."""

CSS = """
:root { color-scheme: light dark; --ink: #1b1f24; --page: #ffffff; --grid: #c8cdd4; --soft: #f3f5f7;
  --quiet: #57606a; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ec; --page: #14171b; --grid: #434a53; --soft: #1f242a; --quiet: #a3acb6; }
}
body { background: var(--page); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; margin: 0 auto;
  max-width: 72rem; padding: 1.5rem; }
h1 { font-size: 1.5rem; margin: 0 0 .75rem; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .6rem; }
.summary { font-size: 1.3rem; line-height: 1.4; margin: .4rem 0; }
.quiet, figcaption { color: var(--quiet); font-size: .9rem; }
.figures { display: grid; gap: 1.5rem; grid-template-columns: repeat(auto-fit, minmax(min(33rem, 100%), 1fr)); }
figure { margin: 0; }
figure.wide { grid-column: 1 / -1; }
svg { height: auto; max-width: 100%; }
figure.wide svg { width: 100%; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--grid); padding: .3rem .45rem; text-align: left; vertical-align: top; }
th { background: var(--soft); }
.number { text-align: right; }
td.number, td:first-child { white-space: nowrap; }
td:not(.number):not(:first-child) { min-width: 4.8rem; overflow-wrap: anywhere; }
td:last-child:not(.number) { min-width: 9rem; }
#jobs + .scroll table { font-size: .75rem; }
dt { font-weight: 600; }
dd { margin: 0 0 .3rem 1.5rem; }
nav a { color: inherit; margin-right: 1rem; }
"""


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure of the page.

    Attributes:
        key: Its anchor.
        svg: An `<svg>` element.
        caption: What it shows.
        wide: Takes the whole width of the page.
    """

    key: str
    svg: str
    caption: str
    wide: bool = False


def page(
    title: str,
    said: Sequence[str],
    tables: Sequence[Table],
    pictures: Sequence[Picture],
    notes: Sequence[str],
    *,
    notes_title: str = "What was not measured",
) -> str:
    """The whole document; the summary sentence comes first."""
    body = [f"<h1>{escape(title)}</h1>"]
    body += [f'<p class="summary">{escape(sentence)}</p>' for sentence in said]
    # Two tables of results, then the figures, then the long ones.
    results = [table for table in tables if table.rows and table.key in RESULT_TABLES]
    body += [
        _turned(table) if table.key == "groups" and len(table.rows) <= TURNED_MAX else _section(table)
        for table in results
    ]
    body.append(_figures(pictures))
    body += [_section(without_equal(table)) for table in tables if table.rows and table.key not in RESULT_TABLES]
    body.append(_notes(notes, notes_title))
    body.append(_words())
    return _document(title, "\n".join(body))


RESULT_TABLES = ("mixed", "groups", "comparisons")


def _document(title: str, body: str) -> str:
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{CSS}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


TURNED_MAX = 5
"""Up to so many groups stand side by side, a line for each metric: nothing is beyond the edge of the window."""

EQUAL_FROM_ROWS = 4


def _turned(table: Table) -> str:
    """A table with a line for each of its columns."""
    names, *lines = zip(*table.texts(), strict=True)
    columns = (table.columns[0], *(TableColumn(name, name, str) for name in names))
    rows = tuple((column.heading, *cells) for column, cells in zip(table.columns[1:], lines, strict=True))
    return _section(Table(table.key, table.title, (columns[0]._replace(heading=""), *columns[1:]), rows, table.note))


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


def _section(table: Table) -> str:
    rows = table.texts()[:JOB_ROWS_MAX]
    left_out = len(table.rows) - len(rows)
    more = f" The first {len(rows):,} of {len(table.rows):,} rows; jobs.csv has all." if left_out else ""
    note = f'<p class="quiet">{escape(table.note + more)}</p>' if table.note or more else ""
    return f'<h2 id="{table.key}">{escape(table.title)}</h2>\n<div class="scroll">{_table(table, rows)}</div>\n{note}'


def _table(table: Table, rows: Iterable[Sequence[str]]) -> str:
    classes = [' class="number"' if column.is_number else "" for column in table.columns]
    head = "".join(
        f'<th scope="col"{kind}>{escape(column.heading)}</th>'
        for kind, column in zip(classes, table.columns, strict=True)
    )
    body = "\n".join(_row(row, classes) for row in rows)
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _row(row: Sequence[str], classes: Sequence[str]) -> str:
    cells = (f"<td{kind}>{escape(text)}</td>" for text, kind in zip(row, classes, strict=True))
    return f"<tr>{''.join(cells)}</tr>"


def _figures(pictures: Sequence[Picture]) -> str:
    return '<h2 id="figures">Figures</h2>\n<div class="figures">\n' + "\n".join(map(_figure, pictures)) + "\n</div>"


def _figure(picture: Picture) -> str:
    kind = ' class="wide"' if picture.wide else ""
    caption = f"<figcaption>{escape(picture.caption)}</figcaption>"
    return f'<figure id="figure-{picture.key}"{kind}>\n{picture.svg}\n{caption}\n</figure>'


def _notes(notes: Sequence[str], title: str) -> str:
    items = "".join(f"<li>{escape(note)}</li>\n" for note in notes)
    return f'<h2 id="not-measured">{escape(title)}</h2>\n<ul>\n{items}</ul>'


def _words() -> str:
    """What the words of the page mean."""
    items = "".join(f"<dt>{escape(word)}</dt><dd>{escape(said)}</dd>\n" for word, said in WORDS.items())
    return f'<h2 id="words">Words</h2>\n<dl>\n{items}</dl>'
