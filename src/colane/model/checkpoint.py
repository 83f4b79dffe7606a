"""How jobs of each framework are asked to save their state before they are stopped, and parsing of what owners say."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from colane.model.job_spec import SAVED, CheckpointContract

LEAD_MAX_S: Final = 86_400.0


CHECKPOINT_PRESETS: Final[Mapping[str, CheckpointContract]] = MappingProxyType(
    {
        "plain": CheckpointContract("SIGUSR1", 30.0),
        "lightning": CheckpointContract("SIGTERM", 60.0),
        "submitit": CheckpointContract("SIGUSR2", 90.0, (0, SAVED, 144, 255)),
        "nemo": CheckpointContract("SIGTERM", 60.0),
        "transformers": CheckpointContract("SIGTERM", 60.0),
        "torchrun": CheckpointContract("SIGUSR1", 60.0),
    }
)
"""What frameworks do when they are asked (docs/explanation/elastic.md says how each is set up).

* Lightning ends its loop at SIGTERM, with exit code 0, and saves in `on_exception` where a callback does
  (`OnExceptionCheckpoint`); its own handler of SIGUSR1 is there under Slurm alone.
* submitit saves at SIGUSR2 and leaves with 144 by its local executor, which has it not queued again, else by
  `sys.exit(-1)`; its default lead under Slurm is 90 s.
* NeMo's `PreemptionCallback` ends training at SIGTERM after the step, saves, and leaves with 0.
* The Trainer of transformers, with `enable_jit_checkpoint`, waits 3 s at SIGTERM, saves and ends its loop; the script
  leaves with 0.
* torchrun does not catch SIGUSR1, so it goes to the ranks; once all of them have ended well, torchrun does.
"""

CHECKPOINT_SIGNALS: Final = ("SIGUSR1", "SIGUSR2", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")
"""Signals a process can catch and that have no other meaning for it."""


SLURM: Final = "slurm:"  # before what `sbatch --signal` says: `slurm:USR1`, `slurm:B:USR1`


def parse_contract(text: str, lead_s: float | None = None) -> CheckpointContract:
    """A contract from the name of a preset or of a signal, with another lead time where one is given.

    Raises ValueError: there is no such preset or signal, or the time is not one.
    """
    named = text.strip()
    if named.lower().startswith(SLURM):
        return _as_slurm(named[len(SLURM) :], lead_s)
    known = CHECKPOINT_PRESETS.get(named.lower())
    if known is None:
        number = named.upper() if named.upper().startswith("SIG") else f"SIG{named.upper()}"
        if number not in CHECKPOINT_SIGNALS:
            forms = f"{', '.join(CHECKPOINT_PRESETS)}, or a signal: {', '.join(CHECKPOINT_SIGNALS)}"
            raise ValueError(f"must be one of {forms}, got {text[:60]!r}")
        known = CheckpointContract(number, CHECKPOINT_PRESETS["plain"].lead_s)
    if lead_s is None:
        return known
    if not 0 < lead_s <= LEAD_MAX_S:
        raise ValueError(f"the time to save must be more than 0 s and at most a day, got {lead_s:g} s")
    return known._replace(lead_s=lead_s)


def _as_slurm(text: str, lead_s: float | None) -> CheckpointContract:
    """What Slurm's `--signal` says. submitit, which saves at SIGUSR2, leaves with a code of its own."""
    name = text.upper().removeprefix("B:")
    saves_by_code = name.removeprefix("SIG") == "USR2"
    contract = parse_contract("submitit" if saves_by_code else name, lead_s)
    return contract._replace(is_notice=True, to_shell=name != text.upper())
