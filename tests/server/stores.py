"""Stores with something in every collection."""

from __future__ import annotations

from colane.core.usage import UsedGpus
from colane.model.lengths import FamilyLengths
from colane.model.profile import ProfileKey, SetMeasurement
from colane.server.ground.access import digest_of
from colane.server.store import documents
from colane.server.store.store import LENGTHS, MEASUREMENTS, RUN_TIMES, USED, Put, Store, Transaction, job_key
from tests.server.harness import SLEEP, finished, launched, node, report, world

KEY = ProfileKey("f", None, 1, "cpu")
MEASURED = SetMeasurement(
    keys=(KEY, KEY),
    sharing="cpu",
    step_alone_s=(1.0, 1.0),
    step_together_s=(1.5, 1.5),
    steps=(9, 9),
    delta=1.3,
    delta_general=1.3,
    at_s=5.0,
)


async def populate(store: Store) -> None:
    """Leave one job that has ended, one that runs and one that waits, and what is learnt of them, in a new store."""
    async with world(store, tick_s=60.0) as w:
        await w.good("POST", "/node", node())
        await w.submit(name="ended", user="ann", family="f")
        await w.good("POST", "/node/n1/report", report(launched(1)))
        await w.good("POST", "/finished_job", finished(1))
        await w.submit(name="runs", user="ann", labels={"note": "r" * 300})
        await w.good("POST", "/node/n1/report", report(launched(2)))
        answer = await w.post("/job", {**SLEEP, "name": "waits"}, **{"Idempotency-Key": "once"})
        assert answer.json() == {"id": 3}, answer.text
        await w.good("POST", "/tokens", {"digest": digest_of("bob's"), "user": "bob"})
        await w.good("PUT", "/profiles", {"key": {"family": "f", "gpu_type": "cpu"}, "step_s": 0.5})
    puts = [
        Put(MEASUREMENTS, f"{job_key(9)}-0000", documents.encode_measurement(MEASURED)),
        Put(LENGTHS, "1||kind", {"steps": 500}),
        Put(RUN_TIMES, "kind", documents.RUN_TIME.write(FamilyLengths("kind").with_job(90.0))),
        Put(USED, "user ann", documents.USED.write(UsedGpus("ann", 60.0, 5.0))),
    ]
    store.commit(Transaction(puts))
