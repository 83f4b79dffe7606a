"""`torch.nn.DataParallel` where tensors are the host's: each GPU is given its part of a batch by a thread of its own.

Its loop over replicas is PyTorch's but for what only a CUDA build has: copies of parameters, which all share here.
"""

from __future__ import annotations

import functools
import threading
from typing import Any


def put_into(torch: Any) -> None:  # noqa: C901 - methods that need PyTorch
    """Let it run on emulated GPUs."""
    parallel = torch.nn.DataParallel
    own = parallel.__init__

    @functools.wraps(own)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        own(self, *args, **kwargs)
        self.src_device_obj = torch.device("cpu")

    def scatter(self: Any, inputs: tuple[Any, ...], kwargs: Any, devices: list[int]) -> Any:
        parts = [one.chunk(len(devices), self.dim) for one in inputs]
        return list(zip(*parts, strict=True)), [kwargs or {}] * len(devices)

    def replicate(_self: Any, module: Any, devices: list[int]) -> list[Any]:
        replicas = [module._replicate_for_data_parallel() for _ in devices]
        for replica in replicas:
            replica._parameters = module._parameters
        return replicas

    def parallel_apply(self: Any, replicas: list[Any], inputs: list[Any], kwargs: list[Any]) -> list[Any]:
        outputs: dict[int, Any] = {}

        def work(number: int, device: int) -> None:
            with torch.cuda.device(device), torch.cuda.stream(torch.cuda.current_stream(device)):
                outputs[number] = replicas[number](*inputs[number], **kwargs[number])

        devices = self.device_ids[: len(replicas)]
        threads = [threading.Thread(target=work, args=pair) for pair in enumerate(devices)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [outputs[number] for number in range(len(replicas))]

    def gather(self: Any, outputs: list[Any], output_device: int) -> Any:
        for device in self.device_ids[: len(outputs)]:
            torch.cuda.current_stream(output_device).wait_stream(torch.cuda.current_stream(device))
        return torch.cat(outputs, self.dim)

    parallel.__init__, parallel.scatter, parallel.replicate = init, scatter, replicate
    parallel.parallel_apply, parallel.gather = parallel_apply, gather
