"""What of a submitting shell's environment a job gets."""

from __future__ import annotations

import os
import re
from typing import Final

NOT_FOR_JOBS: Final = (
    "COLANE_TOKEN", "COLANE_TOKEN_FILE", "COLANE_STATE", "COLANE_STORE_PASSWORD", "_", "OLDPWD", "SHLVL",
)  # fmt: skip
"""Variables of the submitting shell that a job does not get: our token, and what describes that shell itself."""

OF_ANOTHER_LAUNCH: Final = re.compile(
    r"(SLURM|SLURMD|SBATCH|SRUN|PMI|PMIX|OMPI|TORCHELASTIC|GROUP|ROLE)_.*|((LOCAL|NODE)_)?RANK|(LOCAL_)?WORLD_SIZE"
    r"|MASTER_(ADDR|PORT)"
)
"""They name the place of a process in the launch the submitting shell belongs to (an interactive Slurm job, a notebook
under torchrun). A job that believed them would wait for ranks that do not exist."""


def shell_environment() -> tuple[dict[str, str], list[str]]:
    """Return the variables of this shell that a job gets, and the names of those left out because they are no text."""
    kept, left_out = dict[str, str](), list[str]()
    for name, value in os.environ.items():
        if name in NOT_FOR_JOBS or OF_ANOTHER_LAUNCH.fullmatch(name):
            continue
        try:
            f"{name}{value}".encode()
        except UnicodeEncodeError:
            left_out.append(name.encode(errors="replace").decode())
        else:
            kept[name] = value
    return kept, left_out
