"""docs/reference/traces.md names every column, format, key and preset, and none besides."""

from __future__ import annotations

import re
from pathlib import Path

from colane.lab.traces import costs
from colane.lab.traces.clusters import KEYS, TOPOLOGIES, preset_names
from colane.lab.traces.node_events import NodeEventKind
from colane.lab.traces.read import FORMATS
from colane.lab.traces.readers.colane_csv import OF_TRACES

TEXT = (Path(__file__).parents[2] / "docs/reference/traces.md").read_text()


def table(heading: str) -> dict[str, str]:
    section = TEXT.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `([\w-]+)` \| (.*) \|$", section, re.MULTILINE))


def test_every_column_with_its_unit() -> None:
    rows = table("Colane's own trace")
    assert list(rows) == [column.name for column in OF_TRACES]
    for column in OF_TRACES:
        assert rows[column.name].startswith(f"{column.unit} |")


def test_every_format_key_preset_and_topology() -> None:
    assert list(table("Other formats")) == list(FORMATS)
    keys = table("Clusters")
    assert list(keys) == [*KEYS, "costs", *costs.KEYS]
    assert all(f"`{name}`" in keys["topology"] for name in TOPOLOGIES)
    assert all(f"`{name}`" in TEXT for name in preset_names())


def test_every_node_event() -> None:
    assert list(table("Node events")) == [kind.value for kind in NodeEventKind]
