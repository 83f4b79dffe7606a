"""Classes of which enough is known for their jobs to share; kept from one plan to the next."""

from __future__ import annotations

from collections.abc import Mapping

from colane.core.cluster.derived import NodesMatterNot
from colane.core.cluster.queue import Line
from colane.core.cluster.view import ClusterView
from colane.model.job import JobSpec, NeedClass

Classes = Mapping[tuple[int, NeedClass], Line]

CLASSES_MAX = 4096
"""Classes that are remembered at once."""


class Sharers(NodesMatterNot):
    """See the module; an answer holds while profiles and the GPU types of the pool stay as they are."""

    def __init__(self) -> None:
        self._pools: dict[str, tuple[int, list[str], dict[NeedClass, bool]]] = {}

    def among(self, view: ClusterView, pool: str, classes: Classes) -> Classes:
        """Those whose jobs might share a GPU, or are parked and may come back beside others."""
        known = self._known(view, pool)
        found: dict[tuple[int, NeedClass], Line] = {}
        for key, line in classes.items():
            need = key[1]
            shares = known.get(need)
            if shares is None and line.first is not None:
                if len(known) >= CLASSES_MAX:
                    known.clear()
                shares = known[need] = _might_share(view, need, view.job(line.first).effective)
            if shares:
                found[key] = line
        return found

    def _known(self, view: ClusterView, pool: str) -> dict[NeedClass, bool]:
        version, types = view.beliefs.version, view.gpu_types(pool)
        kept = self._pools.get(pool)
        if kept is None or kept[0] != version or kept[1] != types:
            kept = self._pools[pool] = version, types.copy(), {}
        return kept[2]


def _might_share(view: ClusterView, need: NeedClass, spec: JobSpec) -> bool:
    """Whether a class has memory and load on some GPU type; of a class of several sizes that is not asked here."""
    if need.home or (need.share and need.sizes):
        return True
    if not need.share or need.gpus != 1:
        return False
    for kind in view.gpu_types(need.pool, need.gpu_type):
        terms = view.beliefs.terms(spec, kind)
        if terms.memory is not None and terms.load is not None:
            return True
    return False
