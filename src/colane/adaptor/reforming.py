"""Going on as fewer ranks inside living processes: the group is formed anew, surplus ranks leave.

For ranks that Colane has started, all on one machine, which talk by gloo. The state is saved before, so that whatever
goes wrong here ends in an ordinary restart from it.
"""

from __future__ import annotations

import os
import sys

from . import saving

LEFT = 76  # exit code of a rank that the others go on without

FORM_MAX_S = 10.0
"""Ranks that are missing after so long are not waited for: those that are there leave, their state saved."""

BATCH_ENV, EACH_ENV, KIND_ENV = "COLANE_BATCH_SIZE", "COLANE_BATCH_SIZE_PER_GPU", "COLANE_BATCH"
"""Samples of a step of all ranks, of each of them, and which of the two stays."""

TYPE_CHECKING = False  # as `typing` has it, which costs milliseconds to import
if TYPE_CHECKING:
    from typing import Any


def is_possible() -> bool:
    """Whether these are several ranks that Colane has started on this machine, and that talk by gloo."""
    ours = "GROUP_RANK" in os.environ and not any(name in os.environ for name in saving.LAUNCHERS)
    if not ours or os.environ.get("LOCAL_WORLD_SIZE") != os.environ.get("WORLD_SIZE"):
        return False
    group = _distributed()
    return group is not None and group.get_world_size() > 1 and group.get_backend() == "gloo"


def agree(wanted: int, *, has_failed: bool) -> tuple[int, bool]:
    """As how many ranks to go on, which one of them was told, and whether any could not save its state."""
    return saving.agreed(wanted), bool(saving.agreed(int(has_failed)))


def form(ranks: int) -> bool:
    """Form the group of the first `ranks` ranks; whether this process is one of them.

    Where they meet is a port that the first one listens on before it is told, so that it cannot have been taken. Raises
    Exception: another rank did not come in time, or is gone.
    """
    from datetime import timedelta

    group = _distributed()
    if group is None:
        raise RuntimeError("there is no group to form anew")
    rank, wait = group.get_rank(), timedelta(seconds=FORM_MAX_S)
    store = None
    if rank == 0:
        store = group.TCPStore("127.0.0.1", 0, ranks, is_master=True, timeout=wait, wait_for_workers=False)
    port = saving.agreed(0 if store is None else store.port)
    group.destroy_process_group()
    if rank >= ranks:
        return False
    if store is None:
        store = group.TCPStore("127.0.0.1", port, ranks, is_master=False, timeout=wait)
    _meet(store, rank, ranks, wait)
    _tell(ranks, port)
    group.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    return True


def _meet(store: Any, rank: int, ranks: int, wait: object) -> None:
    """All are there: the group itself would wait for half an hour."""
    store.set(f"colane-{rank}", "here")
    store.wait([f"colane-{other}" for other in range(ranks)], wait)


def _tell(ranks: int, port: int) -> None:
    """What a script, and the libraries it uses, look up in the environment."""
    numbers = {"WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "NPROC_PER_NODE": ranks, "MASTER_PORT": port}
    whole, each = os.environ.get(BATCH_ENV, ""), os.environ.get(EACH_ENV, "")
    if os.environ.get(KIND_ENV) == "per-gpu" and each.isdecimal():
        numbers[BATCH_ENV] = int(each) * ranks
    elif whole.isdecimal():
        numbers[EACH_ENV] = int(whole) // ranks
    os.environ.update({name: str(value) for name, value in numbers.items()})


def _distributed() -> Any:
    """The module of the group, where there is one."""
    torch = sys.modules.get("torch")
    group = getattr(torch, "distributed", None)
    return group if group is not None and group.is_available() and group.is_initialized() else None
