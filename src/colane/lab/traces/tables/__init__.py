"""Measured tables of the field: how fast which job runs where, alone and with co-runners. One file for each source.

They hold what was measured and nothing else: a lookup outside a table gives None, never a guess.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

SHIPPED: Final = Path(__file__).parent / "shipped"
"""Tables that come with Colane: those of permissive licences (`shipped/NOTICES.md` there)."""
