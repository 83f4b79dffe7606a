"""The exact placer of a node: every set of free GPUs is looked at, those that are alike once, and answers are kept."""

from __future__ import annotations

from functools import lru_cache

from colane.perf.topology import distinct_sets
from colane.policies.placing.node_fit import Fit, Question, front


@lru_cache(maxsize=1 << 17)
def exact(question: Question) -> tuple[Fit, ...]:
    """Best sets for a job on a node, best for the cluster first; later ones are better for the job. Empty: no room."""
    return front(question, distinct_sets(question.shape, question.free, question.ranks))
