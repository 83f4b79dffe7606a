from __future__ import annotations

import sys
from pathlib import Path

ROOT = str(Path(__file__).parents[2])
if ROOT not in sys.path:  # so that the scripts can be imported as `gpu.claims`, as mypy knows them
    sys.path.insert(0, ROOT)
