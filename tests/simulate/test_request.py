"""What is to be simulated goes to other processes, as seeds of it do; also where its records are compiled."""

from __future__ import annotations

import pickle

from colane.lab.simulate.generators import make_workload
from colane.lab.simulate.request import LIVE, Request
from colane.model.limits import GroupQuota, Limits, Quotas


def test_it_is_the_same_in_another_process() -> None:
    limits = Quotas(
        default=Limits(queued=5),
        users={"ann": Limits(gpus=2, running=3, submits_per_minute=4)},
        groups={"lab": GroupQuota(Limits(gpus=8), frozenset({"ann", "bob"})), "unix": GroupQuota(Limits())},
    )
    request = Request(cluster="dgx1", trace="sweep:jobs=4", limits=limits, live=LIVE)
    assert pickle.loads(pickle.dumps(request)) == request  # noqa: S301 - its own


def test_blanks_around_a_generators_parameter_change_nothing() -> None:
    texts = "sweep:jobs=4,spread=0.1", "sweep: jobs = 4 , spread=0.1"
    plain, spaced = (make_workload(text, seed=1, gpus=8) for text in texts)
    assert spaced.jobs == plain.jobs
    assert len(spaced.jobs) == 4
