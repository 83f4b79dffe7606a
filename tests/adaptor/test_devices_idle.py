"""What runs on a device is waited for before a turn is given up, by the means of each framework."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from colane.adaptor.turns import YIELD, TurnTaker


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What a job without PyTorch asks of its agent at a boundary."""
    sent: list[int] = []
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(TurnTaker, "_connect", lambda _self: True)
    monkeypatch.setattr(TurnTaker, "_exchange", lambda _self, kind, _step: sent.append(kind))
    return sent


def take_turn() -> None:
    TurnTaker(memoryview(bytearray(4096)).cast("Q")).boundary(1)


def framework(**means: Any) -> types.SimpleNamespace:
    return types.SimpleNamespace(**means)


def test_what_other_frameworks_have_under_way_is_waited_for(asked: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    live = framework(is_deleted=lambda: False, block_until_ready=lambda: done.append("jax"))
    gone = framework(is_deleted=lambda: True)
    device = framework(synchronize=lambda: done.append("cupy"))
    sync = framework(sync_devices=lambda: done.append("tensorflow"))
    monkeypatch.setitem(sys.modules, "jax", framework(live_arrays=lambda: [live, gone]))
    monkeypatch.setitem(sys.modules, "cupy", framework(cuda=framework(Device=lambda: device)))
    monkeypatch.setitem(sys.modules, "tensorflow", framework(test=framework(experimental=sync)))
    take_turn()
    assert (done, asked) == (["jax", "cupy", "tensorflow"], [YIELD])


@pytest.mark.parametrize("name", ["jax", "cupy", "tensorflow"])
def test_a_job_whose_framework_cannot_be_waited_for_gives_no_turn_up(
    asked: list[int], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Something of it may run in another's turn: the gate leaves it out of them, as it comes to no boundary."""
    monkeypatch.setitem(sys.modules, name, framework())
    take_turn()
    assert asked == []
