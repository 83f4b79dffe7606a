"""The one gate to NVML: what this driver does not have, or refuses, is None and never an exception.

NVML is loaded on the first use. Functions come and go with drivers, and most fail on some device (MIG
instances, virtual GPUs, consumer cards), so every answer may be missing. Only a lost GPU is told apart: it
must leave scheduling. Reference: NVML API guide, nvmlReturn_t and nvmlFieldValue_t.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pynvml

LOST_ERRORS = frozenset(
    {pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED, pynvml.NVML_ERROR_GPU_NOT_FOUND}
)
"""The GPU does not answer any more: fallen off the bus, or in need of a reset."""

CANNOT_TELL = frozenset(
    {pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_NO_PERMISSION, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND}
)
"""A device that is well may answer so to what every device is asked; any other error of that is a sign of an ill one:
a dead GPU, or one whose driver hangs, gives 999 (unknown) to all."""

TRIES = 5  # so often a device is asked for what never changes, at the start of an agent

NO_DRIVER = frozenset({pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED})
"""What opening NVML gives on a machine without GPUs."""

WORDS = {pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "Driver/library version mismatch: it was renewed while loaded"}
"""What nvidia-smi says is better known than what NVML does."""

LONGER_RECORD_DRIVERS = ((535, 43), (535, 98))
"""From the first of these up to the second, `..._v3` filled 32 bytes for a process where it fills 24 before and after:
read as 24, the second process has the end of the first one's record as its number. The function before it (`_v2`) has
24 in all of them."""

_FIELD_OF_TYPE = {
    pynvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
}


Handle = Any  # what NVML gives to ask with: a device, a sample, a structure; only NVML looks inside


class GpuLostError(Exception):
    """The GPU asked does not answer any more."""


class NvmlUnavailableError(Exception):
    """NVML cannot be opened.

    Attributes:
        has_driver: Whether this is a machine with GPUs all the same, on which something is broken.
    """

    def __init__(self, why: str, *, has_driver: bool) -> None:
        super().__init__(why)
        self.has_driver = has_driver


class _Lost:
    """Stands for the handle of a GPU that has none any more."""


LOST: Handle = _Lost()


class Nvml:
    """Calls into one NVML module, real or a double."""

    def __init__(self, module: ModuleType | Any) -> None:  # noqa: ANN401 - any object with NVML's functions
        self._module = module
        self._record: tuple[str, ...] | None = None

    def call(self, name: str, *arguments: Any) -> Any:  # noqa: ANN401 - as NVML answers
        """Call NVML's function `name`; None when it does not exist or fails.

        Raises GpuLostError: the GPU asked does not answer any more.
        """
        function = getattr(self._module, name, None)
        if any(argument is LOST for argument in arguments):
            raise GpuLostError(name)
        if function is None:
            return None
        try:
            return function(*arguments)
        except pynvml.NVMLError as error:
            if error.value in LOST_ERRORS:
                raise GpuLostError(name) from error
            return None

    def call_surely(self, name: str, *arguments: Any) -> Any:  # noqa: ANN401 - as NVML answers
        """Call for what is asked once for all: a driver that is busy may fail to answer, and answer right after.

        Raises GpuLostError: the GPU asked does not answer any more.
        """
        for _ in range(TRIES):
            answer = self.call(name, *arguments)
            if answer is not None:
                return answer
        return None

    def is_ill(self, handle: Handle) -> bool:
        """Whether a GPU fails to answer what every one can. Raises GpuLostError: it does not answer any more."""
        function = getattr(self._module, "nvmlDeviceGetMemoryInfo", None)
        if handle is LOST:
            raise GpuLostError("nvmlDeviceGetMemoryInfo")
        try:
            if function is not None:
                function(handle)
        except pynvml.NVMLError as error:
            if error.value in LOST_ERRORS:
                raise GpuLostError("nvmlDeviceGetMemoryInfo") from error
            return error.value not in CANNOT_TELL
        return False

    def processes(self, handle: Handle, kind: str) -> Sequence[Any]:
        """Give the processes of a kind (`Compute`, `Graphics`, `MPSCompute`) on a device, by the records it fills.

        Raises GpuLostError: the GPU asked does not answer any more.
        """
        if self._record is None:
            text = self.call("nvmlSystemGetDriverVersion")
            parts = (text.decode() if isinstance(text, bytes) else str(text)).split(".")
            version = tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) else ()
            is_longer = LONGER_RECORD_DRIVERS[0] <= version < LONGER_RECORD_DRIVERS[1]
            self._record = ("_v2",) if is_longer else ("_v3", "_v2")
        for suffix in self._record:
            found = self.call(f"nvmlDeviceGet{kind}RunningProcesses{suffix}", handle)
            if found is not None:
                return list(found)
        return ()

    def fields(self, handle: Handle, ids: Sequence[int]) -> dict[int, float]:
        """Read several fields of a GPU in one call; those it does not have are left out."""
        values = self.call("nvmlDeviceGetFieldValues", handle, list(ids)) or ()
        return {
            value.fieldId: getattr(value.value, _FIELD_OF_TYPE[value.valueType])
            for value in values
            if value.nvmlReturn == pynvml.NVML_SUCCESS and value.valueType in _FIELD_OF_TYPE
        }

    def handles(self) -> list[Handle]:
        """Give the handle of each GPU in NVML's order; one that is lost already is left out."""
        handles = (self._handle(index) for index in range(self.count()))
        return [handle for handle in handles if handle is not None]

    def count(self) -> int:
        """Say of how many GPUs NVML knows, whether they answer or not."""
        try:
            return int(self.call_surely("nvmlDeviceGetCount") or 0)
        except GpuLostError:
            return 0

    def _handle(self, index: int) -> Handle:
        try:
            return self.call_surely("nvmlDeviceGetHandleByIndex", index)
        except GpuLostError:
            return None


def load_nvml() -> Nvml:
    """Open NVML. Raises NvmlUnavailableError: it cannot be opened; says why."""
    module = importlib.import_module("pynvml")
    try:
        module.nvmlInit()
    except pynvml.NVMLError as error:
        words = WORDS.get(error.value, str(error).rstrip("."))
        raise NvmlUnavailableError(words, has_driver=error.value not in NO_DRIVER) from error
    return Nvml(module)
