"""Data-parallel training over gloo, started by torchrun."""

import hashlib
import os
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(4)
torch.set_num_threads(1)
model = torch.nn.parallel.DistributedDataParallel(
    torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
generator = torch.Generator().manual_seed(rank)
for _ in range(int(sys.argv[1])):
    optimizer.zero_grad()
    loss = model(torch.randn(32, 16, generator=generator)).pow(2).mean()
    loss.backward()
    optimizer.step()
if rank == 0:
    weights = b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters())
    print("weights", hashlib.sha256(weights).hexdigest())
dist.barrier()
dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)  # gloo's threads may abort a process that Python takes down
