"""/metrics: read with the library that Prometheus's makers give, as they and as OpenMetrics have it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families_untyped
from prometheus_client.parser import text_string_to_metric_families as plain_families

from colane.model.choices import MetricNames, See
from colane.model.job import JobId
from colane.server.metrics.text import LABEL_MAX, RATIOS_MAX, MetricKind, MetricText, RatioTexts, label_value
from colane.server.writer.meters import Histogram
from tests.server.harness import World, finished, gpu, launched, node, report, world
from tests.server.test_users import guest

open_families: Any = open_families_untyped
HOSTILE = (
    "\x1b[31mred\x1b[0m", "\N{RIGHT-TO-LEFT OVERRIDE}dlrow", "\N{PARTY POPPER} job", 'say "hi" \\ there',
    "x" * 4096, "\u05d0\u05d1",
)  # fmt: skip
SEEN = {"index": 0, "busy_ratio": 0.25, "used_bytes": 2**30, "power_w": 99.5, "temperature_c": 50.0, "throttle": ["power-cap", "thermal"], "xid": 31}  # fmt: skip  # noqa: E501
USE = {"busy_ratio": 0.5, "device_bytes": 4096, "cpu_cores": 1.25, "host_bytes": 8192, "steps_per_s": 3.5, "share_ratio": 0.75}  # fmt: skip  # noqa: E501


async def scrape(w: World, *, is_open: bool = False) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"} if is_open else {}
    answer = await w.http.get("/metrics", headers=accept)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("application/openmetrics" if is_open else "text/plain")
    read = open_families if is_open else plain_families
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in read(answer.text):
        assert family.type != "unknown", family.name
        assert family.documentation
        for sample in family.samples:
            at = tuple(sorted(sample.labels.items()))
            assert at not in found.setdefault(sample.name, {}), "twice"
            found[sample.name][at] = sample.value
    return found


def one(samples: dict[tuple[tuple[str, str], ...], float], **labels: str) -> float:
    (value,) = [value for at, value in samples.items() if labels.items() <= dict(at).items()]
    return value


async def busy(w: World) -> None:
    a100 = [gpu(index, type="A100", uuid=f"GPU-{index}", memory_bytes=4 * 2**30) for index in (0, 1)]
    await w.good("POST", "/node", node() | {"gpus": [*a100, gpu(2)]})
    await w.submit(user="ann", name="vit", gpus=2)
    await w.submit(user="bob", name="bobsonly", labels={"secret": "of bob"}, gpu_type="A100")
    latencies = {"latency_p50_s": 0.001, "latency_p95_s": 0.002, "latency_p99_s": 0.003}
    progress = {"at_s": 1.0, "steps": 7, "step_mean_s": 0.5, "answers": 7, **latencies}
    told = launched(1, start_s=1.0, progress=progress, use=USE)
    for _ in range(2):
        await w.good("POST", "/node/n1/report", report(told, devices=[{**SEEN, "index": index} for index in range(3)]))


@pytest.mark.parametrize("is_open", [False, True])
async def test_the_cluster_its_devices_its_jobs_and_the_scheduler(is_open: bool) -> None:
    async with world() as w:
        await busy(w)
        found = await scrape(w, is_open=is_open)
        assert one(found["colane_devices"], state="working") == 2
        assert one(found["colane_nodes"], state="up") == 1
        assert one(found["colane_device_busy_ratio"], node="n1", gpu="2", type="cpu") == 0.25
        assert one(found["colane_device_throttled"], gpu="1") == 1
        assert one(found["colane_job_busy_ratio"], job="1", user="ann", name="vit", node="n1") == 0.5
        assert one(found["colane_job_steps_total"], job="1") == 7
        assert one(found["colane_job_step_seconds"], job="1") == 0.5
        for part, took_s in ((50, 0.001), (95, 0.002), (99, 0.003)):
            assert one(found[f"colane_job_latency_p{part}_seconds"], job="1") == took_s
        assert one(found["colane_waiting_jobs_by_reason"], why="no-free-gpu") == 1
        assert one(found["colane_user_devices"], user="ann") == 2
        assert one(found["colane_jobs_submitted_total"]) == 2
        assert found["colane_decision_seconds_count"][()] >= found["colane_decision_seconds_bucket"][(("le", "0.001"),)]
        assert one(found["colane_decision_seconds_bucket"], le="+Inf") == one(found["colane_decision_seconds_count"])
        assert one(found["colane_store_commit_seconds_count"]) > 0
        assert not any(name.startswith(("slurm", "DCGM")) for name in found)
        await w.good("POST", "/finished_job", finished(1))
        await w.good("DELETE", "/job/2")
        after = await scrape(w, is_open=is_open)
        assert not any("ann" in str(at) for name in after for at in after[name] if name.startswith("colane_job_"))
        assert one(after["colane_jobs_ended_total"], state="succeeded") == 1


@pytest.mark.parametrize("is_open", [False, True])
async def test_an_empty_cluster(is_open: bool) -> None:
    async with world(metrics_names=frozenset(MetricNames)) as w:
        found = await scrape(w, is_open=is_open)
        assert one(found["colane_devices"], state="free") == 0
        assert one(found["slurm_nodes"]) == 0


async def test_names_that_dashboards_have() -> None:
    async with world(metrics_names=frozenset(MetricNames)) as w:
        await busy(w)
        found = await scrape(w)
        labels = {"gpu": "1", "UUID": "GPU-1", "device": "nvidia1", "modelName": "A100", "Hostname": "n1"}
        assert one(found["DCGM_FI_DEV_GPU_UTIL"], **labels) == 25
        assert len(found["DCGM_FI_DEV_GPU_UTIL"]) == 2, "a cpu device is no GPU"
        assert (one(found["DCGM_FI_DEV_FB_USED"], gpu="0"), one(found["DCGM_FI_DEV_FB_FREE"], gpu="0")) == (1024, 3072)
        assert one(found["DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"], gpu="1") == 0x24
        assert (one(found["slurm_jobs_running"]), one(found["slurm_jobs_pending"])) == (1, 1)
        assert (one(found["slurm_nodes_mixed"]), one(found["slurm_nodes_idle"])) == (1, 0)
        assert one(found["slurm_partition_jobs_pending"], partition="default") == 1
        assert one(found["slurm_node_cpus"], node="n1") == 4
        assert (one(found["slurm_node_gpus"], node="n1"), one(found["slurm_node_gpus_alloc"], node="n1")) == (3, 2)
        assert one(found["slurm_jobs_gpus_alloc"]) == one(found["slurm_user_jobs_gpus_alloc"], username="ann") == 2
        assert one(found["slurm_partition_gpus"], partition="default") == 3
        assert one(found["slurm_partition_jobs_gpus_alloc"], partition="default") == 2
        assert one(found["slurm_user_jobs"], username="ann") == one(found["slurm_user_jobs_running"], username="ann")
        assert sum(found["slurm_user_jobs_pending"].values()) == one(found["slurm_jobs_pending"])
        assert one(found["slurm_user_jobs_cpus_alloc"], username="ann") == one(found["slurm_jobs_cpus_alloc"])


def test_texts_of_few_numbers_are_those_of_the_numbers() -> None:
    texts = RatioTexts()
    assert [texts[value] for value in (0.97, 1, True, 61.0, 0.97)] == ["0.97", "1", "1", "61", "0.97"]
    for value in range(RATIOS_MAX):
        assert texts[value + 0.5] == f"{value + 0.5}"
    assert len(texts) <= RATIOS_MAX


async def test_names_of_jobs_neither_break_a_line_nor_grow() -> None:
    async with world() as w:
        await w.good("POST", "/node", node(gpus=len(HOSTILE)))
        for name in HOSTILE:
            job = await w.submit()
            known = w.service.read_model.jobs[JobId(job)].copied()
            known.spec = replace(known.spec, name=name)  # as an older Colane may have taken it in
            w.service.read_model.jobs[JobId(job)] = known
        found = await scrape(w)
        names = [dict(at)["name"] for at in found["colane_job_devices"]]
        assert len(names) == len(HOSTILE)
        assert all(len(name) <= LABEL_MAX + 1 and name.isprintable() for name in names)
        assert HOSTILE[3] in names
        assert {len(label_value(name)) for name in HOSTILE[4:5]} == {LABEL_MAX - 1}


async def test_nothing_is_told_of_the_jobs_of_others_where_users_see_their_own() -> None:
    async with world(see=See.OWN, metrics_names=frozenset(MetricNames)) as w:
        await guest(w, "a", user="ann")
        await busy(w)
        answer = await w.http.get("/metrics", headers={"Authorization": "Bearer a"})
        assert answer.status_code == 200
        assert 'user="ann"' in answer.text
        assert "bob" not in answer.text
        assert "secret" not in (await w.http.get("/metrics")).text, "labels of jobs are no labels of metrics"
        assert (await w.http.get("/metrics", headers={"Authorization": ""})).status_code == 401


def test_a_histogram_counts_what_is_at_a_bound_below_it() -> None:
    histogram = Histogram((0.1, 1.0))
    for seconds in (0.05, 0.1, 0.5, 7.0):
        histogram.add(seconds)
    text = MetricText(is_open=True)
    text.histogram("took_seconds", "What it took.", histogram)
    text.family("nothing", MetricKind.GAUGE, "Nothing is known.", [("", None)])
    (family,) = open_families(text.finish())
    values = {(s.name, s.labels.get("le")): s.value for s in family.samples}
    assert values == {
        ("took_seconds_bucket", "0.1"): 2, ("took_seconds_bucket", "1.0"): 3, ("took_seconds_bucket", "+Inf"): 4,
        ("took_seconds_sum", None): pytest.approx(7.65), ("took_seconds_count", None): 4,
    }  # fmt: skip


async def test_a_store_that_cannot_be_written_is_told() -> None:
    async with world() as w:
        found: Any = await scrape(w)
        assert one(found["colane_store_writable"]) == 1
        w.service.driver.problem = "the disk is full"
        found = await scrape(w)
        assert one(found["colane_store_writable"]) == 0
        assert one(found["colane_needs_look"], code="store") == 1
        w.service.driver.problem = None
