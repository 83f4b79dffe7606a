"""What an evaluation comes to: claims with every number they state, and the runs behind them.

A claim is data: each number and each order it states stands in a row of its own, with where it is stated, what is found
here and how near that has to be. The verdict on the claim follows from all of its rows and is nowhere written by hand.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from colane.lab.simulate.request import Loaded
from colane.lab.simulate.run import Run
from colane.model.words import count

Floats = NDArray[np.float64]
TOLERANCE = 0.1  # part by which a number may be off where nothing else is said
SEARCHED = "searched to match"  # what a world says of inputs that were chosen so that the numbers of a paper come out


class ClaimVerdict(StrEnum):
    """What a claim came to, from all that it states.

    `SAME`: every number is met. `ORDERING_HOLDS`: it states orders alone, and all hold. `PARTLY`: some are met and some
    are not, or some could not be judged. `DIFFERS`: none is met. `NOT_JUDGED`: nothing of it could be. `OURS`: no value
    of it was published. What is an input of ours counts for nothing.
    """

    SAME = "same"
    ORDERING_HOLDS = "ordering holds"
    PARTLY = "partly"
    DIFFERS = "differs"
    NOT_JUDGED = "not judged"
    NEEDS_GPU = "needs a GPU"
    OURS = "ours alone"


class Origin(StrEnum):
    """Where a stated value comes from."""

    PAPER = "paper"
    DERIVED = "derived"  # worked out from numbers of the paper, or from tables that its authors or others measured
    CODE = "authors' code"  # what their simulator gives, repaired where it says so
    OTHER = "another paper"
    OURS = "ours"


class Judgement(StrEnum):
    """What one stated value came to."""

    MET = "met"
    MISSED = "missed"
    INPUT = "input"
    NOT_JUDGED = "not judged"
    NEEDS_GPU = "needs a GPU"


class Sense(StrEnum):
    """How a value found is held against the one stated."""

    NEAR = "about"
    AT_MOST = "at most"
    AT_LEAST = "at least"
    BELOW = "below"
    ABOVE = "above"


@dataclass(frozen=True, slots=True)
class Figure:
    """A number that a claim states."""

    what: str  # of what
    stated: float  # the value published
    ours: float | None  # the value found here; None where a simulation cannot find it
    unit: str = ""  # of both
    where: str = ""  # section, table or figure
    source: Origin = Origin.PAPER  # who states it
    printed: str = ""  # the piece of the paper's text it is in, where that is not the number alone
    ratio: float = TOLERANCE  # part of the stated value by which ours may be off
    slack: float = 0.0  # by how much besides, in its unit
    bound: Sense = Sense.NEAR  # how it is judged
    unjudged: str = ""  # why it is not judged though there is a value of ours
    given: str = ""  # why it is an input here: that it comes out again tells nothing
    digits: int = 1  # after the point, where it is shown

    @property
    def judgement(self) -> Judgement:
        """Whether ours is near enough."""
        if self.given:
            return Judgement.INPUT
        if self.ours is None:
            return Judgement.NOT_JUDGED if self.unjudged else Judgement.NEEDS_GPU
        if self.unjudged:
            return Judgement.NOT_JUDGED
        margin = abs(self.stated) * self.ratio + self.slack if self.bound is Sense.NEAR else self.slack
        over = self.ours - self.stated
        met = {
            Sense.NEAR: abs(over) <= margin + 1e-12,
            Sense.AT_MOST: over <= margin,
            Sense.AT_LEAST: over >= -margin,
            Sense.BELOW: over < margin,
            Sense.ABOVE: over > -margin,
        }[self.bound]
        return Judgement.MET if met else Judgement.MISSED

    @property
    def told(self) -> str:
        """The stated value, for people."""
        words = "" if self.bound is Sense.NEAR else f"{self.bound} "
        return f"{words}{self.stated:,.6g}{self._unit}"

    @property
    def found(self) -> str:
        """Ours, for people."""
        return "-" if self.ours is None else f"{self.ours:.{self.digits}f}{self._unit}"

    @property
    def tolerance(self) -> str:
        """How near it has to be, for people."""
        if self.judgement in {Judgement.INPUT, Judgement.NOT_JUDGED, Judgement.NEEDS_GPU}:
            return self.given or self.unjudged
        parts = [f"{self.ratio:.3g}" * bool(self.ratio and self.bound is Sense.NEAR), f"{self.slack:g}{self._unit}"]
        kept = [part for part in parts if part and not part.startswith("0 ") and part not in {"0", f"0{self._unit}"}]
        return " + ".join(kept) if kept else ("exact" if self.bound is Sense.NEAR else str(self.bound))

    @property
    def _unit(self) -> str:
        return f"{'' if self.unit in {'x', ''} else ' '}{self.unit}"


@dataclass(frozen=True, slots=True)
class Trait:
    """An order or another property that a claim states, without a number."""

    what: str  # it
    holds: bool | None  # whether it does here; None where a simulation cannot tell
    found: str = "-"  # what is found here, for people
    where: str = ""  # section, table or figure
    source: Origin = Origin.PAPER  # who states it
    unjudged: str = ""  # why it is not judged though something is found
    given: str = ""  # why it is an input here

    @property
    def judgement(self) -> Judgement:
        """Whether it holds."""
        if self.given:
            return Judgement.INPUT
        if self.unjudged:
            return Judgement.NOT_JUDGED
        if self.holds is None:
            return Judgement.NEEDS_GPU
        return Judgement.MET if self.holds else Judgement.MISSED

    @property
    def told(self) -> str:
        """What is stated: that it holds; nothing is of what is ours."""
        return "" if self.source is Origin.OURS else "holds"

    @property
    def tolerance(self) -> str:
        """Why it is not judged, if it is not."""
        return self.given or self.unjudged


Stated = Figure | Trait


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim of a paper against ours."""

    id: str  # letter of the paper, then its own
    claim: str  # what is claimed
    stated: tuple[Stated, ...]  # every number and order of it
    world: str = ""  # what stood for the paper's machines, jobs and speeds
    note: str = ""  # why it does not come out, where it does not, or how to read it

    @property
    def verdict(self) -> ClaimVerdict:
        """What it came to."""
        return verdict_of(self.stated)

    @property
    def told(self) -> str:
        """The verdict, for people: it says where inputs were searched so that what is stated comes out."""
        unjudged = {ClaimVerdict.NOT_JUDGED, ClaimVerdict.NEEDS_GPU, ClaimVerdict.OURS}
        is_searched = SEARCHED in self.world and self.verdict not in unjudged
        return f"{self.verdict}, inputs {SEARCHED}" if is_searched else str(self.verdict)

    @property
    def published(self) -> str:
        """All that is stated by others, for people."""
        return "; ".join(_with_what(one, one.told) for one in self.stated if one.source is not Origin.OURS) or "-"

    @property
    def ours(self) -> str:
        """All that is found here, for people."""
        return "; ".join(_with_what(one, one.found) for one in self.stated if one.found != "-") or "-"

    def as_object(self) -> dict[str, object]:
        """It with its verdict, for JSON."""
        return {
            "id": self.id, "claim": self.claim, "published": self.published, "ours": self.ours,
            "verdict": self.told, "world": self.world, "note": self.note,
            "stated": [row_of_stated(one) for one in self.stated],
        }  # fmt: skip


def row_of_stated(one: Stated) -> dict[str, object]:
    """A number or an order as a row of `claims.csv` and of `claims.json`."""
    number = one if isinstance(one, Figure) else None
    return {
        "what": one.what, "source": str(one.source), "where": one.where, "stated": one.told,
        "value": number.stated if number else None, "found": one.found, "ours": number.ours if number else None,
        "unit": number.unit if number else "", "tolerance": one.tolerance, "judgement": str(one.judgement),
    }  # fmt: skip


def _with_what(one: Stated, text: str) -> str:
    return f"{one.what}: {text}" if one.what else text


def verdict_of(stated: Iterable[Stated]) -> ClaimVerdict:
    """The verdict on a claim that states these; one that is not judged beside others leaves it `PARTLY`.

    Inputs count for nothing, values of ours nothing beside published ones. A claim of ours alone is `OURS`; it differs
    if one is missed.
    """
    stated = tuple(stated)
    published = [one for one in stated if one.source is not Origin.OURS]
    found = {one.judgement for one in published or stated} - {Judgement.INPUT}
    if not published:
        return ClaimVerdict.DIFFERS if Judgement.MISSED in found else ClaimVerdict.OURS
    if not found & {Judgement.MET, Judgement.MISSED}:
        return ClaimVerdict.NEEDS_GPU if Judgement.NEEDS_GPU in found else ClaimVerdict.NOT_JUDGED
    if found == {Judgement.MET}:
        has_numbers = any(isinstance(one, Figure) and not one.given for one in published)
        return ClaimVerdict.SAME if has_numbers else ClaimVerdict.ORDERING_HOLDS
    return ClaimVerdict.DIFFERS if found == {Judgement.MISSED} else ClaimVerdict.PARTLY


class Effort(NamedTuple):
    """How an evaluation is run."""

    is_quick: bool = False  # with fewer seeds, jobs and machines: verdicts are those of a smaller experiment
    tell: Callable[[str], object] = lambda _: None  # told what runs next


FULL: Final = Effort()


@dataclass(frozen=True, slots=True)
class Experiment:
    """Runs behind claims, for the plots."""

    name: str  # of its directory
    title: str  # heading of its report
    loaded: dict[int, Loaded]  # what was simulated, by seed
    runs: tuple[tuple[int, Run], ...]  # by policy, then seed
    note: str  # how to read it


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Everything that came of it."""

    claims: tuple[Claim, ...]
    experiments: tuple[Experiment, ...]


def ours(what: str, found: str) -> Trait:
    """A result of ours of which no value was published."""
    return Trait(what, holds=True, found=found, source=Origin.OURS)


def table(claims: Sequence[Claim]) -> str:
    """Claims that were published as a table in Markdown, then how many rows of each judgement there are."""
    lines = ["| claim | published | here | verdict |", "| --- | --- | --- | --- |"]
    for claim in claims:
        if claim.verdict is not ClaimVerdict.OURS:
            stated = [one for one in claim.stated if one.source is not Origin.OURS]
            published = "; ".join(one.what if isinstance(one, Trait) else _with_what(one, one.told) for one in stated)
            here = "; ".join(_found(one) for one in claim.stated)
            lines.append(f"| {claim.id}: {claim.claim} | {published} | {here} | {claim.told} |")
    rows = Counter(str(one.judgement) for claim in claims for one in claim.stated if one.source is not Origin.OURS)
    told = ", ".join(f"{number} {judgement}" for judgement, number in rows.most_common())
    alone = sum(claim.verdict is ClaimVerdict.OURS for claim in claims)
    lines += ["", f"Of the numbers and orders published: {told}. {count(alone, 'claim')} of ours alone."]
    return "\n".join(lines) + "\n"


def _found(one: Stated) -> str:
    """What is found here, with the judgement where that is not plain."""
    if isinstance(one, Trait) and one.source is not Origin.OURS and one.judgement in {Judgement.MET, Judgement.MISSED}:
        holds = "holds" if one.judgement is Judgement.MET else "does not hold"
        return holds if one.found == "-" else f"{holds}: {one.found}"
    if one.judgement in {Judgement.INPUT, Judgement.NOT_JUDGED}:
        return str(one.judgement) if one.found == "-" else f"{one.found} ({one.judgement})"
    return _with_what(one, one.found) if one.source is Origin.OURS else one.found


def on_gpu(what: str, where: str = "") -> Trait:
    """A property that only a real GPU can show."""
    return Trait(what, holds=None, where=where)


def numbers(
    published: Mapping[str, float], found: Mapping[str, float], unit: str = "", where: str = "", *,
    ratio: float = TOLERANCE, source: Origin = Origin.PAPER, digits: int = 1,
) -> Sequence[Figure]:  # fmt: skip
    """A number for each policy (or other key) of `published`."""
    return [
        Figure(key, stated, found[key], unit, where, source, ratio=ratio, digits=digits)
        for key, stated in published.items()
    ]


def said(values: Mapping[str, float], unit: str, digits: int = 1) -> str:
    """A value of each policy, for people."""
    return ", ".join(f"{policy} {value:.{digits}f} {unit}" for policy, value in values.items())


def queue_s(run: Run) -> Floats:
    """First start - submission of every job."""
    rows = run.ledger.rows
    return np.subtract(rows.first_start_s, rows.submit_s)


def span_s(run: Run) -> Floats:
    """End - first start of every job."""
    rows = run.ledger.rows
    return np.subtract(rows.end_s, rows.first_start_s)


FOLDER: Final = Path(__file__).parent / "measured"  # a file for each machine, named by date; the newest counts


class GpuResults(NamedTuple):
    """Results of one machine."""

    where: str  # GPU, driver and date
    parts: dict[str, Any]  # by script, then part, as `results.json` of `gpu/run` has them

    def number(self, path: str) -> float | None:
        """A number by script, part and name; None where it was not measured."""
        found = self._at(path)
        return float(found) if isinstance(found, int | float) else None

    def rows(self, path: str) -> Sequence[dict[str, Any]]:
        """What a part lists under a name."""
        return self._at(path) or ()

    def _at(self, path: str) -> Any:  # noqa: ANN401 - of any script
        found: Any = self.parts
        for name in path.split("/"):
            found = found.get(name) if isinstance(found, dict) else None
        return found


def newest() -> GpuResults:
    """Return what was measured last."""
    body = json.loads(max(FOLDER.glob("*.json")).read_text(encoding="utf-8"))
    return GpuResults(f"measured {body['date']} on {body['machine']}", body["parts"])
