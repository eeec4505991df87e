"""Stories of objects that are refused, and the law that every document gets an answer."""

import copy
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.model import schema
from kubeqos.rules.defaulting.defaults import add_default_tolerations, apply_defaults, prepare_create
from kubeqos.rules.fielderror import Invalid
from kubeqos.rules.validation import KINDS, validate, warnings
from tests.rules.documents import document

NOW = "2026-01-01T00:00:00Z"
SERVED = [(group, version, kind) for group, version, kind in schema.kinds() if kind in KINDS]


def made(kind: str, raw: dict, group: str = "", version: str = "v1") -> dict:
    """An object as it stands before validation of its create."""
    full = schema.normalise(
        {"apiVersion": version, "kind": kind, **copy.deepcopy(raw)}, schema.kind(group, version, kind)
    )
    apply_defaults(kind, full)
    if kind == "Pod":
        add_default_tolerations(full["spec"])
    prepare_create(kind, full, NOW)
    return full


def pod(**spec) -> dict:
    containers = [{"name": "main", "image": "app:1"}]
    return made("Pod", {"metadata": {"name": "p", "namespace": "n"}, "spec": {"containers": containers, **spec}})


def container(**fields) -> dict:
    return pod(containers=[{"name": "main", "image": "app:1", **fields}])


def messages(kind: str, raw: dict, **more) -> list[str]:
    return [error.message for error in validate(kind, raw, **more)]


def test_a_plain_pod_has_no_errors_and_no_warnings():
    assert validate("Pod", pod()) == []
    assert warnings("Pod", pod()) == []


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        (pod(hostname="a.b"), 'spec.hostname: Invalid value: "a.b": must not contain dots'),
        (pod(hostUsers=False, hostPID=True), "spec.HostPID: Forbidden: when `hostUsers` is false"),
        (pod(os={"name": "plan9"}), 'spec.os: Unsupported value: "plan9": supported values: "linux", "windows"'),
        (pod(schedulingGates=[{"name": "g"}, {"name": "g"}]), 'spec.schedulingGates[1]: Duplicate value: "g"'),
        (
            pod(schedulingGates=[{"name": "g"}], nodeName="n1"),
            "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared",
        ),
        (
            pod(dnsPolicy="None", dnsConfig={}),
            "spec.dnsConfig.nameservers: Required value: "
            "must provide at least one DNS nameserver when `dnsPolicy` is None",
        ),
        (
            pod(securityContext={"sysctls": [{"name": "a b", "value": "1"}]}),
            'spec.securityContext.sysctls[0].name: Invalid value: "a b": must have at most 253 characters and match '
            r"regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$",
        ),
        (
            pod(ephemeralContainers=[{"name": "e", "image": "x"}]),
            "spec.ephemeralContainers: Forbidden: cannot be set on create",
        ),
        (
            pod(os={"name": "windows"}, hostPID=True),
            "spec.hostPID: Forbidden: cannot be set for a windows pod",
        ),
        (
            container(lifecycle={"stopSignal": "SIGTERM"}),
            "spec.containers[0].lifecycle.stopSignal: Forbidden: "
            "may not be set for containers with empty `spec.os.name`",
        ),
        (
            container(env=[{"name": "A", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "f", "key": "K"}}}]),
            'spec.containers[0].env[0].valueFrom.fileKeyRef.volumeName: Not found: "v"',
        ),
        (
            pod(qosResources=[{"name": "pod-qos", "class": "gold"}]),
            "spec.qosResources[0].name: Forbidden: pod-qos follows from the pod's resources and cannot be requested",
        ),
        (
            pod(resourceClaims=[{"name": "c"}]),
            'spec.resourceClaims[0]: Invalid value: {"Name":"c","ResourceClaimName":null,'
            '"ResourceClaimTemplateName":null}: must specify one of: `resourceClaimName`, `resourceClaimTemplateName`',
        ),
        (
            container(ports=[{"containerPort": 1, "hostPort": 9}, {"containerPort": 2, "hostPort": 9}]),
            'spec.containers[0].ports[1].hostPort: Duplicate value: "TCP//9"',
        ),
        (
            container(livenessProbe={"exec": {"command": ["x"]}, "successThreshold": 2}),
            "spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1",
        ),
        (
            container(livenessProbe={"exec": {"command": ["x"]}, "tcpSocket": {"port": 1}}),
            "spec.containers[0].livenessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type",
        ),
        (
            container(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.bogus"}}}]),
            'spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value: "spec.bogus": '
            "error converting fieldPath: field label not supported: spec.bogus",
        ),
        (
            container(securityContext={"allowPrivilegeEscalation": False, "privileged": True}),
            'spec.containers[0].securityContext: Invalid value: {"Capabilities":null,"Privileged":true,'
            '"SELinuxOptions":null,"WindowsOptions":null,"RunAsUser":null,"RunAsGroup":null,"RunAsNonRoot":null,'
            '"ReadOnlyRootFilesystem":null,"AllowPrivilegeEscalation":false,"ProcMount":null,"SeccompProfile":null,'
            '"AppArmorProfile":null}: cannot set `allowPrivilegeEscalation` to false and `privileged` to true',
        ),
        (
            container(resources={"qosResources": [{"name": "rdt", "class": ""}]}),
            "spec.containers[0].resources.qosResources[0].class: Required value",
        ),
        (
            container(restartPolicyRules=[{"action": "Restart", "exitCodes": {"operator": "In", "values": [3]}}]),
            "spec.containers[0].restartPolicy: Required value: must specify restartPolicy when restart rules are used",
        ),
    ],
)
def test_what_is_wrong_with_a_pod_is_said_in_kubernetes_words(raw, wanted):
    assert messages("Pod", raw) == [wanted]


@pytest.mark.parametrize(
    ("kind", "group", "version", "raw", "wanted"),
    [
        (
            "Service", "", "v1",
            {"metadata": {"name": "s", "namespace": "n"}, "spec": {"ports": [{"port": 80, "nodePort": 30000}]}},
            ["spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"],
        ),
        (
            "Secret", "", "v1",
            {"metadata": {"name": "s", "namespace": "n"}, "type": "kubernetes.io/tls"},
            ["data[tls.crt]: Required value", "data[tls.key]: Required value"],
        ),
        (
            "Deployment", "apps", "v1",
            {
                "metadata": {"name": "d", "namespace": "n"},
                "spec": {
                    "selector": {"matchLabels": {"a": "b"}},
                    "template": {"spec": {"containers": [{"name": "c", "image": "x"}]}},
                },
            },
            ["spec.template.metadata.labels: Invalid value: null: `selector` does not match template `labels`"],
        ),
        (
            "PersistentVolumeClaim", "", "v1",
            {"metadata": {"name": "c", "namespace": "n"}, "spec": {"accessModes": ["Often"]}},
            [
                'spec.accessModes: Unsupported value: "Often": supported values: "ReadOnlyMany", "ReadWriteMany", '
                '"ReadWriteOnce", "ReadWriteOncePod"',
                "spec.resources[storage]: Required value",
            ],
        ),
        (
            "RoleBinding", "rbac.authorization.k8s.io", "v1",
            {"metadata": {"name": "b", "namespace": "n"}, "roleRef": {"kind": "Role", "name": "r"}, "subjects": [{}]},
            [
                "subjects[0].name: Required value",
                'subjects[0].kind: Unsupported value: "": supported values: "ServiceAccount", "User", "Group"',
            ],
        ),
        (
            "Role", "rbac.authorization.k8s.io", "v1",
            {"metadata": {"name": "r", "namespace": "n"}, "rules": [{"apiGroups": [""], "resources": ["pods"]}]},
            ["rules[0].verbs: Required value"],
        ),
        (
            "ResourceClass", "resource.k8s.io", "v1alpha1",
            {"metadata": {"name": "c"}, "parametersRef": {"name": "x"}},
            ["driverName: Required value", "parametersRef.kind: Required value"],
        ),
        (
            "Lease", "coordination.k8s.io", "v1",
            {"metadata": {"name": "l", "namespace": "n"}, "spec": {"leaseDurationSeconds": 0}},
            ["spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"],
        ),
        (
            "LimitRange", "", "v1",
            {
                "metadata": {"name": "l", "namespace": "n"},
                "spec": {"limits": [{"type": "Container", "qosResources": [{"name": "rdt", "max": [{"name": ""}]}]}]},
            },
            ["spec.limits[0].qosResources[0].max[0].name: Required value"],
        ),
        (
            "ResourceQuota", "", "v1",
            {
                "metadata": {"name": "q", "namespace": "n"},
                "spec": {
                    "qosResources": {
                        "container": [
                            {"name": "rdt", "classes": [{"name": "gold", "capacity": -1}, {"name": "gold"}]},
                            {"name": "rdt"},
                        ]
                    }
                },
            },
            [
                "spec.qosResources.container[0].classes[0].capacity: Invalid value: -1: "
                "must be greater than or equal to 0",
                'spec.qosResources.container[0].classes[1].name: Duplicate value: "gold"',
                'spec.qosResources.container[1].name: Duplicate value: "rdt"',
            ],
        ),
    ],
)  # fmt: skip
def test_other_kinds_are_judged_too(kind, group, version, raw, wanted):
    assert messages(kind, made(kind, raw, group, version)) == wanted


def test_a_misspelt_quota_name_is_told_the_right_one():
    raw = made(
        "ResourceQuota", {"metadata": {"name": "q", "namespace": "n"}, "spec": {"hard": {"memory.limit": "1Gi"}}}
    )
    assert messages("ResourceQuota", raw)[-1].endswith("must be a standard resource for quota: use limits.memory")


def test_a_name_may_not_be_advertised_for_pods_and_containers():
    offered = {"podQoSResources": [{"name": "net"}], "containerQoSResources": [{"name": "net"}]}
    raw = made("Node", {"metadata": {"name": "n1"}, "status": {"qosResources": offered}})
    assert messages("Node", raw) == ['status.qosResources.containerQoSResources[0].name: Duplicate value: "net"']


def test_an_update_may_change_the_image_and_says_what_else_it_changed():
    old = pod()
    new = copy.deepcopy(old)
    new["spec"]["containers"][0]["image"] = "app:2"
    assert messages("Pod", new, old=old, operation="update") == []
    new["spec"]["restartPolicy"] = "Never"
    (message,) = messages("Pod", new, old=old, operation="update")
    first, *diff = message.split("\n")
    assert first.startswith("spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`")
    assert diff == ['- spec.restartPolicy: "Always"', '+ spec.restartPolicy: "Never"']


def test_amounts_that_are_equal_by_value_are_no_change():
    old = container(resources={"requests": {"cpu": "100m", "memory": "1Gi"}})
    new = copy.deepcopy(old)
    new["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "0.1", "memory": "1024Mi"}
    assert messages("Pod", new, old=old, operation="update") == []


def test_resizing_changes_cpu_and_memory_and_keeps_the_class():
    old = container(resources={"requests": {"cpu": "100m"}, "limits": {"cpu": "200m"}})
    new = copy.deepcopy(old)
    new["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "150m"
    resize = {"old": old, "operation": "update", "subresource": "resize"}
    assert messages("Pod", new, **resize) == []
    new["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "200m"}, "requests": {}}
    assert messages("Pod", new, **resize) == [
        "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed"
    ]
    new["spec"]["containers"][0]["resources"] = {}
    assert messages("Pod", new, **resize)[0] == (
        'spec: Invalid value: "Burstable": Pod QOS Class may not change as a result of resizing'
    )


def test_a_service_keeps_its_address():
    ports = [{"port": 80}]
    meta = {"name": "s", "namespace": "n"}
    old = made("Service", {"metadata": meta, "spec": {"ports": ports, "clusterIP": "10.0.0.1"}})
    new = made("Service", {"metadata": meta, "spec": {"ports": ports}})
    assert messages("Service", new, old=old, operation="update") == []
    new["spec"]["clusterIP"] = "10.0.0.2"
    assert messages("Service", new, old=old, operation="update") == [
        'spec.clusterIPs[0]: Invalid value: ["10.0.0.2"]: may not change once set'
    ]


def test_resizing_keeps_the_containers_in_their_order():
    old = pod()
    new = copy.deepcopy(old)
    new["spec"]["containers"][0]["name"] = "other"
    assert messages("Pod", new, old=old, operation="update", subresource="resize") == [
        "spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize"
    ]


def test_a_limit_beyond_all_numbers_is_judged_too():
    limits = [{"type": "Pod", "min": {"cpu": "1e400"}, "max": {"cpu": "4"}, "maxLimitRequestRatio": {"cpu": "1"}}]
    raw = made("LimitRange", {"metadata": {"name": "l", "namespace": "n"}, "spec": {"limits": limits}})
    assert messages("LimitRange", raw)[0].startswith("spec.limits[0].min[cpu]: Invalid value: ")


def test_an_immutable_config_map_stays_as_it_is():
    old = made("ConfigMap", {"metadata": {"name": "c", "namespace": "n"}, "immutable": True, "data": {"a": "b"}})
    new = {**old, "data": {"a": "c"}}
    assert messages("ConfigMap", new, old=old, operation="update") == [
        "data: Forbidden: field is immutable when `immutable` is set"
    ]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(SERVED), st.integers(0, 10**9))
def test_every_document_that_decodes_gets_an_answer(served, seed):
    group, version, kind = served
    shape = schema.kind(group, version, kind)
    chance = random.Random(seed)
    raw, other = document(shape, chance), document(shape, chance)
    if schema.check(raw, shape).error or schema.check(other, shape).error:
        return
    stored, new = made(kind, raw, group, version), schema.normalise(other, shape)
    apply_defaults(kind, new)
    answers = [validate(kind, stored), validate(kind, new, old=stored, operation="update")]
    answers += [
        validate(kind, new, old=stored, operation="update", subresource=one) for one in KINDS[kind].subresources
    ]
    for errors in answers:
        assert Invalid(kind, group, "x", errors).message
    warnings(kind, stored)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(SERVED), st.integers(0, 10**9))
def test_an_object_that_did_not_change_is_a_valid_update_of_itself(served, seed):
    group, version, kind = served
    shape = schema.kind(group, version, kind)
    raw = document(shape, random.Random(seed))
    if schema.check(raw, shape).error:
        return
    stored = made(kind, raw, group, version)
    if not validate(kind, stored):
        assert messages(kind, copy.deepcopy(stored), old=stored, operation="update") == []


def test_a_resize_may_change_classes_and_not_remove_them():
    """KEP-3008: whether a class is mutable only its node knows."""
    old = container(resources={"requests": {"cpu": "1"}, "qosResources": [{"name": "blockio", "class": "slow"}]})
    resize = {"old": old, "operation": "update", "subresource": "resize"}
    new = copy.deepcopy(old)
    wanted = [{"name": "blockio", "class": "fast"}, {"name": "rdt", "class": "gold"}]
    new["spec"]["containers"][0]["resources"]["qosResources"] = wanted
    assert messages("Pod", new, **resize) == []
    del new["spec"]["containers"][0]["resources"]["qosResources"]
    assert messages("Pod", new, **resize) == [
        "spec.containers[0].resources.qosResources: Forbidden: classes may be changed, not removed"
    ]
