"""Errors that the driver reports of a GPU by number (Xid), as NVML events.

Most are a program's own fault (13, 31, 43, 45, ...) and leave the GPU well. The others take it out of scheduling until
it has been reset and the agent started anew; a newer driver says of each GPU, too, whether it must be (`gpu`), also
to an agent that started after the error. Reference: NVIDIA, Xid Errors: those whose action is a reset or a restart.
"""

from __future__ import annotations

from typing import Final

import pynvml

from colane.devices.nvml import GpuLostError, Handle, Nvml

FATAL: Final = frozenset({48, 62, 64, 74, 79, 95, 110, 119, 120, 136, 140, 143, 158})
"""Uncorrectable memory error, halted or failed microcontroller, failed row remapping, NVLink error, fallen off the bus,
uncontained memory error, security fault, GSP that does not answer, failed link training, unrecovered memory error,
failed start, fatal timeout."""

GRADED: Final = frozenset({*range(144, 151), 154})
"""Errors of NVLink that may be fatal, and a change of what must be done: fatal where the driver does not say what."""

UNCORRECTABLE: Final = 48
"""A double-bit error. What becomes of it on a GPU that can contain it is said by another: 94 contained, 95 not."""

EVENTS_MAX: Final = 100  # events read at one look; more come at the next


class XidWatch:
    """What the driver has said of one GPU since we look."""

    def __init__(self, nvml: Nvml, handle: Handle) -> None:
        self._nvml = nvml
        self._events = self._subscribe(handle)
        self._fatal: int | None = None
        self.latest: int | None = None
        """The last one of any kind, as of the last call of `fatal`."""

    def fatal(self, *, contains: bool = False, grades: bool = False) -> int | None:
        """Give the Xid that made the GPU unfit; None as long as there was none, or where NVML does not tell.

        Args:
            contains: Whether the GPU contains uncorrectable memory errors: then it says so by another Xid where not.
            grades: Whether its driver says what must be done with it.

        Raises:
            GpuLostError: The GPU does not answer any more.
        """
        for _ in range(EVENTS_MAX if self._events is not None else 0):
            event = self._nvml.call("nvmlEventSetWait_v2", self._events, 0)
            if event is None:
                break
            xid = self.latest = int(event.eventData)
            if (xid in FATAL and not (contains and xid == UNCORRECTABLE)) or (xid in GRADED and not grades):
                self._fatal = self._fatal or xid
        return self._fatal

    def _subscribe(self, handle: Handle) -> Handle:
        try:
            events = self._nvml.call("nvmlEventSetCreate")
            if events is not None:
                self._nvml.call("nvmlDeviceRegisterEvents", handle, pynvml.nvmlEventTypeXidCriticalError, events)
        except GpuLostError:
            return None
        return events
