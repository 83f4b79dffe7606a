"""Errors that the driver reports of a GPU by number (Xid), as NVML events.

Most are a program's own fault (13, 31, 43, 45, ...) and leave the GPU well. The others take it out of scheduling until
it has been reset and the agent started anew; a newer driver says of each GPU, too, whether it must be (`gpu`), also
to an agent that started after the error. No driver tells of errors before, so these are kept in a file (`Unreset`).
Reference: NVIDIA, Xid Errors: those whose action is a reset or a restart.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pynvml

from colane.devices.host import boot_id
from colane.devices.nvml import GpuLostError, Handle, Nvml

log = logging.getLogger(__name__)

NAME: Final = "xids.json"

FATAL: Final = frozenset({48, 62, 64, 74, 79, 95, 110, 119, 120, 136, 140, 143, 158})
"""Uncorrectable memory error, halted or failed microcontroller, failed row remapping, NVLink error, fallen off the bus,
uncontained memory error, security fault, GSP that does not answer, failed link training, unrecovered memory error,
failed start, fatal timeout."""

GRADED: Final = frozenset({*range(144, 151), 154})
"""Errors of NVLink that may be fatal, and a change of what must be done: fatal where the driver does not say what."""

UNCORRECTABLE: Final = 48
"""A double-bit error. What becomes of it on a GPU that can contain it is said by another: 94 contained, 95 not."""

EVENTS_MAX: Final = 100  # events read at one look; more come at the next


class Unreset:
    """Fatal errors of GPUs that were not reset since, in a file in the agent's state: the next agent goes by them.

    A GPU has been reset if the machine was started since, or if its driver counts its energy anew, which it does from
    where it was loaded or the GPU reset (NVML, `nvmlDeviceGetTotalEnergyConsumption`). Without persistence mode it
    does so whenever no process has the GPU open, as between two agents: then energy proves nothing.
    """

    def __init__(self, nvml: Nvml, root: Path | None) -> None:
        self._nvml = nvml
        self._path = None if root is None else root / NAME
        self._errors: dict[str, dict[str, Any]] = {}
        self._is_kept = True
        with suppress(OSError, ValueError, TypeError):  # a spoilt file is none
            self._errors = dict(json.loads(self._path.read_text())) if self._path else {}

    def xid(self, uuid: str, handle: Handle) -> int | None:
        """Give that of a GPU, as the agent starts."""
        error = self._errors.get(uuid)
        if error is None:
            return None
        try:
            xid, before_mj, now_mj = int(error["xid"]), error["energy_mj"], self._energy_mj(handle)
            is_reset = error["boot"] != boot_id() or (before_mj and now_mj is not None and now_mj < before_mj)
        except (KeyError, TypeError, ValueError):
            is_reset = True
        if is_reset:
            del self._errors[uuid]
            self._keep()
            return None
        log.warning("%s had Xid %d: it stays unused until it is reset; if it was, delete %s", uuid, xid, self._path)
        return xid

    def add(self, uuid: str, handle: Handle, xid: int) -> None:
        """Keep that of a GPU; asked at each look, for it may take until the file can be written."""
        if uuid not in self._errors:
            is_open = self._nvml.call("nvmlDeviceGetPersistenceMode", handle) == pynvml.NVML_FEATURE_ENABLED
            energy_mj = self._energy_mj(handle) if is_open else None
            self._errors[uuid] = {"xid": xid, "boot": boot_id(), "energy_mj": energy_mj}
            self._is_kept = False
        if not self._is_kept:
            self._keep()

    def _keep(self) -> None:
        self._is_kept = self._path is None
        if self._path is not None:
            with suppress(OSError):
                draft = self._path.with_suffix(".new")
                draft.write_text(json.dumps(self._errors))
                draft.replace(self._path)
                self._is_kept = True

    def _energy_mj(self, handle: Handle) -> int | None:
        with suppress(GpuLostError, TypeError):
            return int(self._nvml.call("nvmlDeviceGetTotalEnergyConsumption", handle))
        return None


class XidWatch:
    """What the driver has said of one GPU since it was reset, as far as an agent was there."""

    def __init__(self, nvml: Nvml, handle: Handle, uuid: str, unreset: Unreset) -> None:
        with suppress(GpuLostError):  # that of the whole GPU, which its instances are reset with
            uuid = str(nvml.call_surely("nvmlDeviceGetUUID", handle) or uuid)
        self._nvml, self._handle, self._uuid, self._unreset = nvml, handle, uuid, unreset
        self._events = self._subscribe(handle)
        self._fatal = self.latest = unreset.xid(uuid, handle)
        """The latter is the last one of any kind, as of the last call of `fatal`."""

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
        if self._fatal is not None:
            self._unreset.add(self._uuid, self._handle, self._fatal)
        return self._fatal

    def _subscribe(self, handle: Handle) -> Handle:
        try:
            events = self._nvml.call("nvmlEventSetCreate")
            if events is not None:
                self._nvml.call("nvmlDeviceRegisterEvents", handle, pynvml.nvmlEventTypeXidCriticalError, events)
        except GpuLostError:
            return None
        return events
