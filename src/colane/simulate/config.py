"""What a driver charges besides steps."""

from __future__ import annotations

from dataclasses import dataclass

from colane.simulate.world import BandwidthTruth


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverConfig:
    """What living takes besides steps.

    Attributes:
        launch_s: From start of a process to its stepping.
        restart_s: Added to it for every attempt but the first: loading the saved state.
        stop_s: From the wish to stop a process, which halts its steps, to its end: saving the state.
        checkpoints: Whether a job that is stopped and queued again keeps the whole steps it made.
        park_bytes_per_s: How fast GPU memory is moved to the host when a job is parked, and back. The default is what
            one process reaches over PCIe 3.0 x16 with pinned memory, less a fifth for the driver's own work.
        switch_s: Passing on the turn of a lane, which nobody uses meanwhile.
        bandwidth: Who uses up memory bandwidth of nodes, and whom that slows; None: nobody.
        tick_s: The policy is asked at least this often while jobs live; None asks it only when something happened.
    """

    launch_s: float = 0.0
    restart_s: float = 0.0
    stop_s: float = 0.0
    checkpoints: bool = True
    park_bytes_per_s: float = 10e9
    switch_s: float = 0.0
    tick_s: float | None = None
    bandwidth: BandwidthTruth | None = None
