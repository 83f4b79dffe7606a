"""Which of Colane's mechanisms are on, and why others are off, in one line."""

from __future__ import annotations

from collections.abc import Mapping


def on_and_off(told: Mapping[str, str]) -> str:
    """Return which are on, then the others with why."""
    on = [
        name + value.removeprefix("on").replace(": ", " ", 1) for name, value in told.items() if value.startswith("on")
    ]
    off = [f"{name} ({value.removeprefix('off: ')})" for name, value in told.items() if not value.startswith("on")]
    return f"on: {', '.join(on) or 'none'}" + (f"; off: {', '.join(off)}" if off else "")
