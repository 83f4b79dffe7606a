"""What a YAML file may hold that becomes JSON: values of JSON's types, bounded in number and depth, no circles."""

from __future__ import annotations

from typing import Final

import yaml

NODES_MAX: Final = 200_000
"""Values of one job with what its aliases stand for: ten times the largest environment, and far from filling memory."""

DEPTH_MAX: Final = 50

_PREFIX: Final = "tag:yaml.org,2002:"
_KNOWN: Final = frozenset(_PREFIX + name for name in ("str", "int", "float", "bool", "null", "map", "seq", "merge"))
_DATE: Final = _PREFIX + "timestamp"
_NOT_FINITE: Final = frozenset({".nan", ".inf", "-.inf", "+.inf"})


class UnfitNodeError(Exception):
    """A value that a job cannot have; `line` counts from 1."""

    def __init__(self, node: yaml.Node, message: str) -> None:
        super().__init__(message)
        self.line = node.start_mark.line + 1


def judge(root: yaml.Node) -> None:
    """Take dates for the texts they are written as, and refuse what is no JSON.

    Raises UnfitNodeError: a circle, too many values by way of aliases, too deep, or of a type that JSON has not.
    """
    left, seen = [(root, 0)], 0
    while left:
        node, depth = left.pop()
        seen += 1
        if seen > NODES_MAX or depth > DEPTH_MAX:
            raise UnfitNodeError(node, "holds too much, or itself, by way of its aliases (*name)")
        if node.tag == _DATE:
            node.tag = f"{_PREFIX}str"
        if node.tag not in _KNOWN:
            raise UnfitNodeError(node, f"is of a type that a job cannot have: {node.tag.removeprefix(_PREFIX)}")
        if isinstance(node, yaml.ScalarNode):
            if node.tag == f"{_PREFIX}float" and node.value.lower() in _NOT_FINITE:
                raise UnfitNodeError(node, f"{node.value} is not a number that a job can have")
            if "\0" in node.value:
                raise UnfitNodeError(node, "a text holds a NUL character, which no process can be given")
        elif isinstance(node, yaml.MappingNode):
            left += [(one, depth + 1) for pair in node.value for one in pair]
        else:
            left += [(one, depth + 1) for one in node.value]
