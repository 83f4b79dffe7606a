"""What a cluster file says of nodes that go and come back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from colane.lab.traces.clusters import load
from colane.lab.traces.node_events import NodeEvent, NodeEventKind
from colane.settings.input_file import InputFileError

File = Callable[[str, str], Path]
GROUPS = "groups: [{name: big, count: 2, gpus: 1, gpu_type: V100, gpu_memory: 16GB}]\n"


def test_events_are_read_by_time_and_one_of_a_group_happens_to_all_its_nodes(file: File) -> None:
    text = """events:
  - {at: 3h, node: big, event: undrain}
  - {at: 2h, node: big, event: drain, within: 10m, reason: new fans}
  - {at: 90, node: big-1, event: notice, within: 2m}
  - {at: 1h, node: big-1, event: back}
"""
    events = load(file(GROUPS + text, "mine.yaml")).events
    assert events == (
        NodeEvent(90.0, "big-1", NodeEventKind.NOTICE, 120.0),
        NodeEvent(3600.0, "big-1", NodeEventKind.BACK),
        NodeEvent(7200.0, "big-0", NodeEventKind.DRAIN, 600.0, "new fans"),
        NodeEvent(7200.0, "big-1", NodeEventKind.DRAIN, 600.0, "new fans"),
        NodeEvent(10800.0, "big-0", NodeEventKind.UNDRAIN),
        NodeEvent(10800.0, "big-1", NodeEventKind.UNDRAIN),
    )
    assert load("dgx1").events == ()


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ("soon", r"column 'events': expected a list of what happens to nodes, got 'soon'"),
        ("[lost]", r"'events\[0\]': expected keys and values, got 'lost'"),
        ("[{at: 1h, node: big-0, kind: lost}]", r"'events\[0\]\.kind': unknown key; known: at, node, event"),
        ("[{at: 1h, node: big-0, event: gone}]", r"'events\[0\]\.event': must be one of drain, .*, got 'gone'"),
        ("[{at: 1h, node: big-0, event: darin}]", r"got 'darin' \(did you mean drain"),
        ("[{node: big-0, event: lost}]", r"'events\[0\]\.at': is missing: when it happens, such as 90m"),
        ("[{at: -1, node: big-0, event: lost}]", r"'events\[0\]\.at': must be a duration"),
        ("[{at: 1h, node: bog-0, event: lost}]", r"'events\[0\]\.node': no node or group 'bog-0' \(did you mean big-0"),
        ("[{at: 1h, event: lost}]", r"no node or group ''; known: big, big-0, big-1"),
        ("[{at: 1h, node: big-0, event: notice}]", r"'events\[0\]\.within': is missing: a notice says when"),
        ("[{at: 1h, node: big-0, event: lost, within: 1m}]", r"'events\[0\]\.within': belongs to drain and notice"),
        ("[{at: 1h, node: big-0, event: back}]", "back at 3600 s cannot be: big-0 is there then"),
        (
            "[{at: 1, node: big-0, event: lost}, {at: 2, node: big, event: lost}]",
            "lost at 2 s cannot be: big-0 is gone then",
        ),
        (
            "[{at: 1, node: big-0, event: notice, within: 5}, {at: 7, node: big-0, event: drain}]",
            "drain at 7 s cannot be: big-0 is gone then",
        ),
        ("[{at: 0, node: big, event: reserve, from: 1h, to: 2h}]", r"'events\[0\]\.users': must be names of users"),
        ("[{at: 0, node: big, event: reserve, from: 1h, users: [a]}]", r"'events\[0\]\.to': is missing"),
        ("[{at: 3h, node: big, event: reserve, from: 1h, to: 2h, users: [a]}]", "must be later than from and at"),
        (
            "[{at: 0, node: big, event: unreserve, name: a, to: 2h}]",
            r"'events\[0\]\.to': belongs to reserve, not to unr",
        ),
        ("[{at: 0, node: big-1, event: unreserve, name: a}]", "unreserve at 0 s: big-1 has no reservation 'a' then"),
        ("[{at: 0, node: big, event: drain, users: [a]}]", r"'events\[0\]\.users': belongs to reserve, not to drain"),
        (
            "[{at: 0, node: big-0, event: reserve, from: 1h, to: 2h, users: [a], name: course}, "  # noqa: ISC004
            "{at: 0, node: big, event: reserve, from: 90m, to: 3h, users: [b]}]",
            "big-0 is kept for reservation course of a from 3600 to 7200 s already",
        ),
    ],
)
def test_bad_events_are_refused(file: File, events: str, message: str) -> None:
    with pytest.raises(InputFileError, match=message):
        load(file(f"{GROUPS}events: {events}\n", "mine.yaml"))
