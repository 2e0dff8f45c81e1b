"""The container example: an image's file and a Job that go together, and whose command runs.

Neither Docker nor a cluster is needed: hadolint reads the Dockerfile, and kubernetes-validate the Job.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "examples" / "container"
DOCKERFILE = (FOLDER / "Dockerfile").read_text()
KNOWN = {"ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "FROM", "LABEL", "RUN", "USER", "WORKDIR"}


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions and their words; lines that go on are joined."""
    lines = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE)).splitlines()
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines if line.strip())]


def of(name: str) -> list[str]:
    return [rest for known, rest in instructions() if known == name]


@pytest.fixture(scope="module")
def resources() -> dict[str, Any]:
    """The manifest's resources, by kind."""
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    return {one["kind"]: one for one in yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text())}


@pytest.fixture(scope="module")
def pod(resources: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = resources["Job"]["spec"]["template"]["spec"]
    return spec


def words(pod: dict[str, Any]) -> dict[str, str]:
    """The options of torchrun, by name."""
    return dict(arg.split("=", 1) for arg in pod["containers"][0]["args"] if arg.startswith("--"))


# --- the image --------------------------------------------------------------------------------------------------


def test_dockerfile_has_known_instructions_in_their_order() -> None:
    names = [name for name, _ in instructions()]
    assert set(names) <= KNOWN
    assert names[:2] == ["ARG", "FROM"]
    assert of("FROM") == ["python:${PYTHON}-slim"]


def test_image_runs_torchrun_as_a_user_by_number() -> None:
    assert json.loads(of("ENTRYPOINT")[-1]) == ["torchrun"]
    assert json.loads(of("CMD")[-1])[-1] == "ddp.py"
    assert int(of("USER")[-1]) > 0


def test_what_is_copied_is_there_and_let_through() -> None:
    bound = re.findall(r"type=bind,source=(\S+?),", DOCKERFILE)
    sources = [line.split()[0] for line in of("COPY")]
    let_through = (FOLDER / "Dockerfile.dockerignore").read_text().splitlines()
    assert let_through == ["*", "!dist/*.whl", "!examples/ddp.py", "!constraints.txt"]
    assert (bound, sources) == (["dist", "constraints.txt"], ["examples/ddp.py"])  # make wheels makes dist
    assert all((ROOT / source).is_file() for source in (*bound[1:], *sources))


def test_hadolint_has_nothing_to_say() -> None:
    hadolint = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if hadolint is None:
        pytest.skip("hadolint is not installed")
    done = subprocess.run([hadolint, FOLDER / "Dockerfile"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


# --- the Job ----------------------------------------------------------------------------------------------------


def test_the_job_is_what_kubernetes_takes() -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    for resource in yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()):
        validate.validate(resource, validate.latest_version(), strict=True)


def test_service_is_headless_and_names_the_pods(resources: dict[str, Any], pod: dict[str, Any]) -> None:
    service, job = resources["Service"], resources["Job"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"].items() <= job["spec"]["template"]["metadata"]["labels"].items()
    assert pod["subdomain"] == service["metadata"]["name"]
    first = f"{job['metadata']['name']}-0.{service['metadata']['name']}"
    assert words(pod)["--master-addr"] == first


def test_job_has_a_pod_per_node_each_with_its_number(resources: dict[str, Any], pod: dict[str, Any]) -> None:
    spec = resources["Job"]["spec"]
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == spec["parallelism"] == int(words(pod)["--nnodes"]) == 2
    environment = {one["name"]: one for one in pod["containers"][0]["env"]}
    assert words(pod)["--node-rank"] == "$(NODE_RANK)"
    source = environment["NODE_RANK"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert source == "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    (apart,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart["topologyKey"] == "kubernetes.io/hostname"
    assert apart["labelSelector"]["matchLabels"] == spec["template"]["metadata"]["labels"]


def test_pods_use_the_host_s_network_and_no_privilege(pod: dict[str, Any]) -> None:
    assert pod["hostNetwork"] is True
    assert pod["dnsPolicy"] == "ClusterFirstWithHostNet"
    assert pod["restartPolicy"] in ("OnFailure", "Never")
    assert pod["securityContext"] == {"runAsNonRoot": True, "runAsUser": int(of("USER")[-1])}
    (container,) = pod["containers"]
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert "cpu" not in container["resources"]["limits"]
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/dev/shm"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {one["name"] for one in pod["volumes"]}


def test_ports_suffice_for_the_ranks_and_are_settings(pod: dict[str, Any]) -> None:
    from dlcp.transport import Settings

    given = {one["name"]: one["value"] for one in pod["containers"][0]["env"] if "value" in one}
    assert set(given) == {"DLCP_PORT_RANGE"}
    assert Settings(port_range=given["DLCP_PORT_RANGE"]).port_range
    low, high = map(int, given["DLCP_PORT_RANGE"].split("-"))
    assert high - low + 1 >= int(words(pod)["--nproc-per-node"])


@pytest.mark.slow
def test_command_of_the_job_trains(pod: dict[str, Any]) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("dlcp._native", reason="the extension module is not built")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        changes = {"--master-addr": "127.0.0.1", "--master-port": str(free.getsockname()[1])}

    def node(rank: int) -> subprocess.Popen[str]:
        options = words(pod) | changes | {"--node-rank": str(rank)}
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "torch.distributed.run"),
                *(f"{name}={value}" for name, value in options.items()),
                ROOT / "examples" / pod["containers"][0]["args"][-1],
            ],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    nodes = [node(rank) for rank in range(2)]
    try:
        printed = [one.communicate(timeout=200)[0] for one in nodes]
    finally:
        for one in nodes:
            one.kill()
    assert [one.returncode for one in nodes] == [0, 0], printed
    assert re.search(r"^loss \S+$", printed[0], re.MULTILINE), printed
