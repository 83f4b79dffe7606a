"""How busy a GPU is, without a profiler: NVML's GPU performance monitoring (GPM), Hopper and later."""

from __future__ import annotations

import math
import time

import pynvml

from colane.devices.nvml import GpuLostError, Handle, Nvml
from colane.devices.types import Utilization

WINDOW_MIN_S = 0.1  # NVML asks for samples at least 100 ms apart; closer ones give no value

_METRICS = (pynvml.NVML_GPM_METRIC_SM_OCCUPANCY, pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL)


class GpmMeter:
    """Use of one GPU between two calls, by everyone on it: GPM does not tell processes apart."""

    def __init__(self, nvml: Nvml, handle: Handle) -> None:
        self._nvml = nvml
        self._handle = handle
        self.supported = self._is_supported()
        self._sample: Handle = None
        self._at_s = 0.0

    def sample(self) -> Utilization | None:
        """Give the use since the last call; None at first, too soon after it, or without support."""
        now_s = time.monotonic()
        if not self.supported or now_s < self._at_s + WINDOW_MIN_S:
            return None
        try:
            return self._advance(now_s)
        except GpuLostError:
            self.supported = False
            return None

    def _is_supported(self) -> bool:
        try:
            support = self._nvml.call("nvmlGpmQueryDeviceSupport", self._handle)
        except GpuLostError:
            return False
        return bool(support is not None and support.isSupportedDevice)

    def _advance(self, now_s: float) -> Utilization | None:
        """Take a sample and compare it with the one before, which is then given back to NVML."""
        before, window_s = self._sample, now_s - self._at_s
        self._sample, self._at_s = self._take(), now_s
        if before is None:
            return None
        values = {} if self._sample is None else self._compare(before, self._sample)
        self._nvml.call("nvmlGpmSampleFree", before)
        occupancy, bandwidth = (values.get(metric) for metric in _METRICS)
        return Utilization(window_s, occupancy, bandwidth) if values else None

    def _take(self) -> Handle:
        sample = self._nvml.call("nvmlGpmSampleAlloc")
        if sample is None or self._nvml.call("nvmlGpmSampleGet", self._handle, sample) is not None:
            return sample
        self._nvml.call("nvmlGpmSampleFree", sample)
        return None

    def _compare(self, before: Handle, after: Handle) -> dict[int, float]:
        query = pynvml.c_nvmlGpmMetricsGet_t()
        query.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        query.numMetrics = len(_METRICS)
        query.sample1, query.sample2 = before, after
        for slot, metric in zip(query.metrics, _METRICS, strict=False):
            slot.metricId = metric
        answer = self._nvml.call("nvmlGpmMetricsGet", query)
        slots = () if answer is None else answer.metrics[: len(_METRICS)]
        told = (s for s in slots if s.nvmlReturn == pynvml.NVML_SUCCESS and math.isfinite(s.value))
        return {s.metricId: min(max(s.value / 100, 0.0), 1.0) for s in told}


# -- How busy a GPU is where GPM is missing (before Hopper): NVML's utilization rates.


RENEWED_S = 0.2  # the driver renews the rates every sixth of a second to every second, by model


class RatesMeter:
    """Use of one GPU now, by everyone on it, taken to hold since the last call."""

    def __init__(self, nvml: Nvml, handle: Handle) -> None:
        self._nvml = nvml
        self._handle = handle
        self._at_s: float | None = None
        self.supported = self._read() is not None

    def sample(self) -> Utilization | None:
        """Give the use since the last call; None at first, too soon after it, or without support."""
        now_s = time.monotonic()
        before_s, self._at_s = self._at_s, now_s
        if before_s is None or not self.supported:
            return None
        if now_s < before_s + RENEWED_S:
            self._at_s = before_s
            return None
        ratios = self._read()
        return None if ratios is None else Utilization(now_s - before_s, *ratios)

    def _read(self) -> tuple[float, float] | None:
        try:
            rates = self._nvml.call("nvmlDeviceGetUtilizationRates", self._handle)
        except GpuLostError:
            return None
        return None if rates is None else (rates.gpu / 100, rates.memory / 100)
