"""How many cores a training job starts with (CODA, paper D, section IV-B)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from colane.model.job_spec import Category, CoreHint

DEFAULT_CORES: Mapping[Category, int] = MappingProxyType(
    {Category.CV: 3, Category.NLP: 5, Category.SPEECH: 5, Category.UNKNOWN: 5}
)
"""For each GPU, of an owner without history: the paper's 3, 5, 5; it says nothing of unknown kinds."""

SEVERAL_NODES_CORES_MAX = 2
"""Most cores a job over several nodes can use on each (section III: it waits for the network)."""


HINTS: Mapping[CoreHint, int] = MappingProxyType(
    {CoreHint.PIPELINED: -1, CoreHint.MANY_WEIGHTS: -1, CoreHint.COMPLEX_BETWEEN: 1}
)
"""Cores for each GPU more or less than the base."""


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
    """Cores a job starts with."""

    per_gpu: int  # for each of its GPUs; over several nodes for each node
    total: int  # on one node: for all its GPUs there
    source: StartFrom  # what that rests on


def start_cores(
    category: Category,
    history: Iterable[CoreHistory] = (),
    hints: Collection[CoreHint] = (),
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
    per_gpu = max(1, base + sum([HINTS[hint] for hint in hints]))
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
