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

_FIELD_OF_TYPE = {
    pynvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
}


Handle = Any
"""What NVML gives to ask with: a device, a sample, a structure; only NVML looks inside."""


class GpuLostError(Exception):
    """The GPU asked does not answer any more."""


class Nvml:
    """Calls into one NVML module, real or a double."""

    def __init__(self, module: ModuleType | Any) -> None:  # noqa: ANN401 - any object with NVML's functions
        self._module = module

    def call(self, name: str, *arguments: Any) -> Any:  # noqa: ANN401 - as NVML answers
        """Call NVML's function `name`; None when it does not exist or fails.

        Raises:
            GpuLostError: The GPU asked does not answer any more.
        """
        function = getattr(self._module, name, None)
        if function is None:
            return None
        try:
            return function(*arguments)
        except pynvml.NVMLError as error:
            if error.value in LOST_ERRORS:
                raise GpuLostError(name) from error
            return None

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
        handles = (self._handle(index) for index in range(self.call("nvmlDeviceGetCount") or 0))
        return [handle for handle in handles if handle is not None]

    def _handle(self, index: int) -> Handle:
        try:
            return self.call("nvmlDeviceGetHandleByIndex", index)
        except GpuLostError:
            return None


def load_nvml() -> Nvml | None:
    """Open NVML; None where there is no driver."""
    module = importlib.import_module("pynvml")
    try:
        module.nvmlInit()
    except pynvml.NVMLError:
        return None
    return Nvml(module)
