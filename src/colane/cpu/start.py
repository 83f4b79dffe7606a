"""How many cores a training job starts with (CODA, paper D, section IV-B)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from colane.model.category import Category

DEFAULT_CORES: Mapping[Category, int] = MappingProxyType(
    {Category.CV: 3, Category.NLP: 5, Category.SPEECH: 5, Category.UNKNOWN: 5}
)
"""For each GPU, of an owner without history: the paper's 3, 5, 5; it says nothing of unknown kinds."""

SEVERAL_NODES_CORES_MAX = 2
"""Most cores a job over several nodes can use on each (section III: it waits for the network)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreHints:
    """What an owner may say of the work between two steps.

    Attributes:
        pipelined: The next batch is made ready while the GPU works: one core fewer.
        many_weights: Steps are long, so loading has time: one fewer.
        complex_between: Much is computed on the CPU between two steps: one more.
    """

    pipelined: bool = False
    many_weights: bool = False
    complex_between: bool = False

    @property
    def change(self) -> int:
        """What they add to the start value."""
        return self.complex_between - self.pipelined - self.many_weights


NO_HINTS = CoreHints()


class StartFrom(StrEnum):
    """What a start value rests on."""

    OWN_CATEGORY = "own jobs of this category"
    OWN_JOBS = "own jobs of other categories"
    CATEGORY = "default of the category"
    UNKNOWN = "default: category unknown"


class CoreHistory(NamedTuple):
    """A kind of job of one owner, and the cores for each GPU that were right for it."""

    category: Category
    cores: int


class StartCores(NamedTuple):
    """Cores a job starts with.

    Attributes:
        per_gpu: For each of its GPUs; over several nodes for each node.
        total: On one node: for all its GPUs there.
        source: What that rests on.
    """

    per_gpu: int
    total: int
    source: StartFrom


def start_cores(
    category: Category,
    history: Iterable[CoreHistory] = (),
    hints: CoreHints = NO_HINTS,
    *,
    gpus: int = 1,
    several_nodes: bool = False,
) -> StartCores:
    """Cores on one node to start with: the most that was right for the owner's jobs, else a default.

    Args:
        category: Of the job.
        history: Of its owner's jobs that have run.
        hints: Of its owner.
        gpus: GPUs it has on the node.
        several_nodes: It lies on more than one.
    """
    base, source = _base(category, list(history))
    per_gpu = max(1, base + hints.change)
    if several_nodes:
        per_gpu = min(per_gpu, SEVERAL_NODES_CORES_MAX)
        return StartCores(per_gpu, per_gpu, source)
    return StartCores(per_gpu, per_gpu * gpus, source)


def _base(category: Category, history: list[CoreHistory]) -> tuple[int, StartFrom]:
    alike = [one.cores for one in history if one.category is category]
    if alike and category is not Category.UNKNOWN:
        return max(alike), StartFrom.OWN_CATEGORY
    if category is Category.UNKNOWN:
        every = [one.cores for one in history]
        return (max(every), StartFrom.OWN_JOBS) if every else (DEFAULT_CORES[category], StartFrom.UNKNOWN)
    return DEFAULT_CORES[category], StartFrom.CATEGORY
