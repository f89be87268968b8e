"""Tests of deploy/kubernetes against the schemas, the image, the server and each other."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from app.metrics.collector import FAMILIES
from app.settings import Settings, variable
from tests.deploy.kustomize import Object, containers, documents, render
from tests.docs.pages import ROOT
from tests.patience import PATIENCE_S

FOLDER = ROOT / "deploy/kubernetes"
PLANS = [FOLDER / "base", *sorted((FOLDER / "overlays").iterdir())]
VERSION = kubernetes_validate.latest_version()
# Seconds of the grace period beyond those that the settings need.
SPARE_S = 5

every_plan = pytest.mark.parametrize("plan", PLANS, ids=lambda path: path.name)


@cache
def rendered(plan: Path) -> list[Object]:
    return render(plan)


def one(plan: Path, kind: str) -> Object:
    (found,) = (each for each in rendered(plan) if each["kind"] == kind)
    return found


def pod(plan: Path) -> Object:
    spec: Object = one(plan, "Deployment")["spec"]["template"]["spec"]
    return spec


def server(plan: Path) -> Object:
    (found,) = pod(plan)["containers"]
    assert found["name"] == "server"
    return dict(found)


def environment(container: Object) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container["env"] if "value" in each}


def settings(container: Object) -> Settings:
    """Return the settings that the server would read."""
    return Settings.from_env(environment(container))


def seconds(container: Object) -> float:
    """Return the longest time from the decision to end a pod until its server has ended."""
    own = settings(container)
    stop = container.get("lifecycle", {}).get("preStop", {"sleep": {"seconds": 0}})
    return float(stop["sleep"]["seconds"]) + own.drain_delay_s + own.shutdown_timeout_s


def quantity(text: str) -> int:
    number, unit = re.fullmatch(r"(\d+)(Mi|Gi)?", text).groups()  # type: ignore[union-attr]
    return int(number) * {"Mi": 2**20, "Gi": 2**30, None: 1}[unit]


@every_plan
def test_the_newest_kubernetes_accepts_every_object(plan: Path) -> None:
    for found in rendered(plan):
        kubernetes_validate.validate(found, VERSION, strict=True)


def test_the_validator_rejects_a_misspelt_key() -> None:
    (service,) = documents(FOLDER / "base/service.yaml")
    service["spec"]["port"] = 80
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(service, VERSION, strict=True)


@pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="needs kubectl; what the tests render by themselves is tested"
)
@every_plan
def test_kubectl_renders_the_same_objects(plan: Path) -> None:
    done = subprocess.run(
        ["kubectl", "kustomize", str(plan)], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    found = [each for each in yaml.safe_load_all(done.stdout) if each is not None]
    assert by_name(found) == by_name(rendered(plan))


def by_name(objects: list[Object]) -> dict[tuple[str, str], Object]:
    return {(each["kind"], each["metadata"]["name"]): each for each in objects}


@every_plan
def test_pods_meet_the_restricted_security_standard(plan: Path) -> None:
    spec = pod(plan)
    assert spec["automountServiceAccountToken"] is False and spec["enableServiceLinks"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for each in containers(one(plan, "Deployment")):
        assert each["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


@every_plan
def test_a_pod_has_guaranteed_quality_of_service_and_whole_cores(plan: Path) -> None:
    for each in containers(one(plan, "Deployment")):
        assert each["resources"]["requests"] == each["resources"]["limits"]
        assert each["resources"]["limits"].keys() >= {"cpu", "memory"}
    assert server(plan)["resources"]["limits"]["cpu"].isdigit()


@every_plan
def test_image_and_manifests_agree(plan: Path) -> None:
    stage = (ROOT / "Dockerfile").read_text().rpartition("\nFROM ")[2]
    said = dict(re.findall(r"^ {4}(\w+)=(\S+)(?: \\)?$", stage, re.M))
    user, group = re.findall(r"^USER (\d+):(\d+)$", stage, re.M)[0]
    context, own = pod(plan)["securityContext"], server(plan)
    assert [context[key] for key in ("runAsUser", "runAsGroup", "fsGroup")] == [int(user), int(group), int(group)]
    assert own["ports"] == [{"name": "http", "containerPort": int(said["PNNX_SERVE_PORT"]), "protocol": "TCP"}]
    mounts = {each["mountPath"] for each in own["volumeMounts"]}
    # The root is read-only, so writable folders are volumes.
    assert {said["HOME"], said["PNNX_SERVE_CACHE_DIR"]} <= mounts
    assert environment(own)["PNNX_SERVE_STORE"] == "/models" and " /models\n" in stage
    assert "command" not in own and 'ENTRYPOINT ["pnnx-serve"]' in stage


@every_plan
def test_settings_of_the_containers_exist(plan: Path) -> None:
    for each in containers(one(plan, "Deployment")):
        if each["image"].startswith("registry.example/pnnx-serve:"):
            settings(each)


@every_plan
def test_a_pod_ends_before_it_is_killed(plan: Path) -> None:
    own = settings(server(plan))
    assert seconds(server(plan)) + SPARE_S <= pod(plan)["terminationGracePeriodSeconds"]
    assert own.request_timeout_s <= own.shutdown_timeout_s


@every_plan
def test_the_startup_probe_allows_time_to_compile_before_liveness(plan: Path) -> None:
    own = server(plan)
    start, alive, ready = own["startupProbe"], own["livenessProbe"], own["readinessProbe"]
    paths = [each["httpGet"]["path"] for each in (start, alive, ready)]
    assert paths == ["/health/ready", "/health/live", "/health/ready"]
    patience_s = start["periodSeconds"] * start["failureThreshold"]
    assert settings(own).load_timeout_s < patience_s < one(plan, "Deployment")["spec"]["progressDeadlineSeconds"]
    # Readiness probes fail before the port closes.
    assert ready["periodSeconds"] * ready["failureThreshold"] < settings(own).drain_delay_s


@every_plan
def test_the_init_container_compiles_for_the_settings_of_the_server(plan: Path) -> None:
    fills = pod(plan)["initContainers"][-1]
    own = server(plan)
    assert fills["args"] == ["compile", "--all"] and fills["image"] == own["image"]
    assert environment(fills).items() <= environment(own).items()
    assert fills["volumeMounts"] == own["volumeMounts"] and fills["resources"] == own["resources"]


@every_plan
def test_the_cache_fits_its_volume(plan: Path) -> None:
    (volume,) = (each for each in pod(plan)["volumes"] if each["name"] == "cache")
    if "emptyDir" in volume:
        size = volume["emptyDir"]["sizeLimit"]
    else:
        claims = {each["metadata"]["name"]: each for each in rendered(plan) if each["kind"] == "PersistentVolumeClaim"}
        claim = claims[volume["persistentVolumeClaim"]["claimName"]]
        size = claim["spec"]["resources"]["requests"]["storage"]
    assert settings(server(plan)).cache_max_bytes < quantity(size)


@every_plan
def test_everything_that_selects_pods_selects_these(plan: Path) -> None:
    deployment = one(plan, "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"].items()
    selectors = [
        deployment["spec"]["selector"]["matchLabels"],
        one(plan, "Service")["spec"]["selector"],
        one(plan, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        one(plan, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        *(each["labelSelector"]["matchLabels"] for each in pod(plan)["topologySpreadConstraints"]),
    ]
    assert all(each.items() <= labels for each in selectors)
    (port,) = one(plan, "Service")["spec"]["ports"]
    assert port["targetPort"] == server(plan)["ports"][0]["name"]


@pytest.mark.parametrize(
    "plan", [each for each in PLANS if each.name.startswith(("hpa", "production"))], ids=lambda p: p.name
)
def test_only_the_autoscaler_sets_the_number_of_replicas(plan: Path) -> None:
    assert "replicas" not in one(plan, "Deployment")["spec"]
    target = one(plan, "HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("Deployment", one(plan, "Deployment")["metadata"]["name"])


def test_the_autoscaler_uses_a_metric_that_the_adapter_derives_from_existing_ones() -> None:
    (values,) = documents(FOLDER / "components/hpa-inflight/prometheus-adapter.yaml")
    (rule,) = values["rules"]["custom"]
    (metric,) = one(FOLDER / "overlays/hpa-inflight", "HorizontalPodAutoscaler")["spec"]["metrics"]
    assert metric["pods"]["metric"]["name"] == rule["name"]["as"]
    named = set(re.findall(r"\bpnnx_serve_\w+", rule["seriesQuery"] + rule["metricsQuery"]))
    assert named == {"pnnx_serve_running_requests", "pnnx_serve_queued_requests"} <= FAMILIES.keys()


@every_plan
def test_the_network_policy_allows_scrapes_from_other_namespaces_and_downloads(plan: Path) -> None:
    """Network policies never block the kubelet of the pod's own node."""
    policy, own = one(plan, "NetworkPolicy")["spec"], server(plan)
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    (ingress,) = policy["ingress"]
    assert [each["port"] for each in ingress["ports"]] == [own["ports"][0]["name"]]
    # Prometheus scrapes the port of the annotations, from the namespace that the policy allows.
    annotations = one(plan, "Deployment")["spec"]["template"]["metadata"]["annotations"]
    assert int(annotations["prometheus.io/port"]) == own["ports"][0]["containerPort"]
    (namespaces,) = (each["namespaceSelector"] for each in ingress["from"] if "namespaceSelector" in each)
    assert "monitoring" in namespaces["matchExpressions"][0]["values"]
    # Only the fetching container sends requests: DNS and HTTPS.
    out = {(each["port"], each["protocol"]) for rule in policy["egress"] for each in rule["ports"]}
    fetches = any(each["name"] == "fetch" for each in pod(plan)["initContainers"])
    assert out == ({(53, "UDP"), (53, "TCP"), (443, "TCP")} if fetches else set())
    if fetches:
        assert one(plan, "ConfigMap")["data"]["endpoint"].startswith("https://")


def fetch(tmp_path: Path, source: dict[str, str], **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the script of the init container of models-s3 with a fake rclone that copies these files."""
    (container,) = (
        each for each in pod(FOLDER / "overlays/s3-init-container")["initContainers"] if each["name"] == "fetch"
    )
    (script,) = container["args"]
    store, commands = tmp_path / "models", tmp_path / "bin"
    for folder in (store, commands):
        folder.mkdir()
    there = tmp_path / "there"
    there.mkdir()
    for name, text in source.items():
        (there / name).write_text(text)
    (commands / "rclone").write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/asked\ncp -r {there}/. {store}\n')
    (commands / "rclone").chmod(0o755)
    script = script.replace("/models", str(store)).replace("/tmp/sums", str(tmp_path / "sums"))
    environ = {"PATH": f"{commands}:{os.environ['PATH']}", "RCLONE_CONFIG_STORE_ENDPOINT": "e", "SOURCE_PATH": "p"}
    return subprocess.run(
        [*container["command"], script], env={**environ, "SOURCE_SUMS": "", **variables},
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


WEIGHTS = "7\n"
SUMS = f"{digest(WEIGHTS)}  model.pnnx.bin\n"
SUMS_OF_SUMS = digest(SUMS)


@pytest.mark.parametrize(
    ("source", "sums", "said"),
    [
        ({"model.pnnx.bin": WEIGHTS, "SHA256SUMS": SUMS}, SUMS_OF_SUMS, None),
        ({"model.pnnx.bin": WEIGHTS}, "", None),
        ({"model.pnnx.bin": "8\n", "SHA256SUMS": SUMS}, SUMS_OF_SUMS, "model.pnnx.bin: FAILED"),
        ({"model.pnnx.bin": WEIGHTS, "SHA256SUMS": SUMS}, "0" * 64, f"SHA256SUMS: found {SUMS_OF_SUMS}, expected 000"),
        ({}, "", "nothing is at p: expected a store of models"),
    ],
    ids=["digests", "without", "changed", "other sums", "empty"],
)
def test_fetched_models_are_checked_against_their_digests(
    tmp_path: Path, source: dict[str, str], sums: str, said: str | None
) -> None:
    done = fetch(tmp_path, source, SOURCE_SUMS=sums)
    assert (done.returncode == 0) == (said is None), done.stderr
    assert said is None or said in done.stderr
    assert (tmp_path / "asked").read_text().split()[-2:] == ["store:p", str(tmp_path / "models")]


def test_settings_named_in_this_folder_are_documented() -> None:
    named: set[str] = set()
    for path in FOLDER.rglob("*.yaml"):
        named |= set(re.findall(r"\bPNNX_SERVE_\w+", path.read_text(encoding="utf-8")))
    assert named and named <= {variable(name) for name in Settings.model_fields}


def test_no_yaml_file_repeats_a_key() -> None:
    """YAML parsers silently take the last of two equal keys."""

    class Strict(yaml.SafeLoader):
        pass

    def mapping(loader: Any, node: Any) -> dict[Any, Any]:
        keys = [loader.construct_object(key) for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"{node.start_mark}: {keys}"
        return yaml.SafeLoader.construct_mapping(loader, node, deep=True)

    Strict.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)
    for path in (ROOT / "deploy").rglob("*.yaml"):
        list(yaml.load_all(path.read_text(encoding="utf-8"), Strict))
