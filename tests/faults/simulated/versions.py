"""Agents and schedulers of other versions: what they say of what this one would say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

from tests.other_versions import newer, older, with_words

AGENTS_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "sharing": ("cpu", "time-slice", "mps"),
    "phase": ("launched",),
    "turn": ("running", "waiting"),
    "outcome": ("signalled", "supervisor-died", "lease-run-out"),
}
"""Words for which a newer agent has others; a job that has exited has exited under every version."""
SCHEDULERS_WORDS: Final[Mapping[str, tuple[str, ...]]] = {"rule": ("fair", "fifo", "srtf"), "kind": ("training",)}
WORDS_RATIO: Final = 0.3
"""The part of a newer one's messages in which it says its own words."""


def as_it_is(value: Any) -> Any:
    """Say what this version says."""
    return value


def of_another(random: Random, words: Mapping[str, tuple[str, ...]]) -> Callable[[Any], Any]:
    """Draw how one of another version speaks: an older one says less, a newer one more, now and then in other words."""
    if random.random() < 0.4:
        return older

    def speak(value: Any) -> Any:
        return newer(with_words(value, words) if random.random() < WORDS_RATIO else value)

    return speak
