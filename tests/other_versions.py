"""What a side of another version says: more fields wherever there are objects, words of its own, or less."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

TOMORROW: Final = "a-word-of-tomorrow"
MAPPINGS: Final = frozenset({"by_job", "labels", "env"})
"""Objects whose keys are data: what is added there is no unknown field."""
SINCE_0_2: Final = frozenset({
    "version", "agent_version", "scheduler_version", "others_ratio", "memory_by", "occupancy_by", "noise_scale",
    "others_s", "answers", "idle_s", "latency_p50_s", "latency_p95_s", "latency_p99_s",
    "reforms", "ranks", "turn_handoff_s", "because", "flush", "memory", "bandwidth",
})  # fmt: skip
"""Fields that came in the course of 0.2, and that each side can do without."""


def newer(value: Any, name: str = "") -> Any:
    """Add a field to each object within."""
    if isinstance(value, dict):
        more = {} if name in MAPPINGS else {"said_by_newer_ones": [{"x": 1}]}
        return {**{key: newer(each, key) for key, each in value.items()}, **more}
    return [newer(each) for each in value] if isinstance(value, list) else value


def older(value: Any, name: str = "") -> Any:
    """Leave out what an older one does not say."""
    if isinstance(value, dict):
        left_out = frozenset() if name in MAPPINGS else SINCE_0_2
        return {key: older(each, key) for key, each in value.items() if key not in left_out}
    return [older(each) for each in value] if isinstance(value, list) else value


def with_words(value: Any, words: Mapping[str, tuple[str, ...]]) -> Any:
    """Say another word in the place of these.

    Args:
        value: Said by this version.
        words: By name of a field, what another version has a word of its own for.
    """
    if isinstance(value, dict):
        own = {key for key, said in value.items() if isinstance(said, str) and said in words.get(key, ())}
        return {key: TOMORROW if key in own else with_words(each, words) for key, each in value.items()}
    return [with_words(each, words) for each in value] if isinstance(value, list) else value
