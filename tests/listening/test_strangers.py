"""A crowd of strangers beside an agent that reports, for seconds; `python -m tests.faults.strangers` for a minute."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.strangers import KEPT_MAX_BYTES, MB, withstand
from tests.listening.kinds import BEGUN, ENDLESS
from tests.listening.listeners import cluster

CONNECTIONS = 150


@pytest.mark.live
def test_strangers_take_nothing_that_agents_need(tmp_path: Path) -> None:
    with cluster(tmp_path) as here:
        told = withstand(here, seconds=6.0, connections=CONNECTIONS)
    assert len(told.turns) >= len(ENDLESS) + len(BEGUN), "each kind"
    assert told.lost == []
    assert len(told.reports_s) > 3
    assert max(told.reports_s) < 30, "none is refused"
    assert max(told.more_bytes.values()) <= 100 * MB
    assert max(told.kept_bytes.values()) <= KEPT_MAX_BYTES, "it is given back"
    assert max(told.lines.values()) <= 4
