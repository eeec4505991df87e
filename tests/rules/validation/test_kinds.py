"""Rules of single kinds that the recorded answers do not touch, in the words that Kubernetes has for them."""

from typing import Any

import pytest

from kubeqos.model import names
from kubeqos.rules.admission import admit
from kubeqos.rules.requests import AdmissionRequest, Admitted, ClusterFacts, Operation, RequestRefused
from kubeqos.rules.validation import warnings
from tests.rules.validation.test_validation import made, messages, pod

META = {"name": "x", "namespace": "n"}
LABELS = {"app": "x"}
TEMPLATE = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
MISMATCH = "`selector` does not match template `labels`"


def workload(kind: str, **spec: Any) -> list[str]:
    return messages(kind, made(kind, {"metadata": META, "spec": {"template": TEMPLATE, **spec}}, "apps"))


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet"])
def test_no_selector_selects_nothing(kind: str) -> None:
    assert workload(kind) == [
        "spec.selector: Required value",
        f'spec.template.metadata.labels: Invalid value: {{"app":"x"}}: {MISMATCH}',
    ]
    assert workload(kind, selector={}) == ["spec.selector: Invalid value: {}: empty selector is invalid for deployment"]
    assert workload(kind, selector={"matchLabels": LABELS}) == []


def test_behind_a_selector_without_sense_nothing_is_judged() -> None:
    wrong = {"matchExpressions": [{"key": "a", "operator": "Near"}]}
    assert workload("Deployment", selector=wrong, template={"spec": {}}) == [
        'spec.selector.matchExpressions[0].operator: Invalid value: "Near": not a valid selector operator',
        'spec.selector: Invalid value: {"matchExpressions":[{"key":"a","operator":"Near"}]}: invalid label selector',
    ]


def event(namespace: str, **fields: Any) -> list[str]:
    return messages("Event", made("Event", {"metadata": {"name": "e", "namespace": namespace}, **fields}))


def test_an_event_is_where_its_object_is() -> None:
    elsewhere = 'involvedObject.namespace: Invalid value: "other": does not match event.namespace'
    nowhere = 'involvedObject.namespace: Invalid value: "": does not match event.namespace'
    assert event("n", involvedObject={"namespace": "n"}) == []
    assert event("n", involvedObject={"namespace": "other"}) == [elsewhere]
    assert event("default", involvedObject={"kind": "Node"}) == []
    assert event("kube-system", involvedObject={"kind": "Node"}) == [nowhere]


def test_an_event_of_the_newer_form_must_say_who_saw_what() -> None:
    timed = {"eventTime": "2026-01-01T00:00:00.000000Z", "involvedObject": {"kind": "Node"}}
    told = {"reportingComponent": "kubeqos.example/agent", "reportingInstance": "n1", "action": "a", "reason": "r"}
    assert event("kube-system", **timed, **told) == []
    assert [text.partition(":")[0] for text in event("default", **timed)] == [
        "reportingComponent", "reportingComponent", "reportingComponent", "reportingInstance", "action", "reason",
    ]  # fmt: skip
    assert event("default", **timed, **{**told, "action": "a" * 129}) == [
        'action: Invalid value: "": can have at most 128 characters'
    ]
    assert event("default", **timed, **told, message="m" * 1025) == [
        'message: Invalid value: "": can have at most 1024 characters'
    ]


def test_a_budget_is_shown_as_kubernetes_keeps_it() -> None:
    raw = made("PodDisruptionBudget", {"metadata": META, "spec": {"minAvailable": 1, "maxUnavailable": "5%"}}, "policy")
    [both] = messages("PodDisruptionBudget", raw)
    shown = '{"MinAvailable":1,"Selector":null,"MaxUnavailable":"5%","UnhealthyPodEvictionPolicy":null}'
    assert both == f"spec: Invalid value: {shown}: minAvailable and maxUnavailable cannot be both set"


def test_a_role_that_gathers_others_says_which() -> None:
    raw = made("ClusterRole", {"metadata": {"name": "x"}, "aggregationRule": {}}, "rbac.authorization.k8s.io")
    why = "at least one clusterRoleSelector required if aggregationRule is non-nil"
    assert messages("ClusterRole", raw) == [f"aggregationRule.clusterRoleSelectors: Required value: {why}"]


def test_a_docker_configuration_must_be_json() -> None:
    data = {".dockerconfigjson": "eA=="}
    raw = made("Secret", {"metadata": META, "type": "kubernetes.io/dockerconfigjson", "data": data})
    why = "invalid character 'x' looking for beginning of value"
    assert messages("Secret", raw) == [
        f'data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": {why}'
    ]  # fmt: skip


@pytest.mark.parametrize(("port", "fine"), [(30000, True), (32767, True), (80, False), (32768, False)])
def test_node_ports_have_a_range(port: int, fine: bool) -> None:
    spec = {"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]}
    why = "provided port is not in the valid range. The range of valid ports is 30000-32767"
    wanted = [] if fine else [f"spec.ports[0].nodePort: Invalid value: {port}: {why}"]
    assert messages("Service", made("Service", {"metadata": META, "spec": spec})) == wanted


def test_a_service_by_another_name_has_no_address() -> None:
    spec = {"type": "ExternalName", "externalName": "a.b", "clusterIP": "None"}
    raw = made("Service", {"metadata": META, "spec": spec})
    assert messages("Service", raw) == ["spec.clusterIPs: Forbidden: may not be set for ExternalName services"]


def test_the_address_of_a_service_is_the_first_of_its_addresses() -> None:
    raw = made("Service", {"metadata": META, "spec": {"clusterIP": "None"}})
    assert raw["spec"]["clusterIPs"] == ["None"]
    assert messages("Service", raw) == []


def test_half_a_byte_of_storage() -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1500m"}}}
    raw = made("PersistentVolumeClaim", {"metadata": META, "spec": spec})
    assert messages("PersistentVolumeClaim", raw) == []
    assert warnings("PersistentVolumeClaim", raw) == [
        'spec.resources.requests[storage]: fractional byte value "1500m" is invalid, must be an integer'
    ]


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        (
            {"hostNetwork": True, "securityContext": {"sysctls": [{"name": "net.ipv4.x", "value": "1"}]}},
            "spec.securityContext.sysctls[0].name: Invalid value: \"net.ipv4.x\": may not be specified when "
            "'hostNetwork' is true",
        ),
        (
            {"hostIPC": True, "securityContext": {"sysctls": [{"name": "kernel/shmmax", "value": "1"}]}},
            "spec.securityContext.sysctls[0].name: Invalid value: \"kernel/shmmax\": may not be specified when "
            "'hostIPC' is true",
        ),
        (
            {"securityContext": {"appArmorProfile": {"type": "Localhost", "localhostProfile": " "}}},
            'spec.securityContext.appArmorProfile.localhostProfile: Invalid value: " ": must not be padded with '
            "whitespace",
        ),
        (
            {"volumes": [{"name": "v", "image": {"reference": "x", "pullPolicy": "Sometimes"}}]},
            'spec.volumes[0].image.pullPolicy: Unsupported value: "Sometimes": supported values: "Always", '
            '"IfNotPresent", "Never"',
        ),
        (
            {"volumes": [{"name": "v", "csi": {"driver": "a" * 64}}]},
            "spec.volumes[0].csi.driver: Too long: may not be more than 63 bytes",
        ),
        (
            {"volumes": [{"name": "v", "csi": {"driver": "Bad_"}}]},
            f'spec.volumes[0].csi.driver: Invalid value: "Bad_": {names.dns_subdomain("bad_")[0]}',
        ),
        (
            {"volumes": [{"name": "v", "csi": {"driver": ""}}]},
            f'spec.volumes[0].csi.driver: Invalid value: "": {names.dns_subdomain("")[0]}',
        ),
        (
            {"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["Mine"]}}}}]},
            "spec.volumes[0].ephemeral.volumeClaimTemplate.spec.resources[storage]: Required value",
        ),
    ],
)  # fmt: skip
def test_rare_parts_of_a_pod(spec: dict[str, Any], wanted: str) -> None:
    assert wanted in messages("Pod", pod(**spec))


@pytest.mark.parametrize(
    ("status", "wanted"),
    [
        ({"podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}, []),
        (
            {"podIPs": [{"ip": "x"}]},
            ['status.podIPs[0]: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)'],
        ),
        (
            {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.1"}]},
            [
                'status.podIPs: Invalid value: [{"IP":"10.0.0.1"},{"IP":"10.0.0.1"}]: '
                "may specify no more than one IP for each IP family",
                'status.podIPs[1]: Duplicate value: {"IP":"10.0.0.1"}',
            ],
        ),
        (
            {"hostIPs": [{"ip": "10.0.0.1"}]},
            ['status.hostIPs[0].ip: Invalid value: "10.0.0.1": must be equal to `hostIP`'],
        ),
        (
            {"resourceClaimStatuses": [{"name": "cores"}]},
            [
                'status.resourceClaimStatuses[0].name: Invalid value: "cores": '
                "must match the name of an entry in `spec.resourceClaims`"
            ],
        ),
    ],
)
def test_what_a_node_may_say_about_a_pod(status: dict[str, Any], wanted: list[str]) -> None:
    old = pod()
    new = {**old, "status": {**old["status"], **status}}
    assert messages("Pod", new, old=old, operation="update", subresource="status") == wanted


def create(spec: dict[str, Any], around: ClusterFacts) -> Admitted | RequestRefused:
    new = {"metadata": {"name": "p", "namespace": "n"}, "spec": {"containers": TEMPLATE["spec"]["containers"], **spec}}
    return admit(AdmissionRequest(Operation.CREATE, "pods", "Pod", "", "n", "", None, new), around)


def test_a_runtime_class_that_is_not_there() -> None:
    """A sandbox that was asked for is a promise; a manifest that is only checked is for a cluster we do not know."""
    refused = create({"runtimeClassName": "kata"}, ClusterFacts(runtime_classes={}))
    assert isinstance(refused, RequestRefused)
    assert refused.message == 'pods "p" is forbidden: pod rejected: RuntimeClass "kata" not found'
    assert isinstance(create({"runtimeClassName": "kata"}, ClusterFacts()), Admitted)
    refused = create({"overhead": {"cpu": "1"}}, ClusterFacts(runtime_classes={}))
    assert isinstance(refused, RequestRefused)
    assert "Pod Overhead set without corresponding RuntimeClass defined Overhead" in refused.message


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ({"fc": {}}, ["fc.targetWWNs: Required value: must specify either targetWWNs or wwids, but not both"]),
        ({"fc": {"wwids": ["a"]}}, []),
        ({"fc": {"targetWWNs": ["a"]}}, ["fc.lun: Required value: lun is required if targetWWNs is specified"]),
        (
            {"fc": {"targetWWNs": ["a"], "lun": 256}},
            ["fc.lun: Invalid value: 256: must be between 0 and 255, inclusive"],
        ),
        ({"flocker": {}}, ["flocker: Required value: one of datasetName and datasetUUID is required"]),
        ({"flocker": {"datasetName": "a/b"}}, ["flocker.datasetName: Invalid value: \"a/b\": must not contain '/'"]),
        ({"quobyte": {"registry": "a:1,[::1]:2", "volume": "v"}}, []),
        (
            {"quobyte": {"registry": "a", "volume": "v"}},
            ['quobyte.registry: Invalid value: "a": must be a host:port pair or multiple pairs separated by commas'],
        ),
        (
            {"azureDisk": {"diskName": "d", "diskURI": "https://d", "kind": "Mine"}},
            ['azureDisk.kind: Unsupported value: "Mine": supported values: "Dedicated", "Managed", "Shared"'],
        ),
        ({"storageos": {}}, ["storageos.volumeName: Required value"]),
        ({"storageos": {"volumeName": "v", "secretRef": {}}}, ["storageos.secretRef.name: Required value"]),
        ({"gcePersistentDisk": {}}, ["persistentDisk.pdName: Required value"]),
        (
            {"awsElasticBlockStore": {"volumeID": "v", "partition": 256}},
            ["awsElasticBlockStore.partition: Invalid value: 256: must be between 1 and 255, inclusive"],
        ),
        (
            {"gitRepo": {"repository": "r", "directory": "/d"}},
            ['gitRepo.directory: Invalid value: "/d": must be a relative path'],
        ),
    ],
)
def test_storage_that_kubernetes_once_had_drivers_for(source: dict[str, Any], wanted: list[str]) -> None:
    found = messages("Pod", pod(volumes=[{"name": "v", **source}]))
    assert found == [f"spec.volumes[0].{one}" for one in wanted]


OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "u", "controller": True}


def test_an_owner_that_is_named_twice_counts_once() -> None:
    meta = {
        "name": "p",
        "namespace": "n",
        "ownerReferences": [OWNER, OWNER, {**OWNER, "uid": "v", "controller": False}],
    }
    new = {"metadata": meta, "spec": TEMPLATE["spec"]}
    admitted = admit(AdmissionRequest(Operation.CREATE, "pods", "Pod", "", "n", "", None, new), ClusterFacts())
    assert isinstance(admitted, Admitted)
    assert [owner["uid"] for owner in new["metadata"]["ownerReferences"]] == ["u", "v"]
    assert [one.rpartition(": ")[2] for one in admitted.warnings] == ["u"]


def test_two_names_for_one_owner_are_two_owners() -> None:
    found = messages("ConfigMap", {"metadata": {**META, "ownerReferences": [OWNER, {**OWNER, "name": "y"}]}})
    assert len(found) == 1 and found[0].endswith('Found "true" in references for Pod/x and Pod/y')


@pytest.mark.parametrize("version", ["a/", "a/b/c"])
def test_the_version_of_an_owner_must_be_one(version: str) -> None:
    found = messages("ConfigMap", {"metadata": {**META, "ownerReferences": [{**OWNER, "apiVersion": version}]}})
    assert found == [f'metadata.ownerReferences[0].apiVersion: Invalid value: "{version}": version must not be empty']


def test_a_config_map_that_is_too_large_is_refused_as_a_whole() -> None:
    found = messages("ConfigMap", {"metadata": META, "data": {"a": "x" * (1 << 20), "b": "y"}})
    assert found == ["[]: Too long: may not be more than 1048576 bytes"]


def workload_status(kind: str, status: dict[str, Any], before: dict[str, Any] | None = None) -> list[str]:
    spec = {"template": TEMPLATE, "selector": {"matchLabels": LABELS}}
    raw = made(kind, {"metadata": META, "spec": spec}, "apps")
    old = {**raw, "status": before or {}}
    return messages(kind, {**raw, "status": status}, old=old, operation="update", subresource="status")


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet"])
def test_a_part_of_the_replicas_is_not_more_than_all_of_them(kind: str) -> None:
    assert workload_status(kind, {"replicas": 3, "readyReplicas": 2, "availableReplicas": 2}) == []
    assert workload_status(kind, {"replicas": 1, "readyReplicas": -1}) == [
        "status.readyReplicas: Invalid value: -1: must be greater than or equal to 0",
        "status.availableReplicas: Invalid value: 0: cannot be greater than readyReplicas",
    ]
    assert workload_status(kind, {"replicas": 1, "readyReplicas": 2, "availableReplicas": 3}) == [
        "status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas",
        "status.availableReplicas: Invalid value: 3: cannot be greater than status.replicas",
        "status.availableReplicas: Invalid value: 3: cannot be greater than readyReplicas",
    ]


def test_collisions_are_not_forgotten() -> None:
    assert workload_status("Deployment", {"collisionCount": 1}, {"collisionCount": 2}) == [
        "status.collisionCount: Invalid value: 1: cannot be decremented"
    ]


def test_a_gated_pod_is_only_narrowed() -> None:
    def wanting(key: str) -> dict[str, Any]:
        term = {"matchExpressions": [{"key": key, "operator": "Exists"}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        return pod(schedulingGates=[{"name": "g"}], affinity={"nodeAffinity": required})

    [changed] = messages("Pod", wanting("b"), old=wanting("a"), operation="update")
    shown = '{"MatchExpressions":[{"Key":"b","Operator":"Exists","Values":null}],"MatchFields":null}'
    assert changed.endswith(f"[0]: Invalid value: {shown}: only additions are allowed (no mutations or deletions)")


def described(kind: str, spec: dict[str, Any], **meta: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": LABELS, **meta}, "spec": {**TEMPLATE["spec"], **spec}}
    return made(kind, {"metadata": META, "spec": {"selector": {"matchLabels": LABELS}, "template": template}}, "apps")


OLD_LABEL = "beta.kubernetes.io/os"


def node_affinity(**expression: Any) -> dict[str, Any]:
    preferred = [{"weight": 1, "preference": {"matchExpressions": [expression]}}]
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}


def test_what_a_pod_is_warned_of() -> None:
    labelled = pod(**node_affinity(key=OLD_LABEL, operator="In", values=["a b"]))
    where = "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference"
    deprecated, wrong = warnings("Pod", labelled)
    assert deprecated == f"{where}.matchExpressions[0].key: {OLD_LABEL} is " + (
        'deprecated since v1.14; use "kubernetes.io/os" instead'
    )
    assert wrong.startswith(f"{where}.matchExpressions[0].values[0]: a b is invalid, a valid label must be")
    ports = [{"containerPort": 80, "hostIP": "10.0.0.1", "protocol": "TCP"}]
    lonely = pod(containers=[{"name": "c", "image": "i", "ports": ports}])
    shown = "{Name: HostPort:0 ContainerPort:80 Protocol:TCP HostIP:10.0.0.1}"
    assert warnings("Pod", lonely) == [f"spec.containers[0].ports[0]: hostIP set without hostPort: {shown}"]


def test_halves_of_bytes_are_warned_of_resource_by_resource() -> None:
    half = {"memory": "1500m", "ephemeral-storage": "500m"}
    found = warnings(
        "Pod", pod(containers=[{"name": "c", "image": "i", "resources": {"limits": half, "requests": half}}])
    )
    assert [text.partition(":")[0].rpartition("resources.")[2] for text in found] == [
        "limits[memory]", "requests[memory]", "limits[ephemeral-storage]", "requests[ephemeral-storage]",
    ]  # fmt: skip


def test_annotations_that_fields_replaced() -> None:
    annotations = {
        "seccomp.security.alpha.kubernetes.io/pod": "x",
        "container.seccomp.security.alpha.kubernetes.io/c": "x",
        "container.apparmor.security.beta.kubernetes.io/c": "x",
    }
    raw = described("Deployment", {}, annotations=annotations)
    assert [text.partition(": ")[2] for text in warnings("Deployment", raw)] == [
        'non-functional in v1.27+; use the "seccompProfile" field instead',
        'non-functional in v1.27+; use the "seccompProfile" field instead',
        'deprecated since v1.30; use the "appArmorProfile" field instead',
    ]


def test_nobody_is_warned_of_what_was_there_before() -> None:
    raw = described("Deployment", {"nodeSelector": {OLD_LABEL: "linux"}})
    assert warnings("Deployment", raw) == [
        f'spec.template.spec.nodeSelector[{OLD_LABEL}]: deprecated since v1.14; use "kubernetes.io/os" instead'
    ]
    assert warnings("Deployment", {**raw, "metadata": {**META, "labels": LABELS}}, old=raw) == []
    assert len(warnings("Deployment", {**raw, "spec": {**raw["spec"], "replicas": 5}}, old=raw)) == 1
    selected = pod(nodeSelector={OLD_LABEL: "linux"})
    assert len(warnings("Pod", selected)) == 1
    assert warnings("Pod", selected, old=selected) == [], "who changes a pod is seldom a person"


def test_a_long_name_makes_odd_pods() -> None:
    raw = described("Deployment", {})
    raw["metadata"] = {**META, "name": "a.b"}
    assert warnings("Deployment", raw) == [
        "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; "
        "a DNS label is recommended: [must not contain dots]"
    ]


def spread_pod(selector: dict[str, Any], labels: dict[str, str]) -> dict[str, Any]:
    constraint = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    spread = [{**constraint, "labelSelector": selector, "matchLabelKeys": ["rev"]}]
    term = {"topologyKey": "host", "labelSelector": {}, "matchLabelKeys": ["rev"], "mismatchLabelKeys": ["app"]}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    spec = {"containers": TEMPLATE["spec"]["containers"], "topologySpreadConstraints": spread, "affinity": affinity}
    return made("Pod", {"metadata": {"name": "p", "namespace": "n", "labels": labels}, "spec": spec})


def test_a_pod_is_spread_among_those_of_its_own_revision() -> None:
    raw = spread_pod({"matchLabels": {"app": "x"}}, {"app": "x", "rev": "7"})
    own = {"key": "rev", "operator": "In", "values": ["7"]}
    assert raw["spec"]["topologySpreadConstraints"][0]["labelSelector"] == {
        "matchLabels": {"app": "x"},
        "matchExpressions": [own],
    }
    [term] = raw["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["labelSelector"]["matchExpressions"] == [own, {"key": "app", "operator": "NotIn", "values": ["x"]}]
    assert messages("Pod", raw) == []
    assert messages("Pod", raw, old=raw, operation="update") == [], "what was written is not taken for the user's"


@pytest.mark.parametrize(
    "selector", [{"matchLabels": {"rev": "7"}}, {"matchExpressions": [{"key": "rev", "operator": "Exists"}]}]
)
def test_a_key_is_not_named_twice(selector: dict[str, Any]) -> None:
    wrong = 'spec.topologySpreadConstraints[0].matchLabelKeys[0]: Invalid value: "rev": exists in both matchLabelKeys '
    assert any(text.startswith(wrong) for text in messages("Pod", spread_pod(selector, {"rev": "7"})))
    assert any(text.startswith(wrong) for text in messages("Pod", spread_pod(selector, {})))
