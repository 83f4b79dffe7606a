"""A report on a phone: nothing is cut without a word, and the last column can be reached."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from colane.lab.report.html import Picture, page
from colane.lab.report.tables import Table, TableColumn

WIDE = "<svg viewBox='0 0 880 100'><rect width='880' height='100'/></svg>"
REACHED = """last => { const box = last.closest('.scroll'); box.scrollLeft = box.scrollWidth;
    return last.getBoundingClientRect().right <= innerWidth; }"""


def table(columns: int) -> Table:
    names = [f"c{at}" for at in range(columns)]
    rows = tuple(tuple(f"{row * at} minutes" for at in range(columns)) for row in range(3))
    return Table(f"t{columns}", f"{columns} columns", tuple(TableColumn(n, n, str) for n in names), rows)


def test_tables_wider_than_a_phone_are_slid_to_their_last_column_and_say_so(chromium: Any, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(page("R", ["All ended."], [table(3), table(14)], [Picture("p", WIDE, "Time.", wide=True)], []))
    phone = chromium.new_page(viewport={"width": 390, "height": 800})
    phone.goto(path.as_uri())
    assert phone.evaluate("document.documentElement.scrollWidth") == 390
    assert phone.locator(".slide:visible").all_inner_texts() == ["14 columns: slide the table sideways to see all."]
    assert phone.locator("#t14 tbody tr:first-child td:last-child").evaluate(REACHED)
    phone.set_viewport_size({"width": 1280, "height": 800})
    assert phone.locator(".slide:visible").count() == 0
    phone.close()
