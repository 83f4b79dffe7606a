"""What a training job works on, as far as it decides how many CPU cores it needs (paper D)."""

from __future__ import annotations

from enum import StrEnum


class Category(StrEnum):
    """Kinds of training that differ in what their CPU side has to do (CODA, paper D, section IV-B)."""

    CV = "cv"
    """Images and video."""
    NLP = "nlp"
    """Text."""
    SPEECH = "speech"
    """Sound."""
    UNKNOWN = "unknown"
