"""Policies set by text: every kind of option, and one clear line for what is none."""

from __future__ import annotations

import pytest

from colane.model.lane import TurnRule, Turns
from colane.policies.blocks.lanes import ShareWhen
from colane.policies.fair import Fair
from colane.policies.max_min import MaxMinFairness
from colane.policies.pack import Pack
from colane.policies.registry import POLICIES, UnknownPolicyError, create


def test_options_are_read_by_the_kind_of_their_field() -> None:
    policy = create("pack:share_when=always,take_turns=no,max_wait_s=none,turns=srtf")
    assert isinstance(policy, Pack)
    assert policy.share_when is ShareWhen.ALWAYS
    assert not policy.take_turns
    assert policy.max_wait_s is None
    assert policy.turns == Turns(rule=TurnRule.SRTF)
    assert policy.name == "pack:share_when=always,take_turns=no,max_wait_s=none,turns=srtf"


@pytest.mark.parametrize("name", ["topo-aware", "topo-aware-p", "topo-aware-share"])
def test_what_no_text_can_say_is_refused(name: str) -> None:
    for value in ("none", "3"):
        with pytest.raises(UnknownPolicyError, match=f"weights must be .*, got '{value}'") as refused:
            create(f"{name}:weights={value}")
        assert " or none" not in str(refused.value)


def test_turns_may_be_longer_than_a_step() -> None:
    policy = create("fair:turns=fair@0.05")
    assert isinstance(policy, Fair)
    assert policy.turns == Turns(rule=TurnRule.FAIR, quantum_s=0.05)


def test_presets_keep_what_is_not_said() -> None:
    policy = create("salus-srtf:max_wait_s=60")
    assert isinstance(policy, Fair)
    assert (policy.turns.rule, policy.max_wait_s) == (TurnRule.SRTF, 60.0)
    packed = create("max-min-packed:quantum_s=30")
    assert isinstance(packed, MaxMinFairness)
    assert packed.packed


def test_no_options_is_the_policy_itself() -> None:
    assert create("pack:") == Pack(name="pack:")
    assert {create(name).name for name in POLICIES} == set(POLICIES)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("pack:share=always", "policy: pack has no option 'share'; did you mean share_when\\? it has max_wait_s, "),
        ("fifo-skip:max=1", "policy: fifo-skip has no option 'max'; it has none"),
        ("pack:share_when=often", "pack: share_when must be one of queue, always, never, got 'often'"),
        ("pack:take_turns=maybe", "pack: take_turns must be yes or no, got 'maybe'"),
        ("pack:max_wait_s=-1", "pack: max_wait_s must be a number from 0 up or none, got '-1'"),
        ("pack:max_wait_s=inf", "got 'inf'"),
        ("pack:turns=best", "turns must be one of fifo, srtf, fair, rr, priority, with @SECONDS"),
        ("pack:turns=fair@x", "got 'fair@x'"),
        ("fifo:gpu_types=", "gpu_types must be words with / between them, got ''"),
        ("pack:name=x", "has no option 'name'"),
        ("salus-code:reserve_bytes=1.5", "got '1.5'"),
        ("pakc:share_when=always", "unknown policy 'pakc:share_when=always'; did you mean pack"),
    ],
)
def test_what_is_none_is_named_with_what_there_is(text: str, line: str) -> None:
    with pytest.raises(UnknownPolicyError, match=line):
        create(text)
