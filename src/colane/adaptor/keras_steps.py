"""Steps of a Keras job: its list of callbacks hears of the end of every batch, whatever computes it."""

from __future__ import annotations

import functools

from . import recorder

TYPE_CHECKING = False  # as `typing` has it, which costs milliseconds to import
if TYPE_CHECKING:
    from typing import Any


def attach(keras: Any) -> None:
    """Follow Keras's callbacks with a boundary; steps that PyTorch's hooks would see are then Keras's."""
    to = recorder.current()
    if to is None:
        return
    callbacks = keras.callbacks.CallbackList
    _follow(callbacks, "on_train_batch_end", to)
    _follow(callbacks, "on_predict_batch_end", to)
    _follow_begin(callbacks, to)


def _follow(callbacks: Any, name: str, to: recorder.Recorder) -> None:
    own = getattr(callbacks, name)

    @functools.wraps(own)
    def end(self: object, *args: object, **kwargs: object) -> object:
        result = own(self, *args, **kwargs)
        to.step(recorder.KERAS)
        return result

    setattr(callbacks, name, end)


def _follow_begin(callbacks: Any, to: recorder.Recorder) -> None:
    """Read the number of steps where training begins: the list knows it."""
    own = callbacks.on_train_begin

    @functools.wraps(own)
    def begin(self: Any, *args: object, **kwargs: object) -> object:
        result = own(self, *args, **kwargs)
        try:
            params = self.params or {}
            to.expect(int(params["epochs"]) * int(params["steps"]))
        except (AttributeError, KeyError, TypeError, ValueError):
            pass  # it does not know either
        return result

    callbacks.on_train_begin = begin
