"""Policies set by text: every kind of option, and one clear line for what is none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from colane.model.placement import TurnRule, Turns
from colane.scheduling.admissions.ageing import Ageing
from colane.scheduling.engine.user_weights import UserWeights
from colane.scheduling.mechanisms.cpu.cpu_array import CpuArray
from colane.scheduling.mechanisms.fairness.least_share import LeastShare
from colane.scheduling.mechanisms.lanes.in_lane import InLane, ShareWhen
from colane.scheduling.mechanisms.sharing.beside_utility import BesideByUtility
from colane.scheduling.mechanisms.topology.placement import Connected
from colane.scheduling.registry import (
    ALIASES,
    AS_PUBLISHED,
    NAMES,
    POLICIES,
    SUMMARIES,
    UnknownPolicyError,
    bounded,
    create,
    preset,
)


def test_options_are_read_by_the_kind_of_their_field() -> None:
    policy = create("pack:share_when=always,take_turns=no,max_wait_s=none,turns=srtf")
    lane = next(source for source in policy.sources if isinstance(source, InLane))
    ageing = next(rule for rule in policy.admits if isinstance(rule, Ageing))
    assert lane.share_when is ShareWhen.ALWAYS
    assert not lane.take_turns
    assert ageing.max_wait_s is None
    assert policy.turns == Turns(rule=TurnRule.SRTF)
    assert policy.name == "pack:share_when=always,take_turns=no,max_wait_s=none,turns=srtf"


def test_numbers_that_are_none_unless_given() -> None:
    policy = create("pack:gain_min=0.2,usage_half_life_s=60")
    lane = next(source for source in policy.sources if isinstance(source, InLane))
    assert (lane.gain_min, policy.usage_half_life_s) == (0.2, 60.0)
    assert create("pack:gain_min=none").name == "pack:gain_min=none"
    with pytest.raises(UnknownPolicyError, match="no option 'moving'"):
        create("fifo:moving=3")


@pytest.mark.parametrize("name", ["topo-aware", "topo-aware-p", "topo-aware-share"])
def test_what_no_text_can_say_is_refused(name: str) -> None:
    for value in ("none", "3"):
        with pytest.raises(UnknownPolicyError, match=f"weights must be .*, got '{value}'") as refused:
            create(f"{name}:weights={value}")
        assert " or none" not in str(refused.value)


def test_users_may_count_for_more_in_all_arrays() -> None:
    policy = create("coda:user_weights=ann=2/bob=0.5")
    weights = UserWeights((("ann", 2.0), ("bob", 0.5)))
    assert policy == preset("coda", name=policy.name, user_weights=weights)
    assert isinstance(policy.order, LeastShare)
    assert isinstance(policy.cpu_jobs, CpuArray)
    assert policy.order.user_weights == policy.cpu_jobs.user_weights == weights
    assert [weights.of(user) for user in ("ann", "bob", "cem")] == [2.0, 0.5, 1.0]


@pytest.mark.parametrize("text", ["ann", "ann=0", "ann=-1", "=2", "ann=1/ann=2", "ann=x", "ann=inf", ""])
def test_weights_that_are_none(text: str) -> None:
    line = f"user_weights must be users with their weights, as ann=2/bob=0.5, got '{text}'"
    with pytest.raises(UnknownPolicyError, match=line):
        create(f"drf:user_weights={text}")


def test_turns_may_be_longer_than_a_step() -> None:
    policy = create("fair:turns=fair@0.05")
    assert policy.turns == Turns(rule=TurnRule.FAIR, quantum_s=0.05)


def test_presets_keep_what_is_not_said() -> None:
    policy = create("salus-srtf:max_wait_s=60")
    assert policy == preset("salus-srtf", name="salus-srtf:max_wait_s=60", max_wait_s=60.0)
    assert policy.turns.rule is TurnRule.SRTF
    packed = create("max-min-packed:quantum_s=30")
    assert packed == preset("max-min-packed", name="max-min-packed:quantum_s=30", quantum_s=30.0, packed=True)


def test_an_option_reaches_every_part_that_has_it() -> None:
    both = preset("topo-aware", postpones=True)
    assert {part.postpones for part in both.sources if isinstance(part, (Connected, BesideByUtility))} == {True}


def test_no_options_is_the_policy_itself() -> None:
    assert create("pack:") == preset("pack", name="pack:")
    assert {create(name).name for name in NAMES} == set(NAMES)


def test_a_short_name_is_its_row_with_options_and_takes_more() -> None:
    for alias, meant in ALIASES.items():
        row, _, options = meant.partition(":")
        assert row in POLICIES
        assert alias not in POLICIES
        assert create(alias) == replace(create(meant), name=alias)
        assert create(f"{alias}:max_wait_s=7") == replace(
            create(f"{row}:{_last(options)}max_wait_s=7"), name=f"{alias}:max_wait_s=7"
        )


def test_a_baseline_has_the_form_in_which_it_was_published() -> None:
    as_live, published = create("srsf"), create("srsf", as_published=True)
    guards = {"max_wait_s": None, "protects": False, "displaces_min": 1.0, "quantum_s": 0.0}
    assert published == replace(preset("srsf", **guards), is_as_published=True)
    assert create("srsf:as_published=yes") == replace(published, name="srsf:as_published=yes")
    assert create("srsf:as_published=no", as_published=True) == replace(as_live, name="srsf:as_published=no")
    longer = create("srsf:as_published=yes,quantum_s=30")
    assert longer == replace(preset("srsf", **{**guards, "quantum_s": 30.0}, name=longer.name), is_as_published=True)
    assert create("colane", as_published=True) == create("colane")
    assert bounded("fifo:as_published=yes", 60.0) == create("fifo:as_published=yes")


@pytest.mark.parametrize("row", AS_PUBLISHED)
def test_no_published_form_bounds_how_long_jobs_wait(row: str) -> None:
    policy = create(row, as_published=True)
    assert policy.is_as_published
    assert all(rule.max_wait_s is None for rule in policy.admits if isinstance(rule, Ageing))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("srtf:as_published=perhaps", "as_published must be yes or no"),
        ("srtf:as_published=yes,as_published=no", "be said once"),
        ("colane:as_published=yes", "Colane's own and published nowhere; leave as_published away"),
    ],
)
def test_a_form_that_is_none(text: str, line: str) -> None:
    with pytest.raises(UnknownPolicyError, match=line):
        create(text)


def _last(options: str) -> str:
    """Options of a short name but for the one that is given anew."""
    return "".join(f"{one}," for one in options.split(",") if not one.startswith("max_wait_s"))


def test_no_two_names_are_one_policy_and_every_row_is_summed_up() -> None:
    assert len({replace(create(name), name="") for name in NAMES}) == len(NAMES)
    assert set(SUMMARIES) == set(POLICIES)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "pack:share=always",
            "policy: pack has no option 'share'; did you mean share_when\\? it has for_overdue, gain_min, ",
        ),
        (
            "fifo-skip:max=1",
            "policy: fifo-skip has no option 'max'; .*it has for_overdue, gang_wait_ratio, gpu_types, max_wait_s, ",
        ),
        ("pack:take_turns=no,take_turns=yes", "pack: take_turns is said twice"),
        ("pack:share_when=often", "pack: share_when must be one of queue, always, never, got 'often'"),
        ("pack:take_turns=maybe", "pack: take_turns must be yes or no, got 'maybe'"),
        ("pack:max_wait_s=-1", "pack: max_wait_s must be a number from 0 up or none, got '-1'"),
        ("pack:max_wait_s=inf", "got 'inf'"),
        ("pack:turns=best", "turns must be one of fifo, srtf, fair, rr, priority, with @SECONDS"),
        ("pack:turns=fair@x", "got 'fair@x'"),
        ("fifo:gpu_types=", "gpu_types must be words with / between them, got ''"),
        ("pack:name=x", "has no option 'name'"),
        ("salus-code:reserve_bytes=1.5", "got '1.5'"),
        ("srtf:displaces_min=0.5", "policy: srtf: displaces_min must be a number from 1 up, got '0.5'"),
        ("colane:displaces_min=0.9", "displaces_min must be a number from 1 up, got '0.9'"),
        ("colane:objective=makespan,keeps_min=0.1", "keeps_min must be a number from 1 up, got '0.1'"),
        ("finish-time-fair:rho_gain_min=0", "rho_gain_min must be a number from 1 up, got '0'"),
        ("f-sched:rise_min=1", "f-sched has no option 'rise_min'; did you mean rise_steps_per_s_min\\?"),
        ("srtf:gain_min=1.25", "srtf has no option 'gain_min'; did you mean displaces_min\\?"),
        ("shadow-price:objective=fair", "did you mean colane\\? known"),
        ("colane-0.2", "unknown policy 'colane-0.2'; did you mean colane\\? known"),
        ("colane-0.2:moves_max=8", "did you mean colane\\? known"),
        ("pakc:share_when=always", "unknown policy 'pakc:share_when=always'; did you mean pack"),
    ],
)
def test_what_is_none_is_named_with_what_there_is(text: str, line: str) -> None:
    with pytest.raises(UnknownPolicyError, match=line):
        create(text)
