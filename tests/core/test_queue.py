"""The waiting line against a sorted list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from colane.core.cluster.free import FreeIndex
from colane.core.cluster.queue import Line
from colane.model.job import JobId


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 12)), max_size=60))
def test_a_line_is_a_sorted_set(moves: list[tuple[bool, int]]) -> None:
    line, model = Line(), set[int]()
    for add, job in moves:
        if add and job not in model:
            line.add(JobId(job))
            model.add(job)
        elif not add and job in model:
            line.remove(JobId(job))
            model.remove(job)
        assert list(line) == sorted(model)
        assert len(line) == len(model)
        assert line.first == (min(model) if model else None)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 8)), max_size=60), st.integers(1, 8))
def test_the_free_index_finds_what_a_scan_finds(changes: list[tuple[int, int]], need: int) -> None:
    index, model = FreeIndex(), dict[int, int]()
    for node, free in changes:
        index.set(node, free)
        model[node] = free
    fitting = sorted(node for node, free in model.items() if free >= need)
    assert list(index.nodes_with(need)) == fitting
    assert list(index.nodes_fullest_first(need)) == sorted(fitting, key=lambda node: (model[node], node))
    assert index.most_free == max(model.values(), default=0)
    among = {node for node in range(21) if node % need}
    emptiest = sorted(among, key=lambda node: (-model.get(node, 0), node))
    assert list(index.nodes_emptiest_first(sum(1 << node for node in among))) == emptiest
