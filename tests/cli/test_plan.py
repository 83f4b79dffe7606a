"""`submit --plan` and `--if-plan`, and what else a command line says and completes before anything is done."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Colane, Up, run_colane


class TestAPlan:
    def test_is_told_and_holds_until_it_does_not(self, live: Colane) -> None:
        asked = ("--name", "planned", "--", "sleep", "60")
        told = live("submit", "--plan", *asked)
        assert (told.code, told.err) == (0, "")
        first, note, last = told.out.splitlines()
        assert "(planned) would " in first
        assert "--if-plan INDEX" in note
        assert "planned" not in live("ps", "--format", "{name}").out.split()
        index = last.removeprefix("plan ")
        submitted = live("submit", "--if-plan", index, *asked)
        assert submitted.code == 0
        job = submitted.out.split()[-1]
        refused = live("submit", "--if-plan", index, "--", "sleep", "61")
        assert refused.code == 2
        assert refused.err.startswith(f"colane: plan {index} does not hold any more: by now sleep would ")
        assert live("ps", "--format", "{name}").out.split().count("planned") == 1
        assert live("cancel", job).code == 0

    def test_is_json_for_programs(self, live: Colane) -> None:
        plan = live("submit", "--plan", "--json", "--begin", "now+2h", "--", "true").json
        assert (plan["jobs"][0]["state"], plan["makes_way"]) == ("held", [])
        assert plan["jobs"][0]["eligible_s"] > plan["now_s"]

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            (("--plan", "--wait"), "--plan submits nothing: leave out --wait"),
            (("--plan", "--if-plan", "1-0123456789ab"), "--plan submits nothing: leave out --if-plan"),
            (("--plan", "--gpus", "4096"), "--gpus: asks for 4096"),
            (("--plan", "--after", "ok:999999"), "--after: there is no job 999999"),
            (("--if-plan", "soon"), "--if-plan: must be what a plan has ended with, as 812-3fa9c1d2e4f5, got 'soon'"),
        ],
    )
    def test_that_makes_no_sense_is_refused(self, live: Colane, words: tuple[str, ...], says: str) -> None:
        said = live("submit", *words, "--", "true")
        assert (said.code, said.out) == (2, "")
        assert says in said.err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ((), "is cancelled (--if-never hold would hold it)"),
        (("--if-never", "hold"), "is held until colane release"),
    ],
)
def test_what_becomes_of_a_job_whose_condition_fails_is_said(live: Colane, options: tuple[str, ...], says: str) -> None:
    first = live("submit", "--hold", "--", "true").out.split()[-1]
    said = live("submit", "--after", f"ok:{first}", *options, "--", "true")
    job = said.out.split()[-1]
    assert said.err.splitlines()[-1] == (f"note: once a condition of --after can never come true, job {job} {says}")
    assert live("cancel", first, job).code in {0, 2}


class TestFormat:
    def test_names_fields_of_all_that_json_has(self, live: Colane) -> None:
        job = live("submit", "--hold", "--name", "odd {name}", "--label", "a=b", "--", "true").out.split()[-1]
        text = r"{id}\t{name}|{needs.gpus}|{labels}|{node}|{exit_code}|{suspended}|{{}}"
        assert live("show", job, "--format", text).out == f"{job}\todd {{name}}|1|a=b|-|-|true|{{}}\n"
        assert f"{job} queued" in live("ps", "--format", "{id} {state}").out.splitlines()
        assert live("nodes", "--format", "{state}").out == "up\n"
        node = live("nodes", "--format", "{name}").out
        assert live("node", "list", "--format", "{name} {differs}").out == f"{node.strip()} false\n"
        assert live("topo", "--format", "{name}").out == node
        assert live("topo", "--import", "dgx-1", "--format", "{kind}").code == 2
        assert live("token", "list", "--format", "{id}").code == 0
        assert "server.port -\n" in live("config", "show", "--format", "{setting} {from}").out
        assert "fifo -\n" in live("policies", "--format", "{policy} {stands_for}").out
        assert live("cancel", job).code == 0

    @pytest.mark.parametrize(
        ("template", "says"),
        [
            ("{idd}", "there is no 'idd'; did you mean id?"),
            ("{needs.gpu}", "there is no 'needs.gpu'; did you mean gpus"),
            ("{", "a brace itself is written twice"),
            ("{}", "{} names no field"),
            ("{id!r}", "name a field alone, as {id}"),
            ("{id:>5}", "name a field alone, as {id}"),
            ("{id.x}", "there is no 'id.x'; there are none in it"),
        ],
    )
    def test_that_names_none_is_refused(self, live: Colane, template: str, says: str) -> None:
        job = live("submit", "--hold", "--", "true").out.split()[-1]
        said = live("show", job, "--format", template)
        assert (said.code, said.out) == (2, "")
        assert says in said.err
        assert live("cancel", job).code == 0


class TestCompletion:
    def completed(self, words: str, number: int, **env: str) -> list[str]:
        variables = {"_COLANE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(number), **env}
        said = run_colane([], **variables)
        assert said.err == ""
        return said.out.split()

    def test_of_jobs_and_nodes_is_what_the_scheduler_has(self, live: Colane, shared_up: Up) -> None:
        job = live("submit", "--hold", "--", "true").out.split()[-1]
        node = live("nodes", "--format", "{name}").out.strip()
        for words in ("colane why ", "colane cancel ", "colane suspend "):
            assert job in self.completed(words, 2, **shared_up.env)
        assert self.completed(f"colane drain {node[:1]}", 2, **shared_up.env) == [node]
        assert live("cancel", job).code == 0

    def test_without_a_scheduler_is_nothing(self) -> None:
        assert self.completed("colane why ", 2, COLANE_URL="http://127.0.0.1:1") == []


def test_channels_that_tell_of_a_job_are_its_label(live: Colane) -> None:
    job = live("submit", "--hold", "--label", "run=a", "--notify", "none", "--", "true").out.split()[-1]
    assert live("show", "--json", job).json["labels"] == {"run": "a", "notify": "none"}
    said = live("submit", "--label", "notify=x", "--notify", "y", "--", "true")
    assert (said.code, said.err) == (2, "colane: --notify: --label notify=... says the same; give one of the two\n")
    assert live("cancel", job).code == 0
