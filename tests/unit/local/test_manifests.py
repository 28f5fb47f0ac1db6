"""What the control plane is told: simulated nodes, certificates, audit policy, flags."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID

from infra.local import audit, components, kueue, kwok, pki
from infra.local.embedded import kwok_pool
from infra.local.kwok import KwokPool
from infra.local.state import State
from stacks.kinds import JOB_KINDS
from stacks.labels import FLAVOR_LABEL, GPU_LABEL
from stacks.load import load_file
from tests.conftest import ROOT


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> pki.Pki:
    return pki.make(tmp_path_factory.mktemp("state") / "pki")


def test_a_pool_becomes_nodes_with_its_labels_taints_and_gpus() -> None:
    taint = {"key": "gpufleet.dev/burst", "value": "true", "effect": "NoSchedule"}
    pool = KwokPool("burst", ("b-0", "b-1"), {"zone": "a"}, (taint,), 8, 192, 2048, {"nvidia.com/mig-1g.5gb": 7})
    first, second = kwok.nodes([pool])
    assert (first["metadata"]["name"], second["metadata"]["name"]) == ("b-0", "b-1")
    assert first["metadata"]["labels"]["zone"] == "a"
    assert first["metadata"]["labels"][kwok.SIMULATED_LABEL] == "true"
    assert first["spec"] == {"taints": [taint]}
    assert first["status"]["allocatable"] == {
        "cpu": "192",
        "memory": "2048Gi",
        "pods": "250",
        "nvidia.com/gpu": "8",
        "nvidia.com/mig-1g.5gb": "7",
    }


def test_two_pools_cannot_share_a_node() -> None:
    with pytest.raises(ValueError, match="node name 'n' is taken"):
        kwok.nodes([KwokPool("a", ("n",)), KwokPool("b", ("n",))])


def test_no_pools_are_no_nodes() -> None:
    assert kwok.nodes([]) == []


def test_stages_are_driven_by_our_annotations_only() -> None:
    text = yaml.safe_dump_all(kwok.configuration(), width=10_000)
    for name in ("sim-start-delay", "sim-run-seconds", "sim-exit-code", "sim-checkpoint-seconds"):
        assert f"gpufleet.dev/{name}" in text
    assert "PREFIX" not in text


def test_the_authority_satisfies_kueues_rotator(keys: pki.Pki) -> None:
    authority = x509.load_pem_x509_certificate(keys.authority.read_bytes())
    names = authority.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["kueue-ca"]
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    server = x509.load_pem_x509_certificate((keys.webhook_directory / "tls.crt").read_bytes())
    dns = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(x509.DNSName)
    assert "kueue-webhook-service.kueue-system.svc" in dns
    server.verify_directly_issued_by(authority)


def test_only_the_owner_can_read_keys(keys: pki.Pki) -> None:
    assert {path.stat().st_mode & 0o077 for path in keys.root.rglob("*.key")} == {0}
    assert keys.root.stat().st_mode & 0o777 == 0o700


def test_the_administrator_is_in_the_group_that_may_do_everything(keys: pki.Pki) -> None:
    admin = x509.load_pem_x509_certificate(keys.certificate("admin").read_bytes())
    assert admin.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)[0].value == "system:masters"


def test_a_complete_set_is_kept_and_an_interrupted_one_is_made_anew(tmp_path: Path) -> None:
    first = pki.make(tmp_path / "pki").authority.read_bytes()
    assert pki.make(tmp_path / "pki").authority.read_bytes() == first
    (tmp_path / "pki" / "complete").unlink()
    (tmp_path / "pki.building").mkdir()
    assert pki.make(tmp_path / "pki").authority.read_bytes() != first


def test_the_audit_log_has_bindings_and_verdicts_and_no_reads() -> None:
    policy = audit.policy()
    assert policy["omitStages"] == ["RequestReceived"]
    assert policy["rules"][0] == {"level": "None", "verbs": ["get", "list", "watch"]}
    assert policy["rules"][-1] == {"level": "None"}
    by_level = {rule["level"]: rule for rule in policy["rules"] if "resources" in rule}
    assert "workloads/status" in by_level["RequestResponse"]["resources"][0]["resources"]
    logged = {(one["group"], name) for one in by_level["Request"]["resources"] for name in one["resources"]}
    assert logged == {(kind.group, kind.plural) for kind in JOB_KINDS}


def test_every_server_listens_on_loopback_only(tmp_path: Path, keys: pki.Pki) -> None:
    state = State.at(tmp_path, "local")
    ports = {name: 20000 + index for index, name in enumerate(components.PORT_NAMES)}
    parts = components.build(state, keys, ports, {name: Path("/bin", name) for name in components.BINARIES})
    assert list(parts) == list(components.NAMES)
    flags = [flag for part in parts.values() for flag in part.command]
    assert not [flag for flag in flags if "=0.0.0.0" in flag or "//0.0.0.0" in flag or "//:" in flag]
    assert "--bind-address=127.0.0.1" in flags
    configuration = kueue.configuration(ports, keys)
    assert configuration["webhook"]["host"] == "127.0.0.1"
    assert configuration["metrics"]["bindAddress"].startswith("127.0.0.1:")


def test_the_kubeconfig_is_self_contained_and_private(tmp_path: Path, keys: pki.Pki) -> None:
    state = State.at(tmp_path, "local")
    components.write_configuration(state, keys, dict.fromkeys(components.PORT_NAMES, 20000))
    content = yaml.safe_load(state.kubeconfig.read_text())
    assert content["current-context"] == "gpufleet-local"
    assert str(tmp_path) not in state.kubeconfig.read_text()
    assert state.kubeconfig.stat().st_mode & 0o077 == 0


def test_webhooks_of_kinds_that_cannot_burst_are_left_out(tmp_path: Path) -> None:
    service = {"service": {"name": "s", "namespace": "n", "path": "/p"}}
    rules = {
        "mine": ("batch", "jobs"),
        "other": ("workload.codeflare.dev", "appwrappers"),
        "sibling": ("kubeflow.org", "tfjobs"),
        "torch": ("kubeflow.org", "pytorchjobs/status"),
        "core": ("kueue.x-k8s.io", "workloads"),
    }
    webhooks = [
        {"name": name, "clientConfig": service, "rules": [{"apiGroups": [group], "resources": [resource]}]}
        for name, (group, resource) in rules.items()
    ]
    (tmp_path / "webhooks.yaml").write_text(yaml.safe_dump({"metadata": {"name": "m"}, "webhooks": webhooks}))
    (made,) = kueue._webhooks(tmp_path / "webhooks.yaml", "https://127.0.0.1:1", "Q0E=")
    assert made["metadata"]["name"] == "kueue-m"
    assert [webhook["name"] for webhook in made["webhooks"]] == ["mine", "torch", "core"]
    assert made["webhooks"][0]["clientConfig"] == {"url": "https://127.0.0.1:1/p", "caBundle": "Q0E="}


def test_kueue_manages_every_kind_that_can_burst(keys: pki.Pki) -> None:
    made = kueue.configuration(dict.fromkeys(components.PORT_NAMES, 1), keys)
    assert made["integrations"]["frameworks"] == [kind.framework for kind in JOB_KINDS]


def test_topology_and_fair_sharing_are_off_unless_asked_for(keys: pki.Pki) -> None:
    ports = dict.fromkeys(components.PORT_NAMES, 1)
    plain = kueue.configuration(ports, keys)
    asked = kueue.configuration(ports, keys, kueue.KueueOptions(topology=True, fair_sharing=True))
    assert plain["featureGates"]["TopologyAwareScheduling"] is False
    assert "fairSharing" not in plain
    assert not [gate for gate in asked["featureGates"] if gate.startswith(("TAS", "Topology"))]
    assert asked["fairSharing"]["preemptionStrategies"]


def test_pretended_cloud_nodes_carry_flavor_and_gpu_model() -> None:
    pools = load_file(ROOT / "stacks" / "Pulumi.local.yaml").pools
    labels = kwok_pool("burst-spot", pools["burst-spot"]).labels
    assert (labels[FLAVOR_LABEL], labels[GPU_LABEL]) == ("h100-aws-spot", "h100")
