"""How the cores of a node are shared out among the jobs that are tuned there, as they come free or run short.

A job starts with what there is (`core.cluster.draft`). Later it gets what comes free, up to what it would use; where it
has less than its part of the node, those that have more than theirs give up what is above that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from colane.model.job import JobId


class Share(NamedTuple):
    """One job's cores on a node."""

    job: JobId  # which
    has: int  # how many it has
    wants: int  # with how many it goes as fast as with more, as far as is known; it is given no more
    part: int  # its part of the node's cores by the GPUs it has; it gives up none of these


def share_out(shares: Sequence[Share], free: int) -> dict[JobId, int]:
    """How many cores each job is to have whose number changes.

    Args:
        shares: The jobs of a node.
        free: Cores that may be given away.
    """
    count = {share.job: share.has for share in shares}

    def lacks(share: Share, most: int) -> bool:
        return count[share.job] < most

    def need(share: Share) -> tuple[float, JobId]:
        return count[share.job] / share.part, share.job

    while free > 0 and (lacking := [each for each in shares if lacks(each, each.wants)]):
        count[min(lacking, key=need).job] += 1
        free -= 1
    while lacking := [each for each in shares if lacks(each, min(each.wants, each.part))]:
        richest = max(shares, key=lambda each: (count[each.job] - each.part, -each.job))
        if count[richest.job] <= richest.part:
            break
        count[richest.job] -= 1
        count[min(lacking, key=need).job] += 1
    return {share.job: count[share.job] for share in shares if count[share.job] != share.has}
