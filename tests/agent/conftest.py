from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = str(Path(__file__).parents[2])
if ROOT not in sys.path:  # so that helpers can be imported as `tests.agent.shims`, as mypy knows them
    sys.path.insert(0, ROOT)

from colane.agent import processes  # noqa: E402
from tests.agent.fake_scheduler import FakeScheduler  # noqa: E402
from tests.agent.lane import Lane  # noqa: E402
from tests.agent.waiting import until  # noqa: E402

ENDING_MAX_S = 20.0
"""Within this what was killed or told to end is gone; jobs of tests that are left alone run for longer."""


@pytest.fixture
def marker(tmp_path: Path) -> Iterator[str]:
    """A variable that every process of this test carries; nothing that carries it may outlive the test.

    A process that was just killed or told to end is there for as long as a busy machine lets it wait for a core.
    """
    mark = f"COLANE_TEST_MARK={tmp_path}"
    yield mark
    try:
        until(lambda: not processes.marked(mark.encode()), "processes outlived their test", ENDING_MAX_S)
    finally:
        left = processes.marked(mark.encode())
        processes.kill(one for pid in left if (one := processes.identify(pid)) is not None)


@pytest.fixture
def hostile() -> None:
    """Something may be set aside in a test that asks for this: any other fails by it."""


@pytest.fixture(autouse=True)
def _nothing_is_set_aside(request: pytest.FixtureRequest) -> Iterator[None]:
    """An agent goes on whatever a job makes raise; a test must see it."""
    seen: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(f"{record.getMessage()}: {record.exc_info[1] if record.exc_info else ''!r}")

    ear, log = Ear(logging.ERROR), logging.getLogger("colane.agent.running.boundaries")
    log.addHandler(ear)
    yield
    log.removeHandler(ear)
    assert not seen or "hostile" in request.fixturenames


@pytest.fixture
def fake() -> FakeScheduler:
    return FakeScheduler()


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def mark(marker: str) -> dict[str, str]:
    """The environment of a job of this test."""
    name, _, value = marker.partition("=")
    return {"PATH": os.environ["PATH"], name: value}


@pytest.fixture
def lane(tmp_path: Path, mark: dict[str, str]) -> Lane:
    return Lane(FakeScheduler(), mark, tmp_path)
