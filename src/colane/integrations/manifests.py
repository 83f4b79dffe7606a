"""Files by which other programs start Colane: units of systemd, objects of Kubernetes, a container's recipe."""

from __future__ import annotations

import shlex
from typing import Any, Final, NamedTuple

from colane.model.versions import own_version
from colane.settings.table import DEFAULT_PORT

TOKEN_SECRET: Final = "colane-token"  # noqa: S105 - the name of an object
SERVER_STATE: Final = "/var/lib/colane"
AGENT_STATE: Final = "/var/lib/colane-agent"
DRAIN_S: Final = 90  # a pod that is to go has its node drained for so long; what is left is then killed
GRACE_S: Final = 120

COMMENT: Final = f"""\
# Colane {own_version()} on Kubernetes: one scheduler, and an agent on each node. It asks the cluster for nothing, so
# there are no roles. First make the token that all of them share:
#   kubectl create namespace {{namespace}}
#   kubectl create secret generic {TOKEN_SECRET} -n {{namespace}} --from-literal=token="$(openssl rand -hex 32)"
# Checked against the schemas of Kubernetes, not run.
"""


class K8sAsked(NamedTuple):
    """What the objects are to say."""

    image: str  # of scheduler and agents
    namespace: str  # where they are
    gpus: int  # NVIDIA GPUs that each agent takes of its node; 0 offers its cores as one device
    storage: str  # of the scheduler's volume


def server_unit(program: str) -> str:
    """Return the unit of a scheduler.

    Args:
        program: Path of the command `colane`.
    """
    return (
        "[Unit]\nDescription=Colane scheduler\nWants=network-online.target\nAfter=network-online.target\n\n"
        f"[Service]\nExecStart={_word(program)} server\nRestart=always\nRestartSec=2\nStateDirectory=colane\n"
        "StateDirectoryMode=0755\nLimitNOFILE=65536\nTimeoutStopSec=30\n\n"
        "[Install]\nWantedBy=multi-user.target\n"
    )


def agent_unit(program: str) -> str:
    """Return the unit of an agent: its jobs outlive it, and one that is killed for memory does not end it.

    Args:
        program: Path of the command `colane`.
    """
    from colane.engines.ssh_nodes import unit  # noqa: PLC0415 - what the other manifests have no use for

    return unit("Colane agent", f"{_word(program)} agent", for_user=False)


def containerfile(wheel: str) -> str:
    """Return a recipe for an image of this Colane.

    Args:
        wheel: Name of its wheel, which lies beside the recipe.
    """
    return (
        f"# Colane {own_version()}: scheduler, agents and commands. Jobs run in this image as well: what they need\n"
        "# belongs here, or on volumes. For NVIDIA GPUs the container toolkit brings the driver's libraries.\n"
        "FROM docker.io/library/python:3.11-slim\n"
        "RUN apt-get update && apt-get install -y --no-install-recommends procps && rm -rf /var/lib/apt/lists/*\n"
        f"COPY {wheel} /tmp/\n"
        f"RUN pip install --no-cache-dir /tmp/{wheel} && rm /tmp/{wheel}\n"
        'ENTRYPOINT ["colane"]\n'
        'CMD ["--help"]\n'
    )


def k8s(asked: K8sAsked) -> list[dict[str, Any]]:
    """Return the objects: a scheduler with its volume and service, and agents."""
    return [_service(asked), _scheduler(asked), _agents(asked)]


def _service(asked: K8sAsked) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _named(asked, "colane"),
        "spec": {
            "selector": _labels("scheduler"),
            "ports": [{"name": "http", "port": DEFAULT_PORT, "targetPort": DEFAULT_PORT}],
        },
    }


def _scheduler(asked: K8sAsked) -> dict[str, Any]:
    container = {
        "name": "scheduler",
        "image": asked.image,
        "args": ["server", "--host", "0.0.0.0", "--port", str(DEFAULT_PORT), "--state", SERVER_STATE],  # noqa: S104 - with a token
        "env": [_token()],
        "ports": [{"name": "http", "containerPort": DEFAULT_PORT}],
        "readinessProbe": _health(3),
        "livenessProbe": _health(6),
        "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}},
        "volumeMounts": [{"name": "state", "mountPath": SERVER_STATE}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": _named(asked, "colane"),
        "spec": {
            "serviceName": "colane",
            "replicas": 1,
            "selector": {"matchLabels": _labels("scheduler")},
            "template": {
                "metadata": {"labels": _labels("scheduler")},
                "spec": {
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,  # they would be variables whose names begin as ours do
                    "containers": [container],
                },
            },
            "volumeClaimTemplates": [
                {
                    "metadata": {"name": "state"},
                    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": asked.storage}}},
                }
            ],
        },
    }


def _agents(asked: K8sAsked) -> dict[str, Any]:
    gpus = {"resources": {"limits": {"nvidia.com/gpu": str(asked.gpus)}}} if asked.gpus else {}
    container = {
        "name": "agent",
        "image": asked.image,
        "args": ["agent", "--host", "0.0.0.0", "--state", AGENT_STATE, "--drain-on-stop", f"{DRAIN_S}s"],  # noqa: S104 - with a secret
        "env": [
            _token(),
            {"name": "COLANE_URL", "value": f"http://colane.{asked.namespace}.svc:{DEFAULT_PORT}"},
            {"name": "COLANE_AGENT_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "COLANE_AGENT_DEVICES", "value": "gpu" if asked.gpus else "cpu:1"},
        ],
        **gpus,
        "volumeMounts": [
            {"name": "state", "mountPath": AGENT_STATE},
            {"name": "shared-memory", "mountPath": "/dev/shm"},  # noqa: S108 - the kernel's own place
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": _named(asked, "colane-agent"),
        "spec": {
            "selector": {"matchLabels": _labels("agent")},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
            "template": {
                "metadata": {"labels": _labels("agent")},
                "spec": {
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    # The pod's own first process buries what jobs leave behind.
                    "shareProcessNamespace": True,
                    "terminationGracePeriodSeconds": GRACE_S,
                    "containers": [container],
                    "volumes": [
                        {"name": "state", "hostPath": {"path": AGENT_STATE, "type": "DirectoryOrCreate"}},
                        {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
                    ],
                },
            },
        },
    }


def _health(failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": "/health", "port": DEFAULT_PORT},
        "periodSeconds": 10,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def _token() -> dict[str, Any]:
    return {"name": "COLANE_TOKEN", "valueFrom": {"secretKeyRef": {"name": TOKEN_SECRET, "key": "token"}}}


def _named(asked: K8sAsked, name: str) -> dict[str, Any]:
    part = "agent" if name.endswith("agent") else "scheduler"
    return {"name": name, "namespace": asked.namespace, "labels": _labels(part)}


def _labels(part: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": "colane", "app.kubernetes.io/component": part}


def _word(path: str) -> str:
    """A path as one word of ExecStart."""
    return path if shlex.quote(path) == path else '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'
