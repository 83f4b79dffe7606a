"""NCCL as a rank's stream sees it: a collective runs once the streams of all ranks have come to it.

The host only launches it, and what it launches after that waits on the device, as far as it may run ahead. Ranks meet
by the store of their group. Values are not exchanged: each rank is given its own for the others'.
"""

from __future__ import annotations

import functools
import inspect
import struct
from typing import Any

from . import torch_cuda

COLLECTIVE_S = 0.5e-3
_TIME = struct.Struct("=d")


class _Meeting:
    """One collective as one rank takes part."""

    def __init__(self, store: Any, name: str, rank: int, ranks: int) -> None:
        self._store, self._own = store, f"{name}/{rank}"
        self._all = [f"{name}/{other}" for other in range(ranks)]
        self._is_told = False

    def began_s(self, ready_s: float, block: bool) -> float | None:
        """When all have come; None while one has not, unless that is waited for."""
        if not self._is_told:
            self._store.set(self._own, _TIME.pack(ready_s).hex())
            self._is_told = True
        if block:
            self._store.wait(self._all)
        elif not self._store.check(self._all):
            return None
        return max(float(_TIME.unpack(bytes.fromhex(self._store.get(key).decode()))[0]) for key in self._all)


def register(torch: Any) -> None:  # noqa: C901 - a class that needs PyTorch
    """Let a group of backend `nccl` be one whose collectives meet on emulated GPUs."""
    dist = torch.distributed
    core = torch._C._distributed_c10d

    class Group(dist.ProcessGroup):  # type: ignore[misc, name-defined]
        def __init__(self, store: Any, rank: int, ranks: int) -> None:
            super().__init__(rank, ranks)
            self._store, self._rank, self._ranks, self._count = store, rank, ranks, 0

        def _meet(self, result: Any) -> Any:
            self._count += 1
            meeting = _Meeting(self._store, f"meet{self._count}", self._rank, self._ranks)
            stream = torch_cuda.stream()
            stream.device.launch(stream, COLLECTIVE_S, f"collective:{self._count}", meeting.began_s)
            done = torch.futures.Future()
            done.set_result(result)
            return core._create_work_from_future(done)

        def allreduce(self, tensors: Any, opts: Any = None) -> Any:
            return self._meet(tensors)

        def broadcast(self, tensors: Any, opts: Any = None) -> Any:
            return self._meet(tensors)

        def barrier(self, opts: Any = None) -> Any:
            return self._meet([])

        def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
            for places, own in zip(outputs, inputs, strict=True):
                for place in places:
                    place.copy_(own)
            return self._meet(outputs)

        def all_gather_single(self, output: Any, own: Any, opts: Any = None) -> Any:
            for place in output.view(self._ranks, -1):
                place.copy_(own.reshape(-1))
            return self._meet([output])

        def reduce_scatter_single(self, output: Any, own: Any, opts: Any = None) -> Any:
            output.copy_(own.view(self._ranks, -1)[self._rank].view_as(output))
            return self._meet([output])

        _allgather_base = all_gather_single
        _reduce_scatter_base = reduce_scatter_single

        def size(self) -> int:
            return self._ranks

        @property
        def group_name(self) -> str:
            return str(dist.distributed_c10d._world.pg_names[self])

        pg_name = group_name

        def getBackendName(self) -> str:  # noqa: N802 - the name is PyTorch's
            return "emulated"

    def make(store: Any, rank: int, ranks: int, _timeout: Any) -> Any:
        return Group(store, rank, ranks)

    dist.Backend.register_backend("emulated", make, devices=["cpu", "cuda"])
    for name in ("init_process_group", "new_group"):
        made = _emulated(getattr(dist, name))
        setattr(dist, name, made)
        setattr(dist.distributed_c10d, name, made)


def _emulated(own: Any) -> Any:
    """What makes groups, with ours for NCCL's."""
    signature = inspect.signature(own)

    @functools.wraps(own)
    def make(*args: Any, **kwargs: Any) -> Any:
        told = signature.bind(*args, **kwargs).arguments
        if told.get("backend") == "nccl":
            told["backend"] = "emulated"
        return own(**told)

    return make
