"""Whether the objective of a server could be kept at all: no policy answers sooner than the job does alone."""

from __future__ import annotations

from collections.abc import Iterable

from colane.core import ClusterState
from colane.model.job import JobSpec
from colane.model.problem import Problem
from colane.perf.answers import answers_alone
from colane.server.ground.problems import RefusedError


def demand_possible(state: ClusterState, specs: Iterable[JobSpec]) -> None:
    """Refuse servers that are known to answer later than they may on each GPU type that they may have.

    Raises:
        RefusedError: 422, with what an answer takes and what to do.
    """
    for position, spec in enumerate(specs):
        problem = objective_problem(state, spec)
        if problem is not None:
            raise RefusedError(422, [problem._replace(field=f"jobs[{position}].{problem.field}")])


def objective_problem(state: ClusterState, spec: JobSpec) -> Problem | None:
    """What is wrong with a server's objective; None where it can be kept, or its answers are not known everywhere."""
    if spec.latency_s is None:
        return None
    nodes = [known.node for known in state.nodes.values() if known.node.pool == spec.pool]
    types = {gpu.type for node in nodes for gpu in node.gpus if spec.gpu_type in {None, gpu.type}}
    took = [(answers_alone(state.beliefs, spec, kind), kind) for kind in sorted(types)]
    late = [(one, kind) for one, kind in took if one is not None and one.beyond_s(spec.latency_s) is not None]
    if not late or len(late) < len(took):
        return None
    one, kind = min(late, key=lambda each: max(each[0].mean_s, each[0].p99_s or 0.0))
    return Problem(
        "latency_s",
        f"asks for answers within {spec.latency_s:.3g} s, but one of {spec.family} takes {one.text} alone on {kind}"
        f": ask for more, or leave it out; if that was learnt of something else, colane profile forget {spec.family}",
    )
