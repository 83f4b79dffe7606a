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


class Sum:
    """A number on a device, to which one can be added."""

    def __init__(self, result: Any) -> None:
        self.result = result

    def __add__(self, _one: int) -> Any:
        return self.result


def test_what_other_frameworks_have_under_way_is_waited_for(asked: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    live = framework(is_deleted=lambda: False, block_until_ready=lambda: done.append("jax"))
    gone = framework(is_deleted=lambda: True)
    device = framework(id=0, synchronize=lambda: done.append("cupy"))
    one = framework(getDeviceCount=lambda: 1)
    sync = framework(sync_devices=lambda: done.append("tensorflow"))
    last = framework(block_until_ready=lambda: done.append("jax's last"))
    jax = framework(live_arrays=lambda: [live, gone], local_devices=lambda: ["gpu"], device_put=lambda *_: Sum(last))
    monkeypatch.setitem(sys.modules, "jax", jax)
    monkeypatch.setitem(sys.modules, "cupy", framework(cuda=framework(Device=lambda: device, runtime=one)))
    monkeypatch.setitem(sys.modules, "tensorflow", framework(test=framework(experimental=sync)))
    take_turn()
    assert (done, asked) == (["jax", "jax's last", "cupy", "tensorflow"], [YIELD])


def test_cupy_is_waited_for_on_each_gpu_it_uses_and_makes_no_context_on_another(
    asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[int] = []

    def device(number: int = 1) -> types.SimpleNamespace:
        return framework(id=number, synchronize=lambda: done.append(number))

    class Driver:
        """Of four GPUs, all but the third are in use; the last one's state cannot be read."""

        @staticmethod
        def cuDevicePrimaryCtxGetState(number: int, _flags: Any, is_active: Any) -> int:  # noqa: N802
            is_active._obj.value = number != 2
            return 101 if number == 3 else 0

    runtime = framework(getDeviceCount=lambda: 4)
    monkeypatch.setitem(sys.modules, "cupy", framework(cuda=framework(Device=device, runtime=runtime)))
    monkeypatch.setattr("ctypes.CDLL", lambda _name: Driver)
    take_turn()
    assert (done, asked) == ([1, 0, 3], [YIELD])
    done.clear()
    monkeypatch.setattr("ctypes.CDLL", lambda _name: framework())
    take_turn()
    assert done == [1, 0, 2, 3], "an older driver does not say: none is left out"


@pytest.mark.parametrize("name", ["jax", "cupy", "tensorflow"])
def test_a_job_whose_framework_cannot_be_waited_for_gives_no_turn_up(
    asked: list[int], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Something of it may run in another's turn: the gate leaves it out of them, as it comes to no boundary."""
    monkeypatch.setitem(sys.modules, name, framework())
    take_turn()
    assert asked == []
