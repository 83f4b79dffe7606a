"""Steps of a Keras job: its list of callbacks hears of the end of every batch, whatever computes it."""

from __future__ import annotations

import functools

from . import recorder

TYPE_CHECKING = False  # as `typing` has it, which costs milliseconds to import
if TYPE_CHECKING:
    from typing import Any


class TrainingSeen:
    """Whether this process has trained: then what is evaluated or predicted is no progress of its training."""

    has_begun = False


def attach(keras: Any) -> None:
    """Follow Keras's callbacks with a boundary; steps that PyTorch's hooks would see are then Keras's."""
    to = recorder.current()
    if to is None:
        return
    callbacks, trained = keras.callbacks.CallbackList, TrainingSeen()
    for kind in ("train", "predict", "test"):
        _follow_begin(callbacks, f"on_{kind}_begin", to, trained)
        _follow(callbacks, f"on_{kind}_batch_end", to, trained)


def _follow(callbacks: Any, name: str, to: recorder.Recorder, trained: TrainingSeen) -> None:
    own, is_train = getattr(callbacks, name), "train" in name

    @functools.wraps(own)
    def end(self: object, *args: object, **kwargs: object) -> object:
        result = own(self, *args, **kwargs)
        if is_train or not trained.has_begun:
            to.step(recorder.KERAS, _batches(self, *args[:1]))
        else:
            to.boundary(0)  # others may take their turn here all the same
        return result

    setattr(callbacks, name, end)


def _follow_begin(callbacks: Any, name: str, to: recorder.Recorder, trained: TrainingSeen) -> None:
    """Read the number of steps where they begin: the list knows it."""
    own = getattr(callbacks, name)
    is_train = "train" in name

    @functools.wraps(own)
    def begin(self: Any, *args: object, **kwargs: object) -> object:
        result = own(self, *args, **kwargs)
        try:
            if is_train:
                if not trained.has_begun and to.rank:
                    to.uncount()  # they were an evaluation before training
                trained.has_begun = True
            if is_train or not trained.has_begun:
                to.expect(_count(self))
        except (AttributeError, KeyError, TypeError, ValueError):
            pass  # it does not know either
        return result

    setattr(callbacks, name, begin)


def _batches(callbacks: Any, last: Any = None) -> int:
    """Return how many batches have ended with the one of this number: several may be executed at once."""
    try:
        whole = int(getattr(callbacks.model, "steps_per_execution", 1))
        if whole <= 1:
            return 1
        steps = (callbacks.params or {}).get("steps")
        return whole if steps is None else max(1, min(whole, int(steps) - (int(last) - whole + 1)))
    except (AttributeError, TypeError, ValueError):
        return 1


def _count(callbacks: Any) -> int:
    """Return how many steps a list of callbacks has ahead."""
    params = callbacks.params or {}
    return int(params["epochs"]) * int(params["steps"])
