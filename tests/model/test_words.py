"""Numbers with their nouns."""

import re
from pathlib import Path

import pytest

from colane.model import words
from colane.model.reason import Reason, Why
from colane.model.sentences import fill, sentence_of
from colane.model.words import count


@pytest.mark.parametrize(
    ("number", "noun", "said"),
    [
        (1, "core", "1 core"),
        (2, "core", "2 cores"),
        (0, "retry", "0 retries"),
        (1, "retry", "1 retry"),
        (3, "entry", "3 entries"),
        (2, "day", "2 days"),
        (2, "process", "2 processes"),
        (0.5, "core", "0.5 cores"),
        ("1", "job", "1 job"),
        ("1,200", "job", "1,200 jobs"),
    ],
)
def test_a_noun_follows_its_number(number: float | str, noun: str, said: str) -> None:
    assert count(number, noun) == said


def test_a_sentence_takes_nouns_and_formats_of_python() -> None:
    assert fill("{a:core} of {b:.2f}, {c}", {"a": 1, "b": 2, "c": "x"}) == "1 core of 2.00, x"
    with pytest.raises(KeyError):
        fill("{a:core}", {})


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        (Reason(Why.CORES_KEPT, {"cores": 1, "because": "more bring nothing"}), "keeps its 1 core: more bring nothing"),
        (Reason(Why.SHRUNK, {"gpus": 1, "had": 2}), "saves its state and goes on with 1 GPU of the 2 it had"),
        (
            Reason(Why.RETRY, {"attempt": 1, "cause": "exited with code 3", "left": 1}),
            "attempt 1 ended (exited with code 3); 1 retry left",
        ),
        (Reason(Why.STEPS_REACHED, {"steps": 1}), "reached the 1 step it was asked for"),
        (Reason(Why.NO_CORES, {"need": 1, "have": 0}), "Resources: needs 1 core, at most 0 free where the GPUs are"),
    ],
)
def test_sentences_of_reasons_do(reason: Reason, said: str) -> None:
    assert sentence_of(reason) == said


def test_parts_of_a_whole_have_one_form() -> None:
    assert fill("slowed to {speed:percent}", {"speed": 0.6}) == "slowed to 60 %"
    assert fill("uses {used:percent} of {cores:core}", {"used": 0, "cores": 2}) == "uses 0 % of 2 cores"
    source = Path(words.__file__).parents[1]
    places = [source / name for name in ("model", "core", "server", "cli", "policies", "agent")]
    files = [path for place in places for path in place.rglob("*.py")]
    assert [path.name for path in files if re.search(r":[.0-9]*%}", path.read_text(encoding="utf-8"))] == []
