"""Users that count for more: weighted dominant resource fairness (Ghodsi et al., NSDI 2011, section 4.3)."""

from __future__ import annotations

from math import isfinite
from typing import Final, final

Weights = tuple[tuple[str, float], ...]


@final
class UserWeights:
    """A user of weight 2 may hold twice as much as one of weight 1, the default.

    Args:
        weights: Of each user named, above 0.
    """

    def __init__(self, weights: Weights = ()) -> None:
        self.weights: Final = weights
        self._of: Final = dict(weights)

    def of(self, user: str) -> float:
        """A user's."""
        return self._of.get(user, 1.0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UserWeights) and self.weights == other.weights

    def __hash__(self) -> int:
        return hash(self.weights)

    def __repr__(self) -> str:
        return f"UserWeights({self.weights!r})"


ALL_ALIKE: Final = UserWeights()


def read_weights(text: str) -> UserWeights | None:
    """Weights written as `ann=2/bob=0.5`; None where the text is not of that form, or names a user twice."""
    weights = [_read(part) for part in text.split("/")]
    found = tuple([weight for weight in weights if weight is not None])
    return UserWeights(found) if len(dict(found)) == len(weights) else None


def _read(part: str) -> tuple[str, float] | None:
    user, _, number = part.partition("=")
    try:
        weight = float(number)
    except ValueError:
        return None
    return (user, weight) if user and isfinite(weight) and weight > 0 else None
