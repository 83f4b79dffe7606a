"""`python -m colane.cli` is `colane`: how `colane up` starts its scheduler and its agent."""

from __future__ import annotations

import sys

from colane.cli import main

sys.exit(main())
