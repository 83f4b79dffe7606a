"""What public scripts say in their `#SBATCH` lines: done as Slurm does it, or told of in one line; never in silence.

The lines are those that people write for, and computing centres document of, the clusters that are named, with other
names for people, accounts and directories.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from colane.integrations.slurm.contact import SlurmError
from colane.integrations.slurm.options import DONE, NO_EFFECT, OF_SBATCH, Takes, merged, parse
from colane.integrations.slurm.request import build, tasks_of
from colane.integrations.slurm.sbatch import files, read_script

HOUR = 3600.0
GIB = 2**30
TWO_OF_FOUR = {"gpus": 8, "gpus_per_node": 4, "multi_node": True}


def said_by(*lines: str) -> tuple[dict[str, Any], list[str]]:
    """The request of a script with these lines, and which options are told to have no effect."""
    text = "#!/bin/bash\n" + "".join(f"#SBATCH {line}\n" for line in lines) + "true\n"
    options = read_script("job.sh", text).options
    return build(options, "job.sh", Path("job.sh")), list(options.without_effect)


PUBLIC: dict[str, tuple[list[str], dict[str, Any], list[str]]] = {
    "Perlmutter, one GPU": (
        ["-A m0000_g", "-C gpu", "-q shared", "-t 23:59:00", "-n 1", "-c 32", "--gpus-per-task=1"],
        {"gpus": 1, "features": "gpu", "qos": "shared", "cores": 32, "time_limit_s": 86340.0}, [],
    ),
    "Perlmutter, two nodes": (
        ["--account m0000_g", "--constraint gpu", "--qos regular", "--time 6:00:00", "--nodes=2",
         "--ntasks-per-node=4", "-c 32", "--gpus-per-node=4", "--gpus-per-task=1", "--gpu-bind=none",
         "--dependency=singleton", "--signal=TERM@120"],
        {**TWO_OF_FOUR, "singleton": True, "checkpoint": "slurm:SIGTERM", "checkpoint_lead_s": 120.0}, ["--gpu-bind"],
    ),
    "Perlmutter, one GPU a rank": (
        ["-C gpu    # GPU nodes (4x A100 40GB each)", "-N 1                      # nodes", "--ntasks-per-node=4",
         "--gpus-per-node=4", "--gpu-bind=map_gpu:0,1,2,3", "-c 32"],
        {"gpus": 4, "cores": 128}, ["--gpu-bind"],
    ),
    "Puhti": (
        ["--job-name=test", "--account=project_1", "--partition=gpu", "--time=02:00:00", "--ntasks=1",
         "--cpus-per-task=10", "--mem-per-cpu=8000", "--gres=gpu:v100:1"],
        {"gpus": 1, "gpu_type": "v100", "pool": "gpu", "cores": 10, "host_memory_bytes": 80_000 * 2**20}, [],
    ),
    "LUMI": (
        ["--partition=standard-g", "--nodes=1", "--ntasks-per-node=8", "--gpus-per-node=8", "--time=2-00:00:00",
         "--account=project_1", "--exclusive", "--hint=nomultithread", "--get-user-env", "--mem=0"],
        {"gpus": 8, "whole_node": True, "time_limit_s": 48 * HOUR}, ["--hint", "--get-user-env"],
    ),
    "Narval": (
        ["--nodes 1", "--gpus-per-node=a100:2", "--tasks-per-node=2", "--cpus-per-task=12", "--mem=64G", "--time=0-3",
         "--output=%N-%j.out", "--account=def-someuser"],
        {"gpus": 2, "gpu_type": "a100", "cores": 24, "time_limit_s": 3 * HOUR}, [],
    ),
    "Beluga, four kinds of mail": (
        ["--gpus-per-task=1", "--ntasks-per-node=1", "--mail-user=a@b.org", "--mail-type=BEGIN", "--mail-type=END",
         "--mail-type=FAIL", "--mail-type=REQUEUE", "--output=%u_%x_%j.log"],
        {"gpus": 1, "labels": {"mail": "a@b.org", "mail-on": "start,end,failure,preempted"}}, [],
    ),
    "Lonestar6": (
        ["-J myjob", "-o myjob.o%j", "-e myjob.e%j", "-p gpu-a100", "-N 1", "-n 1", "-t 01:30:00",
         "--mail-type=all", "-A myproject", "--mail-user=a@b.org"],
        {"name": "myjob", "gpus": 0, "pool": "gpu-a100"}, [],
    ),
    "Frontier": (
        ["-A ABC123", "-J train", "-o %x-%j.out", "-t 00:45:00", "-p batch", "-N 2", "--ntasks-per-node=8",
         "--gpus-per-task=1", "--gpu-bind=closest", "--network=disable_rdzv_get", "-C nvme"],
        {"gpus": 16, "gpus_per_node": 8, "features": "nvme"}, ["--gpu-bind", "--network"],
    ),
    "Delta": (
        ["--mem=16g", "--nodes=1", "--ntasks-per-node=1", "--cpus-per-task=4", "--partition=gpuA100x4",
         '--constraint="scratch"', "--gpus-per-node=1", "--gpu-bind=closest", "--no-requeue", "-t 42:00:00"],
        {"features": "scratch", "host_memory_bytes": 16 * GIB, "labels": {"requeue": "no"}}, ["--gpu-bind"],
    ),
    "Delta, bindings": (
        ["--mem-bind=verbose,local", "--gpu-bind=verbose,closest", "--mem-per-cpu=4G", "--cpus-per-gpu=16",
         "--gpus-per-node=1", "--ntasks=1", "--output=logs/plan_%A.log"],
        {"gpus": 1, "cores": 16, "host_memory_bytes": 64 * GIB}, ["--mem-bind", "--gpu-bind"],
    ),
    "Jean Zay": (
        ["-A abc@v100", "-C v100-16g", "--qos=qos_gpu-t3", "--nodes=1", "--ntasks=1", "--gres=gpu:1",
         "--cpus-per-task=10", "--hint=nomultithread # hyperthreading desactive", "--time=20:00:00"],
        {"features": "v100-16g", "qos": "qos_gpu-t3", "gpus": 1}, ["--hint"],
    ),
    "Levante": (
        ["--partition=gpu", "--nodes=4", "--ntasks-per-node=1", "--cpus-per-task=40", "--gpus=4",
         "--hint=nomultithread", "--distribution=block:block  # contiguous", "--mem=0", "--constraint=a100_80",
         "--exclusive", "--time=12:00:00"],
        {"gpus": 4, "gpus_per_node": 1, "cores": 160, "whole_node": True}, ["--hint", "--distribution"],
    ),
    "MeluXina": (
        ["--job-name=eval", "--time=0:15:00", "--partition=gpu", "--qos=default", "--nodes=1", "--ntasks-per-node=1",
         "--gpus-per-task=1", "--cpus-per-task=16", "--gres=gpu:1"],
        {"gpus": 1, "cores": 16, "qos": "default"}, [],
    ),
    "Aion": (
        ["--gres=gpu:1", "--cpus-per-task=7", "--mem=150G", "--time=0-08:00:00", "--signal=USR1@120", "--requeue"],
        {"checkpoint": "slurm:SIGUSR1", "checkpoint_lead_s": 120.0, "time_limit_s": 8 * HOUR}, [],
    ),
    "Engaging, several partitions": (
        ["--partition=mit_preemptable,mit_normal_gpu,ou_lab", "--nodes=1", "--gres=gpu:h100:1", "--mem=256G",
         "--requeue", "--signal=B:USR1@120"],
        {"pool": "mit_preemptable,mit_normal_gpu,ou_lab", "gpu_type": "h100", "checkpoint": "slurm:B:SIGUSR1"}, [],
    ),
    "Skynet": (
        ["--gpus 4", "--nodes 1", "--cpus-per-task 10", "--ntasks-per-node 4", "--constraint=a40",
         "--exclude=gundam,xaea-12", "--partition=short", "--signal=USR1@100", "--requeue"],
        {"gpus": 4, "cores": 40, "nodes": "not:gundam,xaea-12", "features": "a40"}, [],
    ),
    "Vector": (
        ["--nodes=1", "--mem=0", "--ntasks-per-node=1", "-c 32", "--array=0-10%1", "--gres=gpu:4", "--partition=a40",
         "--open-mode=append", "--wait-all-nodes=1", "--requeue", "--signal=B:USR1@180"],
        {"array": "0-10%1", "gpus": 4, "cores": 32}, ["--wait-all-nodes"],
    ),
    "Mila": (
        ["--gres=gpu:rtx8000:1", "-c 4", "--mem=10Gb", "-t 1:00:00", "-o slurm-%j.out", "--partition=unkillable"],
        {"gpu_type": "rtx8000", "host_memory_bytes": 10 * GIB, "cores": 4}, [],
    ),
    "ASU": (
        ["--partition=short", "--time=02:00:00", "--nodes=1           ### Number of nodes", "--cpus-per-task=128",
         "--mem=16G", "--dependency=afterany:5932351", "--signal=15@180"],
        {"after": "any:5932351", "checkpoint": "slurm:SIGTERM", "cores": 128}, [],
    ),
    "Cambridge": (
        ["-A LAB-SL2-GPU", "--time=1:00:00", "-a 0-119%10", "-p ampere", "--nodes 1", "--gres=gpu:2",
         "--gpu-bind=none", "--mail-type=ALL", "--output=out/%A_%a.out"],
        {"array": "0-119%10", "gpus": 2, "pool": "ampere"}, ["--gpu-bind"],
    ),
    "Caltech": (
        ["--time=24:00:00", "--ntasks=9", "--nodes=3", "--gpus-per-task=1", "--gpu-bind=single:1",
         "--mem-per-cpu=16G", "--export=ALL"],
        {"gpus": 9, "gpus_per_node": 3, "host_memory_bytes": 9 * 16 * GIB}, ["--gpu-bind"],
    ),
    "S3DF": (
        ["-p ampere", "-A lcls", "-N 1", "--ntasks=4", "--ntasks-per-node=4", "--cpus-per-task=2",
         "--gres=gpu:a100:2", "--gpu-bind=none", "-t 00:45:00"],
        {"gpus": 2, "gpu_type": "a100", "cores": 8}, ["--gpu-bind"],
    ),
    "Gautschi": (
        ["--partition=ai", "--qos=normal", "--ntasks=1", "--cpus-per-task=14", "--gpus-per-node=1", "--mem=64G",
         "--exclude=h000,h003"],
        {"nodes": "not:h000,h003", "gpus": 1, "cores": 14}, [],
    ),
    "Midgard": (
        ["--mem=12GB", "--gres=gpu:1", "--cpus-per-task=4", '--constrain="rivendell|khazadum"', "--time=48:00:00"],
        {"features": "rivendell|khazadum", "gpus": 1}, [],
    ),
    "DelftBlue": (
        ['--job-name="run"', "--partition=gpu", "--gpus=1", "--mem=4G", "--time=30 # default in minutes"],
        {"name": "run", "time_limit_s": 1800.0, "gpus": 1}, [],
    ),
    "Supercloud": (
        ["-o logs/%j.log", "--exclusive", "--gres=gpu:volta:1", "-c 20", "--mail-type=FAIL"],
        {"gpus": 1, "gpu_type": "volta", "whole_node": True}, [],
    ),
    "Habrok": (
        ["-t 10:00:00", "--nodes=1 --ntasks-per-node=4", "--export=NONE"],
        {"time_limit_s": 10 * HOUR, "labels": {"ntasks": "4"}}, [],
    ),
    "Berzelius": (["-n 1 -c 8", "-A lab-1", "-t 960"], {"cores": 8, "time_limit_s": 16 * HOUR}, []),
    "Sherlock": (
        ["-p gpu", "-G 2", "-C GPU_MEM:80GB", "--time=00:10:00", "--mem-per-gpu=60G"],
        {"gpus": 2, "features": "GPU_MEM:80GB", "host_memory_bytes": 120 * GIB}, [],
    ),
    "Euler": (
        ["-n 4", "--time=8:00", "--mem-per-cpu=2000", "--tmp=4000", "--gpus=rtx_3090:1"],
        {"gpu_type": "rtx_3090", "time_limit_s": 480.0, "host_memory_bytes": 8000 * 2**20}, ["--tmp"],
    ),
    "Great Lakes": (
        ["--account=test", "--partition=gpu", "--gpus=v100:1", "--time=00:01:00", "--mail-type=NONE"],
        {"gpus": 1, "gpu_type": "v100", "labels": {"account": "test"}}, [],
    ),
    "a course, with a reservation": (
        ["--reservation=course", "--constraint=h100", "--ntasks=1", "--gpus-per-task=1", "--mem=16G"],
        {"gpus": 1, "features": "h100"}, [],
    ),
    "an old manual": (
        ["--share", "--gres=gpu:1", "--wckey=x", "--switches=1", "--threads-per-core=1", "--comment=hdd"],
        {"gpus": 1, "comment": "hdd"}, ["--oversubscribe", "--wckey", "--switches", "--threads-per-core"],
    ),
    "torch over nodes": (
        ["--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=4", "--cpus-per-task=72", "--mem=440G"],
        {**TWO_OF_FOUR, "cores": 144, "host_memory_bytes": 880 * GIB}, [],
    ),
    "NeMo": (
        ["-A acc", "-p batch", "-N 2", "-t 4:00:00", "--exclusive", "--mem=0", "--ntasks-per-node=8",
         "--gpus-per-node=8", "--overcommit", "--mail-type=FAIL"],
        {"gpus": 16, "whole_node": True, "labels": {"account": "acc", "ntasks": "16"}}, ["--overcommit"],
    ),
}  # fmt: skip

REFUSED = {
    "nodes without GPUs": (["-N 2", "--exclusive", "--ntasks-per-node=1"], "needs GPUs on each machine: add --gres"),
    "Biowulf's local disk": (["--gres=lscratch:100,gpu:a100:1"], "leave others out: local disk is not booked"),
    "a part of a GPU": (["--gres=gpu:1 --gres=shard:11264"], "a part of a GPU is `#COLANE --gpu-memory 8GB`"),
    "file systems as licences": (["--licenses=cfs,SCRATCH"], "job.sh:2: --licenses is not done here: jobs that share"),
    "from two to four": (["--nodes=2-4"], "give one number of machines, as 2"),
    "another cluster": (["--clusters=gpu"], "there is one cluster, that of COLANE_URL"),
    "one of several": (["-d afterok:1?afterok:2"], "all conditions must hold, joined by commas"),
    "TRES": (["--tres-per-task=gres/gpu:1"], "say --gpus-per-task and --cpus-per-task"),
    "an option long gone": (["--workdir=/tmp"], "--workdir is no option of sbatch that Colane knows"),
}


@pytest.mark.parametrize("name", PUBLIC)
def test_lines_of_public_scripts_are_done_or_told_of(name: str) -> None:
    lines, fields, without_effect = PUBLIC[name]
    request, told = said_by(*lines)
    found = {field: request.get(field) for field in fields}
    if "labels" in fields:
        found["labels"] = {label: request["labels"].get(label) for label in fields["labels"]}
    assert found == fields
    assert told == without_effect


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_done_is_refused_with_the_way(name: str) -> None:
    lines, said = REFUSED[name]
    with pytest.raises(SlurmError) as refused:
        said_by(*lines)
    assert said in str(refused.value)


SAYS = {
    "--job-name": "a", "--output": "o", "--error": "e", "--input": "i", "--time": "5", "--nodes": "2", "--ntasks": "2",
    "--ntasks-per-node": "2", "--ntasks-per-gpu": "2", "--cpus-per-task": "2", "--mem": "1G", "--mem-per-cpu": "1G",
    "--mem-per-gpu": "1G", "--partition": "p", "--account": "a", "--qos": "q", "--gres": "gpu:2", "--gpus": "2",
    "--gpus-per-node": "2", "--gpus-per-task": "2", "--cpus-per-gpu": "2", "--chdir": "/", "--export": "A=1",
    "--open-mode": "append", "--comment": "c", "--begin": "now+5", "--dependency": "afterok:1", "--nodelist": "n1",
    "--exclude": "n1", "--constraint": "f", "--priority": "-1", "--mail-type": "END", "--array": "0-1",
    "--signal": "USR1@9", "--nice": "5",
}  # fmt: skip
BY_SBATCH = {
    "--quiet", "--parsable", "--test-only", "--wait", "--wrap", "--reservation",
    "--mail-user", "--kill-on-invalid-dep", "--requeue",
}  # fmt: skip
"""Done by `sbatch` itself or as another is said (`--mail-type`, `--dependency`, `--no-requeue`)."""


def _options(treatment: object) -> list[str]:
    names = [name.rpartition(",")[2] for row in OF_SBATCH if row.treatment is treatment for name in row.names.split()]
    return [name for name in names if name not in BY_SBATCH]


@pytest.mark.parametrize("name", _options(DONE))
def test_each_option_that_is_done_does_something(name: str) -> None:
    """Beside one GPU and no more, which options of GPUs may not contradict."""
    takes = next(row.takes for row in OF_SBATCH if name in row.names.replace(",", " ").split())
    word = name if takes is Takes.NOTHING or name not in SAYS else f"{name}={SAYS[name]}"
    is_of_gpus = name.startswith(("--gpus", "--gres"))
    base = [] if is_of_gpus else ["--gpus-per-node=1"]

    def made(*words: str) -> object:
        options = merged([parse("sbatch", base), parse("sbatch", words)])
        return build(options, "a.sh", None), files(options), tasks_of(options, 1)

    assert made(word) != made()


@pytest.mark.parametrize("name", _options(NO_EFFECT))
def test_each_option_without_effect_is_told_of(name: str) -> None:
    takes = next(row.takes for row in OF_SBATCH if name in row.names.replace(",", " ").split())
    assert parse("sbatch", [f"{name}=x" if takes is Takes.VALUE else name]).without_effect == [name]
