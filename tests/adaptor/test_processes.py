"""Jobs of several processes: loaders' workers, ranks, children that train."""

from __future__ import annotations

import sys

import pytest

from tests.adaptor.conftest import Trained
from tests.adaptor.jobs import SMALL, Job

WORKERS = f"""{SMALL}
class Data(torch.utils.data.Dataset):
    helper = torch.nn.Linear(8, 8).eval()
    def __len__(self): return 24
    def __getitem__(self, i):
        with torch.no_grad():
            return self.helper(x[i]), y[i]
data = torch.utils.data.DataLoader(Data(), batch_size=4, num_workers=2, multiprocessing_context="fork")
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for batch, target in data:
        opt.zero_grad(); torch.nn.functional.mse_loss(model(batch), target).backward(); opt.step()
"""


def test_forked_workers_that_call_models_report_nothing(trained: Trained) -> None:
    job = trained(WORKERS)
    assert job.steps() == 12
    assert "colane" not in job.errors


FORKED = f"""{SMALL}
import os
def train(count):
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for i in range(count):
        opt.zero_grad(); loss_of().backward(); opt.step()
BEFORE
pid = os.fork()
if pid == 0:
    train(7)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
"""


def test_a_forked_child_of_a_process_that_reports_does_not(trained: Trained) -> None:
    job = trained(FORKED.replace("BEFORE", "train(3)"))
    assert job.steps() == 3
    assert "colane" not in job.errors


def test_a_launcher_that_forks_lets_its_child_report(trained: Trained) -> None:
    assert trained(FORKED.replace("BEFORE", "")).steps() == 7


RANKS = f"""{SMALL}
import os, sys
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
dist.init_process_group("gloo", WHERE)
model = torch.nn.parallel.DistributedDataParallel(model)
opt = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
for i in range(6):
    opt.zero_grad(); loss_of(model).backward(); opt.step()
dist.barrier()
dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)  # gloo's threads may abort a process that Python takes down
"""


@pytest.mark.live
def test_each_rank_reports_to_a_file_of_its_own(job: Job) -> None:
    (job.folder / "train.py").write_text(RANKS.replace(", WHERE", ""))
    launcher = ("-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", "--nproc-per-node=2")
    job.run(sys.executable, *launcher, str(job.folder / "train.py"))
    ranks = [job.seen(rank) for rank in (0, 1)]
    assert [seen.steps if seen else None for seen in ranks] == [6, 6]
    assert len({seen.pid for seen in ranks if seen}) == 2
    assert "colane" not in job.errors


SPAWNED = """
import os
import torch.multiprocessing as mp
def rank(number):
    exec(SCRIPT.replace("WHERE", f"'file://{os.getcwd()}/meet', rank={number}, world_size=2"), globals())
if __name__ == "__main__":
    mp.start_processes(rank, nprocs=2, start_method="fork")
"""


SHARDED = RANKS.replace(
    "model = torch.nn.parallel.DistributedDataParallel(model)",
    "from torch.distributed.fsdp import fully_shard\n"
    "mesh = torch.distributed.device_mesh.init_device_mesh('cpu', (2,))\n"
    "for part in (model[0], model[2], model): fully_shard(part, mesh=mesh)",
).replace("ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD,", "torch.optim.AdamW(model.parameters(),")


@pytest.mark.parametrize("script", [RANKS, SHARDED], ids=["DDP and ZeRO", "FSDP2"])
def test_ranks_without_a_launcher_are_told_apart_too(trained: Trained, script: str) -> None:
    job = trained(SPAWNED.replace("SCRIPT", repr(script)))
    assert [job.steps(rank) for rank in (0, 1)] == [6, 6]
    assert "colane" not in job.errors
