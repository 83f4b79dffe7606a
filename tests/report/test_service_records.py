"""What the scheduler says of finished jobs, a report can read: neither forgets a field that the other gains."""

from __future__ import annotations

from colane.lab.report.parsing import parse_records
from tests.server.harness import finished, node, world


async def test_records_of_the_service_are_read() -> None:
    async with world() as w:
        await w.good("POST", "/node", node())
        await w.submit()
        await w.good("POST", "/finished_job", finished(1))
        (record,) = parse_records(await w.good("GET", "/finished_jobs"))
    assert (record.id, record.state) == (1, "succeeded")
