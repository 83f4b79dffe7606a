"""Which needs of a job could be smaller, and the values to try."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from colane.api.job_request import JobRequest, in_base_units
from colane.server.board.read_model import NodeRecord

GB: Final = 10**9
VALUES_MAX: Final = 4096


@dataclass(frozen=True, slots=True)
class SmallerNeed:
    """A need that could be smaller."""

    field: str  # of the request
    option: str  # of `colane submit`
    values: Sequence[int | str | None]  # to try, the least that is asked for first

    def said(self, value: int | str | None) -> str:
        """Return the option with a value, as a user gives it."""
        if value is None:
            return f"any GPU type (no {self.option})"
        if self.field == "gpu_memory_bytes" and isinstance(value, int):
            return f"{self.option} {value / GB:g}GB"
        return f"{self.option} {value}"

    def request(self, request: JobRequest, value: int | str | None) -> JobRequest:
        """Return the request with this need."""
        given: Any = (value,) if self.field == "gpus" else value
        if self.field != "gpu_memory_bytes":
            return request.model_copy(update={self.field: given})
        copied = request.model_copy(update={self.field: given, "gpu_memory": None})
        copied.model_fields_set.discard("gpu_memory")  # it is given once, in bytes
        return copied


def smaller_needs(request: JobRequest, nodes: Iterable[NodeRecord]) -> Iterator[SmallerNeed]:
    """Yield the needs of a request that could be smaller: GPUs, memory of each, their type, cores."""
    asked = in_base_units(request)
    least, memory, cores = min(asked.gpus), asked.gpu_memory_bytes, asked.cores
    if least > 1:
        yield SmallerNeed("gpus", "--gpus", range(1, min(least, VALUES_MAX)))
    if least and memory is not None and memory > GB:
        sizes = {gpu.memory_bytes for record in nodes for gpu in record.node.gpus}
        most = min(memory - 1, max(sizes, default=0))
        yield SmallerNeed("gpu_memory_bytes", "--gpu-memory", [GB * one for one in range(1, most // GB + 1)])
    if least and asked.gpu_type is not None:
        yield SmallerNeed("gpu_type", "--gpu-type", [None])
    if cores > 1:
        yield SmallerNeed("cores", "--cores", range(1, min(cores, VALUES_MAX)))
