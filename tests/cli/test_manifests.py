"""Files by which other programs start Colane: what those programs would refuse is seen here, without them running."""

from __future__ import annotations

import copy
import re
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from colane.model.versions import own_version
from colane.settings.table import AGENT
from tests.cli.conftest import Colane
from tests.needs import needs
from tests.test_shown_commands import check

VERSIONS = ("1.28", "1.34", "1.37")
needs("kubernetes_validate", "kubernetes-validate is not installed")


@pytest.fixture
def made(colane: Colane) -> list[dict[str, Any]]:
    said = colane("manifest", "k8s", "--image", "registry/colane:1", "--gpus", "8")
    assert said.code == 0, said
    assert "&id" not in said.out
    return list(yaml.safe_load_all(said.out))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("gpus", ["0", "8"])
def test_objects_fit_the_schemas_of_kubernetes(colane: Colane, version: str, gpus: str) -> None:
    said = colane("manifest", "k8s", "--image", "registry/colane:1", "--gpus", gpus)
    found = list(yaml.safe_load_all(said.out))
    assert [each["kind"] for each in found] == ["Service", "StatefulSet", "DaemonSet"]
    for each in found:
        assert flaws(each, version) == ""


def test_a_misspelt_key_would_be_found(made: list[dict[str, Any]]) -> None:
    wrong = copy.deepcopy(made[2])
    wrong["spec"]["template"]["spec"]["containers"][0]["imagee"] = "x"
    assert "imagee" in flaws(wrong, VERSIONS[-1])


def flaws(thing: dict[str, Any], version: str) -> str:
    """What Kubernetes' schemas say against an object."""
    import kubernetes_validate  # noqa: PLC0415 - every process that runs tests would import it

    try:
        kubernetes_validate.validate(thing, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return str(error)
    return ""


def test_what_pods_start_is_taken_and_they_find_each_other(made: list[dict[str, Any]]) -> None:
    service, scheduler, agents = made
    for each in (scheduler, agents):
        pod = each["spec"]["template"]
        assert pod["metadata"]["labels"] == each["spec"]["selector"]["matchLabels"]
        assert "serviceAccountName" not in pod["spec"]
        (container,) = pod["spec"]["containers"]
        check(list(container["args"]))
    assert service["spec"]["selector"] == scheduler["spec"]["template"]["metadata"]["labels"]
    (agent,) = agents["spec"]["template"]["spec"]["containers"]
    variables = {each["name"]: each.get("value") for each in agent["env"]}
    assert variables["COLANE_URL"] == "http://colane.colane.svc:8642"
    known = {name for setting in AGENT.settings for name in AGENT.variables(setting)}
    assert set(variables) - {"COLANE_TOKEN"} <= known
    assert agent["resources"] == {"limits": {"nvidia.com/gpu": "8"}}
    drained = int(agent["args"][agent["args"].index("--drain-on-stop") + 1].removesuffix("s"))
    assert agents["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] >= drained + 15


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze (Debian: systemd)")
@pytest.mark.parametrize("service", ["server", "agent"])
def test_units_are_what_systemd_takes(colane: Colane, tmp_path: Path, service: str) -> None:
    unit = tmp_path / f"colane-{service}.service"
    unit.write_text(colane("manifest", "systemd", service).out)
    (program, *words) = re.findall(r"^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)[0].split()
    assert Path(program).name == "colane"
    check(words)
    for text, code in ((unit.read_text(), 0), (unit.read_text().replace("ExecStart=", "ExecSart="), 1)):
        unit.write_text(text)
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
        )
        # systemd before 254 does not know the subgroup, says so and goes on: jobs' memory is watched there, not bounded
        known = [line for line in done.stderr.splitlines() if "'DelegateSubgroup'" not in line]
        told = [line for line in known if unit.name in line]
        assert (done.returncode, bool(told)) == (code, bool(code)), done.stderr


def test_the_recipe_of_a_container_has_its_wheel_beside_it(colane: Colane, tmp_path: Path) -> None:
    said = colane("manifest", "container", "--wheel", str(tmp_path))
    assert said.code == 0, said
    (wheel,) = tmp_path.iterdir()
    assert f"COPY {wheel.name} /tmp/" in said.out
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
        assert opened.testzip() is None
    assert {"colane/cli/app.py", "colane/engines/on_host.sh", f"colane-{own_version()}.dist-info/RECORD"} <= set(names)
    assert not [name for name in names if name.endswith((".pyc", ".so"))]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["k8s"], "Missing option '--image'"),
        (["k8s", "--image", "a b"], "--image: must be the name of an image"),
        (["k8s", "--image", "x", "--namespace", "A_b"], "--namespace: must be lower-case letters, digits and dashes"),
        (["k8s", "--image", "x", "--storage", "much"], "--storage: must be a size as Kubernetes takes it"),
        (["k8s", "--image", "x", "--gpus", "-1"], "--gpus"),
        (["systemd"], "Missing argument"),
        (["systemd", "sever"], "sever"),
    ],
)
def test_what_makes_no_sense_is_one_line(colane: Colane, words: list[str], said: str) -> None:
    found = colane("manifest", *words)
    assert found.code == 2, found
    assert said in found.err
    assert len(found.err.splitlines()) == 1


def test_a_folder_that_is_not_there_is_one_line(colane: Colane) -> None:
    found = colane("manifest", "container", "--wheel", "/nowhere/at/all")
    assert (found.code, found.err) == (1, "colane: --wheel /nowhere/at/all: No such file or directory\n")
