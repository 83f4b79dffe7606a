"""Settings of the core."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreConfig:
    """How the core treats jobs, whatever the policy.

    Attributes:
        protection_factor: A job is left alone for this many launch times after its first step (paper E, 4.2).
        opaque_after_s: A process that reports no step for this long is taken to run.
        gang_ports: First and last port on which ranks of jobs over several nodes meet, each job on its own.
        node_losses_max: A job whose node or GPU is lost is queued again this often; the loss is not its fault.
    """

    protection_factor: float = 3.0
    opaque_after_s: float = 10.0
    gang_ports: tuple[int, int] = (29500, 29999)
    node_losses_max: int = 3
