from __future__ import annotations

import signal
from typing import Any

import pytest

from colane.agent.running.outcome import ExitOutcome, classify

TRACEBACK = "Traceback (most recent call last):\n  File 'x.py', line 1\n"
CUDA = f"{TRACEBACK}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"


def record(**changes: Any) -> dict[str, Any]:
    fields = {"outcome": "exited", "exit_code": None, "signal": None, "detail": "", "stopped": False, "oom_kills": 0}
    return fields | changes


@pytest.mark.parametrize(
    "last",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "torch.cuda.OutOfMemoryError: CUDA out of memory.",
        "RuntimeError: CUDA error: out of memory",
        "MemoryError",
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate; MemoryError: 3 GiB",
        "OSError: [Errno 12] Cannot allocate memory",
        "RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory: you tried",
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate",
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Failed to allocate request for 2.0GiB on device",
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB",
        "RuntimeError: CUDA driver error: out of memory",
        "torch.AcceleratorError: HIP error: out of memory",
        "ResourceExhaustedError: OOM when allocating tensor with shape[1024,1024] on /device:GPU:0 by BFC",
        "ResourceExhaustedError: Out of memory error on GPU 0. Cannot allocate 2.0GB memory on GPU 0",
        "failed to allocate 2.00G from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
        "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 1,024 bytes (allocated so far: 512 bytes).",
        "cupy_backends.cuda.api.runtime.CUDARuntimeError: cudaErrorMemoryAllocation: out of memory",
        "numba.cuda.cudadrv.driver.CudaAPIError: [2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY",
        "rmm._lib.OutOfMemory: std::bad_alloc: out_of_memory: CUDA error at: cuda_memory_resource.hpp",
        "mxnet.base.MXNetError: cudaMalloc retry failed: out of memory",
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.",
        "ValueError: Free memory on device (1.2/79.1 GiB) on startup is less than desired GPU memory utilization (0.9)",
        "ValueError: (4.0 GiB KV cache is needed, which is larger than the available KV cache memory (1.5 GiB))",
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 512 MiB on device 0: cudaMalloc failed: out of memory",
        "llama_model_load: error loading model: unable to allocate CUDA0 buffer",
        "CUDA error: out of memory",
        "ncclUnhandledCudaError: Call to CUDA function failed. Last error: Cuda failure 'out of memory'",
        "NCCL WARN Cuda failure 2 'out of memory'",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
        "RuntimeError: cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`",
        "RuntimeError: cuFFT error: CUFFT_ALLOC_FAILED",
        "onnxruntime Fail: BFCArena::AllocateRawInternal Failed to allocate memory for requested buffer of size 512",
        "[TRT] [E] Requested amount of GPU memory (1024 bytes) could not be allocated.",
    ],
)
def test_out_of_memory_is_read_from_the_end_of_the_log(last: str) -> None:
    assert classify(record(exit_code=1), f"{TRACEBACK}{last}\n") == ExitOutcome("out-of-memory", last)


def test_an_abort_after_bad_alloc() -> None:
    tail = "terminate called after throwing an instance of 'std::bad_alloc'\n"
    assert classify(record(outcome="signalled", signal=signal.SIGABRT), tail).name == "out-of-memory"


@pytest.mark.parametrize(
    ("fields", "tail", "name"),
    [
        ({"exit_code": 0}, CUDA, "exited"),
        ({"exit_code": 1}, "ValueError: no\n", "exited"),
        ({"exit_code": 1}, "triton.runtime.errors.OutOfResources: out of resource: shared memory\n", "exited"),
        ({"exit_code": 1}, "OSError: [Errno 28] No space left on device\n", "exited"),
        ({"exit_code": 1}, "grpc: RESOURCE_EXHAUSTED: Received message larger than max\n", "exited"),
        ({"exit_code": 1}, "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasSgemm`\n", "exited"),
        ({"exit_code": 1}, "CUDA error: CUDA-capable device(s) is/are busy or unavailable\n", "gpu-refused"),
        ({"exit_code": 1}, "cuInit: CUDA_ERROR_DEVICE_UNAVAILABLE\n", "gpu-refused"),
        ({"exit_code": 1}, "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(h)`\n", "gpu-refused"),
        ({"exit_code": 1}, "cuDNN error: CUDNN_STATUS_NOT_INITIALIZED\n", "gpu-refused"),
        ({"exit_code": 1}, CUDA + "cuDNN error: CUDNN_STATUS_NOT_INITIALIZED\n", "out-of-memory"),
        ({"exit_code": 1, "stopped": True}, "cuDNN error: CUDNN_STATUS_NOT_INITIALIZED\n", "exited"),
        ({"exit_code": 0}, "cuDNN error: CUDNN_STATUS_NOT_INITIALIZED\n", "exited"),
        ({"exit_code": 1}, CUDA + "  worker 1\n" * 30 + "Engine failed. See root cause above.\n", "out-of-memory"),
        ({"exit_code": 1}, CUDA + "  rank: 1\n" * 30 + "Root Cause (first observed failure):\n", "out-of-memory"),
        ({"exit_code": 1}, CUDA + "retrying with a smaller batch\n" * 30 + "ValueError\n", "exited"),
        ({"exit_code": 1, "stopped": True}, CUDA, "exited"),
        ({"outcome": "signalled", "signal": 15}, CUDA, "signalled"),
        ({"outcome": "signalled", "signal": 9, "stopped": True, "oom_kills": 1}, "", "signalled"),
        ({"outcome": "signalled", "signal": 9}, "", "signalled"),
        ({"outcome": "signalled", "signal": 9, "oom_kills": 1}, "", "out-of-memory"),
        ({"exit_code": 1, "oom_kills": 1}, "worker (pid 5) is killed by signal: Killed.\n", "out-of-memory"),
        ({"exit_code": 1, "oom_kills": 0}, "worker (pid 5) is killed by signal: Killed.\n", "exited"),
        ({"exit_code": 1, "oom_kills": 1}, "ValueError: no\n", "exited"),
        ({"outcome": "supervisor-died", "stopped": True}, CUDA, "supervisor-died"),
    ],
)
def test_what_is_and_what_is_not(fields: dict[str, Any], tail: str, name: str) -> None:
    assert classify(record(**fields), tail).name == name


def test_the_detail_of_a_start_that_failed_is_kept() -> None:
    failed = record(outcome="not-started", detail="command 'x': No such file or directory")
    assert classify(failed, CUDA) == ExitOutcome("not-started", "command 'x': No such file or directory")
