"""A setting is read once, whether a flag, a variable, a file or a parent process gives it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from colane.cli.app import make_app, run
from colane.client.errors import BadUrl
from colane.client.locate import find_token, find_url, surroundings
from colane.settings import places
from colane.settings.places import own_file
from colane.settings.setting import Given, Section, SettingError
from colane.settings.sources import find_file, gather, read_file
from colane.settings.table import (
    AGENT,
    GUARD,
    HEARTBEAT,
    KEEP_FINISHED,
    LIMITS,
    PORT_MAX,
    SECTIONS,
    SERVER,
    SERVER_PORT,
)

DOC = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"


def written(folder: Path, text: str) -> Path:
    path = folder / "colane.toml"
    path.write_text(text)
    return path


def test_a_flag_counts_before_a_variable_that_before_the_file_that_before_the_default(tmp_path: Path) -> None:
    file = read_file(written(tmp_path, '[server]\nguard = "10%"\n'))
    environment = {"COLANE_SERVER_GUARD": "20%"}

    def guard(flags: dict[str, object], environment: dict[str, str], **given: Any) -> tuple[float | None, str]:
        values = gather(SERVER, flags, environment=environment, **given)
        return values[GUARD], values.given["guard"].origin

    assert guard({"guard": "5%"}, environment, file=file) == (0.05, "--guard")
    assert guard({}, environment, file=file) == (0.2, "COLANE_SERVER_GUARD")
    assert guard({}, {"COLANE_SERVER_GUARD": ""}, file=file) == (0.1, f"{tmp_path}/colane.toml:2: server.guard")
    assert guard({}, {}) == (0.3, "")
    assert guard({}, environment, document={"guard": Given("off", "--guard")}) == (None, "--guard")


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.name)
def test_every_default_can_be_given_in_every_place(tmp_path: Path, section: Section) -> None:
    """What a flag takes, a variable and a file take."""
    default = gather(section, {}, environment={})
    told = {name: given.raw for name, given in default.given.items() if given.raw not in {None, ""}}
    lines = [f"{name} = {json.dumps(value)}" for name, value in told.items()]
    file = read_file(written(tmp_path, "\n".join([f"[{section.name}]", *lines])))
    assert file.problems == ()
    by_file = gather(section, {}, file=file, environment={})
    variables = {f"COLANE_{section.name}_{name}".upper(): str(value) for name, value in told.items()}
    by_variable = gather(section, {}, environment=variables)
    for setting in section.settings:
        assert by_file[setting] == by_variable[setting] == default[setting], setting.name
        assert by_file.is_given(setting) == by_variable.is_given(setting) == (setting.name in told)


def test_what_a_parent_hands_on_is_what_it_was_given(tmp_path: Path) -> None:
    file = read_file(written(tmp_path, "[agent]\nheartbeat = 0.5\n"))
    flags: dict[str, object] = {"devices": "cpu:1", "stop_jobs": True}
    parent = gather(AGENT, flags, file=file, environment={"COLANE_OTHERS": "ignore"})
    said = json.loads(json.dumps(parent.document()))
    child = gather(AGENT, {}, document={name: Given(*given) for name, given in said.items()}, environment={})
    assert child.given == parent.given
    assert child[HEARTBEAT] == 0.5


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[server]\n\npolcy = "fifo"\n', (3, ": there is no such key; did you mean policy?")),
        ("[sever]\n", (1, ": there is no such table; did you mean server?")),
        ("policy = 'fifo'\n", (1, ": there is no such table; known: agent, agents, client, server, up")),
        ('[agent]\ntoken = "x"\n', (2, "name its file: token_file")),
        ("[server]\nguard = {}\n", (2, ": must be text, a number, true or false, got {}")),
    ],
)
def test_what_a_file_may_not_say_is_named_with_its_line(tmp_path: Path, text: str, expected: tuple[int, str]) -> None:
    file = read_file(written(tmp_path, text))
    with pytest.raises(SettingError) as raised:
        gather(SERVER, {}, file=file)
    line, reason = expected
    assert str(raised.value).startswith(f"{file.path}:{line}: ")
    assert str(raised.value).endswith(reason)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("port = 70000", f"must be a whole number from 0 to {PORT_MAX}, got 70000"),
        ("port = 1.5", "must be a whole number"),
        ('see = "al"', "must be all, own, got 'al'; did you mean all?"),
        ('guard = "much"', "must be a percentage such as 30%, or off"),
        ("keep_finished = -1", "must be all, a duration such as 30d, or a number of jobs"),
    ],
)
def test_a_value_that_cannot_be_is_named_with_its_line(tmp_path: Path, text: str, expected: str) -> None:
    path = written(tmp_path, f"[server]\n{text}\n")
    with pytest.raises(SettingError, match=f"^{re.escape(str(path))}:2: server.* {re.escape(expected)}"):
        gather(SERVER, {}, file=read_file(path), environment={})


def test_what_is_no_toml_or_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"colane\.toml: Expected ']'"):
        read_file(written(tmp_path, "[server"))
    with pytest.raises(SettingError, match=r"none\.toml: No such file"):
        read_file(tmp_path / "none.toml")


def test_numbers_lists_and_paths_of_a_file(tmp_path: Path) -> None:
    text = '[server]\nkeep-finished = 100\nport = 0\nlimits = "limits.toml"\nmemory_factors = [1, 1.2]\n'
    values = gather(SERVER, {}, file=read_file(written(tmp_path, text)), environment={})
    assert (values[KEEP_FINISHED].jobs, values[SERVER_PORT]) == (100, 0)
    assert values[LIMITS] == tmp_path / "limits.toml"


def test_where_the_file_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = written(tmp_path, "[up]\nkeep_jobs = true\n")
    assert find_file(None, {"COLANE_CONFIG": str(named)}).path == named
    assert find_file(named, {"COLANE_CONFIG": "/none"}).given["up"]["keep_jobs"].raw is True
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert own_file(environment) == tmp_path / "colane" / "colane.toml"
    assert find_file(None, environment).given == {}


def test_every_setting_is_an_option_of_its_command() -> None:
    commands = get_command(make_app()).commands  # type: ignore[attr-defined]
    for section in (SERVER, AGENT):
        flags = {name for param in commands[section.name].params for name in param.opts}
        assert {setting.flag for setting in section.settings} - flags <= {"--url"}
    assert len({name for section in SECTIONS for name in [s.name for s in section.settings]}) > 30


def test_the_example_of_the_documentation_is_right(tmp_path: Path) -> None:
    example = DOC.read_text().split("```toml\n")[1].split("```")[0]
    file = read_file(written(tmp_path, example))
    for section in SECTIONS:
        gather(section, {}, file=file, environment={})


def test_the_commands_show_and_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, '[server]\npolicy = "fifo"\n')
    assert run(["config", "check", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: 1 setting, all right\n"
    assert run(["config", "show", "--config", str(path), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {"setting": "server.policy", "value": "fifo", "from": f"{path}:2: server.policy"} in rows
    path.write_text('[server]\npolcy = 1\nguard = "x"\n')
    assert run(["config", "check", str(path)]) == 2
    told = capsys.readouterr().err
    assert f"{path}:2: server.polcy: there is no such key; did you mean policy?" in told
    assert f"colane: {path}:3: server.guard: must be a percentage" in told
    assert run(["server", "--config", str(path)]) == 2
    assert "did you mean policy?" in capsys.readouterr().err


@pytest.mark.parametrize("section", ["agent", "agents"])
@pytest.mark.parametrize("words", [["config", "check"], ["server", "--config"], ["up", "--config"]])
def test_reports_too_seldom_for_the_lease_are_refused_wherever_both_are_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], section: str
) -> None:
    """A scheduler does not read `[agent]`, which is of the agent beside it."""
    if (section, words[0]) == ("agent", "server"):
        return
    path = written(tmp_path, f"[{section}]\nheartbeat = 10.1\n\n[server]\nlease = '30s'\n")
    assert run([*words, str(path)]) == 2
    told = capsys.readouterr().err
    assert told == (
        f"colane: {path}:2: {section}.heartbeat: must be at most 10 s, a third of the scheduler's lease of 30 s, got "
        "10.1: report more often, or start the scheduler with a longer --lease\n"
    )
    path.write_text(f"[{section}]\nheartbeat = 10\n\n[server]\nlease = '30s'\n")
    assert run(["config", "check", str(path)]) == 0


def test_the_file_of_all_users_tells_clients_where_the_scheduler_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable counts before the user's own file, and that before the one of the machine; [server] is not judged."""
    system, home = tmp_path / "etc.toml", tmp_path / "home"
    (home / "colane").mkdir(parents=True)
    system.write_text('[client]\nurl = "https://head:1"\nca_file = "ca.pem"\n[server]\npolcy = 1\n')
    monkeypatch.setattr(places, "SYSTEM_FILE", system)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    environment = {"XDG_CONFIG_HOME": str(home), "COLANE_STATE": str(tmp_path)}
    assert find_url(environment=surroundings(environment)) == "https://head:1"
    assert surroundings(environment)["COLANE_CA_FILE"] == str(tmp_path / "ca.pem")
    (home / "colane" / "colane.toml").write_text('[client]\nurl = "http://other:2"\ntoken_file = "mine"\n')
    (home / "colane" / "mine").write_text("secret\n")
    assert find_url(environment=surroundings(environment)) == "http://other:2"
    assert find_token("http://other:2", surroundings(environment)) == "secret"
    assert surroundings({**environment, "COLANE_URL": "http://third:3"})["COLANE_URL"] == "http://third:3"
    (home / "colane" / "colane.toml").write_text("[client]\nurll = 1\n")
    with pytest.raises(BadUrl, match=r"colane.toml:2: client.urll: there is no such key; did you mean url\?"):
        surroundings(environment)
