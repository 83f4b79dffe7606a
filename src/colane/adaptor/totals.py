"""How many steps a trainer on top of PyTorch has ahead, read where its training begins.

The steps themselves are found as in any other script; here is only what Lightning and HF's Trainer know of their end.
"""

from __future__ import annotations

import functools
import math

from . import recorder

TYPE_CHECKING = False  # as `typing` has it, which costs milliseconds to import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def attach_lightning(fit_loop: Any) -> None:
    """Ask Lightning's Trainer when its loop begins, with all data set up."""
    _announce(fit_loop._FitLoop, "on_run_start", _lightning_steps)  # noqa: SLF001


def attach_transformers(callbacks: Any) -> None:
    """Read the state that HF's Trainer hands to its callbacks."""
    _announce(callbacks.CallbackHandler, "on_train_begin", _transformers_steps)


def _announce(kind: Any, name: str, steps_ahead: Callable[..., Any]) -> None:
    to = recorder.current()
    if to is None:
        return
    own = getattr(kind, name)

    @functools.wraps(own)
    def begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = own(self, *args, **kwargs)
        try:
            ahead = steps_ahead(self, *args, **kwargs)
            if math.isfinite(ahead) and ahead > 0:
                to.expect(int(ahead))
        except Exception as error:  # noqa: BLE001  # the training must begin all the same
            recorder.debug(f"the number of steps is not known: {error!r}")
        return result

    setattr(kind, name, begin)


def _lightning_steps(loop: Any) -> Any:
    trainer = loop.trainer
    optimizers = 1 if trainer.lightning_module.automatic_optimization else max(len(trainer.optimizers), 1)
    return float(trainer.estimated_stepping_batches) - trainer.global_step / optimizers


def _transformers_steps(_handler: Any, _args: Any, state: Any, *_more: Any, **_named: Any) -> Any:
    return float(state.max_steps) - state.global_step
