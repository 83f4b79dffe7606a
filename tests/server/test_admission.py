"""What a job request becomes, and what is refused with the field named."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from colane.api.job_request import JobRequest
from colane.model.hardware import Gpu, Node
from colane.model.problem import Problem
from colane.server.board.hardware import Hardware
from colane.server.board.submission import Admitted
from colane.server.ground.problems import RefusedError, from_pydantic
from colane.server.submitting.admission import admit, admit_all

GB = 10**9


def node(name: str, gpus: int, gpu_type: str = "V100", memory: int = 16 * GB, **fields: Any) -> Node:
    devices = tuple(Gpu(index=i, uuid=f"{name}-{i}", type=gpu_type, memory_bytes=memory) for i in range(gpus))
    return Node(name=name, gpus=devices, cores=tuple(range(8)), host_memory_bytes=64 * GB, **fields)


SLOW = node("d", 1, pool="slow", host_bandwidth_bytes_per_s=2 * GB)
CLUSTER = Hardware([node("a", 4), node("b", 2, "H200", 140 * GB), node("c", 8, pool="other"), SLOW])
PAPER_A = {
    "model_name": "vgg11", "batch_size": 128, "lr": 0.01, "dataset": "synthetic", "optim": "sgd",
    "iters": 100, "dataset_path": "./data", "workers": 2, "weight_decay": 1e-4, "momentum": 0.1, "num_class": 10,
}  # fmt: skip


def take(request: dict[str, Any], hardware: Hardware = CLUSTER) -> Admitted:
    return admit(JobRequest.model_validate(request), hardware, "/srv")


def refusal(request: dict[str, Any], hardware: Hardware = CLUSTER) -> list[Problem]:
    try:
        take(request, hardware)
    except RefusedError as refused:
        return list(refused.problems)
    except ValidationError as error:
        return from_pydantic(error.errors(), JobRequest.model_fields)
    pytest.fail("was accepted")


def run(**fields: Any) -> dict[str, Any]:
    return {"command": ["python", "train.py", "--lr", "0.1"], **fields}


class TestBuiltIn:
    def test_paper_a_object_as_it_stands_runs_the_built_in_trainer(self) -> None:
        job = take(PAPER_A)
        assert job.launch["command"][:3] == [sys.executable, "-m", "colane.workloads"]
        assert (job.spec.name, job.spec.family, job.model_name) == ("vgg11", "vgg11 dataset=synthetic", "vgg11")
        assert (job.spec.batch_size, job.spec.steps_total, job.spec.gpus) == (128, 100, 1)
        assert job.launch["workdir"] == "/srv"

    def test_data_is_looked_for_where_it_runs(self) -> None:
        command = take({**PAPER_A, "dataset": "cifar10", "dataset_path": "/nowhere"}).launch["command"]
        assert command[command.index("--dataset-path") + 1] == "/nowhere"

    def test_the_submitting_interpreter_is_used(self) -> None:
        assert take({**PAPER_A, "python": "/venv/bin/python"}).launch["command"][0] == "/venv/bin/python"

    def test_other_fields_go_with_it(self) -> None:
        job = take({**PAPER_A, "name": "mine", "family": "big", "gpu_memory": "2GB", "user": "me"})
        assert (job.spec.name, job.spec.family, job.spec.user) == ("mine", "big", "me")
        assert job.spec.gpu_memory_bytes == 2 * GB

    @pytest.mark.parametrize(
        ("change", "field", "message"),
        [
            ({"model_name": "vgg1l"}, "model_name", "did you mean vgg11"),
            ({"batch_size": -4}, "batch_size", "must be at least 1, got -4"),
            ({"iters": 0}, "iters", "must be at least 1"),
            ({"command": ["true"]}, "command", "not both"),
            ({"lr": "fast"}, "lr", "fast"),
            ({"lr": float("nan")}, "lr", "finite"),
        ],
    )
    def test_refusals_name_the_field(self, change: dict[str, Any], field: str, message: str) -> None:
        problems = refusal({**PAPER_A, **change})
        assert [problem.field for problem in problems] == [field]
        assert message in problems[0].message


class TestCommand:
    def test_family_and_name_are_derived(self) -> None:
        job = take(run())
        assert (job.spec.name, job.model_name) == ("train.py", None)
        assert job.spec.family.endswith(" --lr")
        assert "/train.py" in job.spec.family

    def test_sizes_and_durations_with_units(self) -> None:
        job = take(run(gpu_memory="512MiB", host_memory="2GB", time_limit="1h30m"))
        assert job.spec.gpu_memory_bytes == 512 * 2**20
        assert job.spec.host_memory_bytes == 2 * GB
        assert job.spec.time_limit_s == 5400

    def test_secrets_are_in_the_launch_part_only(self) -> None:
        job = take(run(env={"TOKEN": "secret"}))
        assert job.launch["env"] == {"TOKEN": "secret"}
        assert "secret" not in repr(job.spec)

    @pytest.mark.parametrize(
        ("request_", "field", "message"),
        [
            ({}, "command", "is required"),
            ({"command": []}, "command", "must not be empty"),
            ({"command": ["  "]}, "command", "must not be empty"),
            ({"command": ["a\0b"]}, "command[0]", "must"),
            (run(batchsize=1), "batchsize", "is not a known field; did you mean batch_size or batch?"),
            (run(lr=0.1), "lr", "belongs to built-in jobs"),
            (
                run(gpus=-1),
                "gpus",
                "must be a number of GPUs from 0 to 4096, a range as 1..4, or sizes as 1,2,4, got -1",
            ),
            (run(gpus="many"), "gpus", "sizes as 1,2,4, got 'many'"),
            (run(gpus="4..1"), "gpus", "the smallest number of GPUs comes first: 1..4, got '4..1'"),
            (run(gpus="0..2"), "gpus", "0 is no size among others"),
            (run(gpus=[1, "2"]), "gpus", "must be a number of GPUs, text as 1..4 or 1,2,4, or a list of numbers"),
            (run(gpus=True), "gpus", "must be a number of GPUs"),
            (run(gpus=[]), "gpus", "must be a number of GPUs"),
            (run(gpus="1..99999999"), "gpus", "must be a number of GPUs"),
            (run(gpus=0, gpu_type="V100"), "gpu_type", "needs a GPU: leave it out, or ask for gpus"),
            (run(gpus=0, gpu_memory="1GB"), "gpu_memory", "needs a GPU"),
            (run(gpus=0, ranks="per-gpu"), "ranks", "needs a GPU"),
            (run(gpu_memory="2 potatoes"), "gpu_memory", "must be a size such as 2GB"),
            (run(time_limit="soon"), "time_limit", "must be a duration such as"),
            (run(gpu_memory="2GB", gpu_memory_bytes=5), "gpu_memory", "not both"),
            (run(workdir="here"), "workdir", "must be an absolute path, got 'here'"),
            (run(env={"A": 1}), "env.A", "must be a valid string"),
            (run(workdir="/a\udcff"), "workdir", "holds bytes that are no UTF-8 text: rename it, got '/a\\udcff'"),
            (run(name="a\x1b[31m"), "name", "must hold no control characters, got 'a\\x1b[31m'"),
            ({"command": ["a"] * 10_004}, "command", "must have at most 10000 entries, it has 10004"),
        ],
    )
    def test_refusals_name_the_field(self, request_: dict[str, Any], field: str, message: str) -> None:
        problems = refusal(request_)
        assert [problem.field for problem in problems] == [field]
        assert message in problems[0].message

    def test_a_secret_is_never_quoted(self) -> None:
        problems = refusal(run(env={"TOKEN": ["hunter2"], "OTHER=": "hunter2"}))
        assert "hunter2" not in str(problems)


class TestHardware:
    @pytest.mark.parametrize(
        ("need", "field", "message"),
        [
            ({"gpu_type": "H20"}, "gpu_type", "unknown 'H20'; did you mean H200? known: H200, V100"),
            ({"pool": "slwo"}, "pool", "unknown 'slwo'; did you mean slow? known: default, other, slow"),
            ({"gpus": 5}, "gpus", "asks for 5, but no node of pool default has more than 4"),
            ({"gpus": 3, "gpu_type": "H200"}, "gpus", "more than 2 H200 GPUs"),
            ({"gpu_memory": "200GB"}, "gpu_memory_bytes", "the largest has 140000000000"),
            ({"gpu_memory": "20GB", "gpus": 3}, "gpu_memory_bytes", "no node with 3 such GPUs"),
            ({"cores": 9}, "cores", "asks for 9, but no node of pool default has more than 8"),
            ({"host_memory": "65GB"}, "host_memory_bytes", "has more than 64000000000"),
            ({"host_bandwidth": "3GB/s", "pool": "slow"}, "host_bandwidth_bytes_per_s", "has more than 2000000000"),
        ],
    )
    def test_what_can_never_fit_is_refused(self, need: dict[str, Any], field: str, message: str) -> None:
        problems = refusal(run(**need))
        assert [problem.field for problem in problems] == [field]
        assert message in problems[0].message

    def test_ranks_that_must_lie_apart_need_as_many_nodes(self) -> None:
        apart = {"multi_node": True, "anti_collocation": True, "gpu_type": "V100"}
        (problem,) = refusal(run(gpus=2, **apart))
        assert problem.message == (
            "asks for 2 over several nodes, 1 on each, but pool default has 1 node with 1 such GPU"
        )
        assert take(run(gpus=2, **{**apart, "gpu_type": None}), Hardware([node("a", 1), node("b", 1)])).spec.gpus == 2
        assert take(run(gpus=1, **apart)).spec.anti_collocation

    @pytest.mark.parametrize(
        ("need", "field", "message"),
        [
            ({"gpus": 4, "gpus_per_node": 2}, "gpus", "asks for 4 over several nodes, 2 on each, but pool default has"),
            ({"gpus": 3, "gpus_per_node": 2}, "gpus_per_node", "ask for multiples of 2, as gpus 4"),
            ({"gpus": "2..5", "gpus_per_node": 2}, "gpus_per_node", "ask for multiples of 2, as gpus 2,4"),
            ({"gpus": 0, "gpus_per_node": 2}, "gpus_per_node", "needs a GPU"),
            ({"gpus": 2, "gpus_per_node": 2, "multi_node": True, "anti_collocation": True}, "gpus_per_node",
             "is 1 with anti_collocation"),
        ],
    )  # fmt: skip
    def test_gpus_on_each_node_come_in_whole_groups(self, need: dict[str, Any], field: str, message: str) -> None:
        problems = refusal(run(**need), Hardware([node("a", 3), node("b", 1)]))
        assert [problem.field for problem in problems] == [field]
        assert message in problems[0].message

    def test_gpus_on_each_node_let_it_span_nodes(self) -> None:
        spec = take(run(gpus="2,4", gpus_per_node=2), Hardware([node("a", 3), node("b", 2)])).spec
        assert (spec.gpus, spec.sizes, spec.multi_node, spec.anti_collocation) == (4, (2, 4), True, False)

    @pytest.mark.parametrize(
        ("gpus", "best", "sizes"),
        [
            (0, 0, ()), (3, 3, ()), ("3", 3, ()), ("1..4", 4, (1, 2, 3, 4)), ("1,2,4", 4, (1, 2, 4)),
            ("2..9", 4, tuple(range(2, 10))), ([4, 1, 1], 4, (1, 4)), ("2..2", 2, ()),
        ],
    )  # fmt: skip
    def test_sizes_are_a_number_a_range_or_a_set(self, gpus: object, best: int, sizes: tuple[int, ...]) -> None:
        spec = take(run(gpus=gpus)).spec
        assert (spec.gpus, spec.sizes) == (best, sizes)
        assert (spec.gpus_min, spec.gpus_max) == ((sizes[0], sizes[-1]) if sizes else (best, best))

    def test_sizes_no_node_has_are_refused_by_the_smallest(self) -> None:
        (problem,) = refusal(run(gpus="5..8"))
        message = "asks for 5 at least, but no node of pool default has more than 4 GPUs of one type"
        assert problem == Problem("gpus", message)
        assert take(run(gpus="5..8"), Hardware()).spec.gpus == 8

    def test_jobs_without_gpus_share_cores_of_cpu_devices(self) -> None:
        device = Gpu(index=0, uuid="cpu-0", type="cpu", memory_bytes=GB, cores=(0, 1, 2))
        machine = Hardware([Node(name="a", gpus=(device,), cores=(0, 1, 2, 3), host_memory_bytes=GB)])
        assert take(run(gpus=0, cores=4), machine).spec.cores == 4
        (problem,) = refusal(run(gpus=0, cores=5), machine)
        assert problem.field == "cores"
        assert problem.message == "asks for 5, but no node of pool default has more than 4; ask for no more than that"
        assert take(run(gpus=1, cores=2), machine).spec.cores == 2

    def test_needs_no_single_node_has_together(self) -> None:
        mixed = Hardware([node("a", 4), Node(name="b", gpus=(), cores=tuple(range(64)))])
        assert refusal(run(cores=32), mixed)[0].message.startswith("no single node of pool default")

    @pytest.mark.parametrize("need", [{"gpus": 4}, {"gpu_memory": "140GB", "gpus": 2}, {"pool": "other", "gpus": 8}])
    def test_what_fits_an_empty_node_is_taken(self, need: dict[str, Any]) -> None:
        assert take(run(**need)).spec.gpus == need.get("gpus", 1)

    @pytest.mark.parametrize("pool", ["default", "not registered yet"])
    def test_with_no_node_known_hardware_waits(self, pool: str) -> None:
        assert take(run(gpus=64, gpu_type="B200", pool=pool), Hardware()).spec.gpus == 64


class TestBatch:
    def test_problems_say_which_job(self) -> None:
        requests = [JobRequest.model_validate(r) for r in (run(), run(gpus=9), {})]
        with pytest.raises(RefusedError) as refused:
            admit_all(requests, CLUSTER, "/srv")
        assert [problem.field for problem in refused.value.problems] == ["jobs[1].gpus", "jobs[2].command"]

    def test_all_are_admitted_in_order(self) -> None:
        requests = [JobRequest.model_validate(run(name=f"n{i}")) for i in range(3)]
        assert [job.spec.name for job in admit_all(requests, CLUSTER, "/srv")] == ["n0", "n1", "n2"]


def test_default_workdir_is_used_only_when_none_is_given(tmp_path: Path) -> None:
    assert take(run(workdir=str(tmp_path))).launch["workdir"] == str(tmp_path)


class TestBatchSize:
    def test_what_it_is_of_goes_along_and_what_is_learnt_of_each_is_kept_apart(self) -> None:
        net = run(gpus="1,2,4", batch_size=64, family="net")
        whole, each = (take({**net, "batch": batch}) for batch in ("global", "per-gpu"))
        assert (whole.spec.family, each.spec.family) == ("net", "net (batch per GPU)")
        assert [(spec.batch_size, spec.batch_per_gpu) for spec in (whole.spec, each.spec)] == [(64, False), (64, True)]
        assert each.launch["batch"] == {"size": 64, "per_gpu": True}
        assert "batch" not in take(run(gpus="1..4", batch_size=64)).launch
        assert take({**PAPER_A, "gpus": "1,2", "batch": "per-gpu"}).launch["batch"]["size"] == 128

    @pytest.mark.parametrize(
        ("fields", "field", "text"),
        [
            ({"gpus": "1..4", "batch_size": 64}, "batch_size", "over 3 GPUs: ask for gpus 1,2,4, or batch per-gpu"),
            ({"gpus": 3, "batch_size": 64}, "batch_size", "take a batch_size it divides"),
            ({"gpus": 2}, "batch_size", "is required with batch"),
            ({"gpus": 0, "batch_size": 64}, "batch", "needs a GPU"),
        ],
    )
    def test_a_batch_that_cannot_be_split_is_refused(self, fields: dict[str, Any], field: str, text: str) -> None:
        (problem,) = refusal(run(**fields, batch="global"))
        assert problem.field == field
        assert text in problem.message
