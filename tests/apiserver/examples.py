"""One object of every kind that is stored: the least that the server takes."""

from __future__ import annotations

import base64
import datetime
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from kubeqos.apiserver.registry.kinds import Kind

LABELS = {"app": "x"}
TEMPLATE = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
WORKLOAD = {"replicas": 1, "selector": {"matchLabels": LABELS}, "template": TEMPLATE}
ONCE = {"spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}
ROLE_RULES = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
STORAGE = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
DEVICES = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "x"}}]}}
HOOK = {
    "name": "hook.example.com",
    "clientConfig": {"url": "https://127.0.0.1:1/"},
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
}
MATCHED = {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["nodes"]}]}
MUTATION = {
    "patchType": "JSONPatch",
    "jsonPatch": {"expression": '[JSONPatch{op: "remove", path: "/metadata/labels"}]'},
}
RULE = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "clusterScope": True}


def signing_request() -> str:
    """What somebody sends who wants a certificate."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "x")])
    key = ec.generate_private_key(ec.SECP256R1())
    made = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    return base64.b64encode(made.public_bytes(serialization.Encoding.PEM)).decode()


def trust_anchor() -> str:
    """The certificate of an authority."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "authority")])
    key, begin = ec.generate_private_key(ec.SECP256R1()), datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, begin, begin + datetime.timedelta(days=3650))
    constrained = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    return constrained.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def stub_request() -> str:
    """What a kubelet sends for a pod that wants a certificate: a request without any name."""
    key = ec.generate_private_key(ec.SECP256R1())
    made = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, hashes.SHA256())
    return base64.b64encode(made.public_bytes(serialization.Encoding.DER)).decode()


FAR = {"group": "far.example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 100}
NAMES = {"IPAddress": "192.0.2.1", "CustomResourceDefinition": "things.example.com", "APIService": "v1.far.example.com"}
BODIES: dict[str, dict[str, Any]] = {
    "APIService": {"spec": {**FAR, "service": {"namespace": "default", "name": "far"}}},
    "Event": {"involvedObject": {"kind": "Pod", "namespace": "default", "name": "x"}, "reason": "Started"},
    "LimitRange": {"spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}}]}},
    "PersistentVolumeClaim": {"spec": STORAGE},
    "PersistentVolume": {
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}
    },
    "Pod": {"spec": TEMPLATE["spec"]},
    "PodTemplate": {"template": TEMPLATE},
    "ReplicationController": {"spec": {**WORKLOAD, "selector": LABELS}},
    "ResourceQuota": {"spec": {"hard": {"pods": "100"}}},
    "Service": {"spec": {"ports": [{"port": 80}]}},
    "MutatingAdmissionPolicy": {
        "spec": {"matchConstraints": MATCHED, "reinvocationPolicy": "Never", "mutations": [MUTATION]}
    },
    "MutatingAdmissionPolicyBinding": {"spec": {"policyName": "x"}},
    "MutatingWebhookConfiguration": {"webhooks": [HOOK]},
    "ValidatingAdmissionPolicy": {"spec": {"matchConstraints": MATCHED, "validations": [{"expression": "true"}]}},
    "ValidatingAdmissionPolicyBinding": {"spec": {"policyName": "x", "validationActions": ["Deny"]}},
    "ValidatingWebhookConfiguration": {"webhooks": [HOOK]},
    "CustomResourceDefinition": {
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
            ],
        }
    },
    "ControllerRevision": {"revision": 1, "data": {"spec": {}}},
    "DaemonSet": {"spec": {"selector": {"matchLabels": LABELS}, "template": TEMPLATE}},
    "Deployment": {"spec": WORKLOAD},
    "ReplicaSet": {"spec": WORKLOAD},
    "StatefulSet": {"spec": {**WORKLOAD, "serviceName": "x"}},
    "HorizontalPodAutoscaler": {
        "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}}
    },
    "v1 HorizontalPodAutoscaler": {
        "spec": {"maxReplicas": 3, "minReplicas": 2,
                 "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}}
    },
    "CronJob": {"spec": {"schedule": "*/5 * * * *", "jobTemplate": {"spec": {"template": ONCE}}}},
    "Job": {"spec": {"template": ONCE}},
    "CertificateSigningRequest": {
        "spec": {"request": signing_request(), "signerName": "kubernetes.io/kube-apiserver-client",
                 "usages": ["client auth"]}
    },
    "ClusterTrustBundle": {"spec": {"trustBundle": trust_anchor()}},
    "PodCertificateRequest": {
        "spec": {
            "signerName": "x.example/y", "podName": "x", "podUID": "1", "serviceAccountName": "default",
            "serviceAccountUID": "2", "nodeName": "n", "nodeUID": "3", "stubPKCS10Request": stub_request(),
        }
    },
    "EndpointSlice": {"addressType": "IPv4", "endpoints": [{"addresses": ["192.0.2.1"]}], "ports": [{"port": 80}]},
    "Endpoints": {"subsets": [{"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 80}]}]},
    "FlowSchema": {
        "spec": {
            "priorityLevelConfiguration": {"name": "x"},
            "rules": [{"subjects": [{"kind": "User", "user": {"name": "x"}}], "resourceRules": [RULE]}],
        }
    },
    "PriorityLevelConfiguration": {"spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}},
    "IngressClass": {"spec": {"controller": "x.example/ingress"}},
    "Ingress": {"spec": {"defaultBackend": {"service": {"name": "x", "port": {"number": 80}}}}},
    "IPAddress": {"spec": {"parentRef": {"resource": "services", "namespace": "default", "name": "x"}}},
    "NetworkPolicy": {"spec": {"podSelector": {}, "egress": [{"ports": [{"port": 53}]}]}},
    "ServiceCIDR": {"spec": {"cidrs": ["10.96.0.0/16"]}},
    "RuntimeClass": {"handler": "kata"},
    "PodDisruptionBudget": {"spec": {"minAvailable": 1, "selector": {"matchLabels": LABELS}}},
    "ClusterRole": {"rules": ROLE_RULES},
    "Role": {"rules": ROLE_RULES},
    "ClusterRoleBinding": {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "x"}},
    "RoleBinding": {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "x"}},
    "ResourceClaim": {"spec": {"resourceClassName": "x"}},
    "ResourceClaimTemplate": {"spec": {"spec": {"resourceClassName": "x"}}},
    "ResourceClass": {"driverName": "x.example"},
    "DeviceClass": {"spec": {}},
    "DeviceTaintRule": {"spec": {"taint": {"key": "x.example/bad", "effect": "NoSchedule"}}},
    "v1 ResourceClaim": {"spec": DEVICES},
    "v1 ResourceClaimTemplate": {"spec": {"spec": DEVICES}},
    "ResourceSlice": {
        "spec": {"driver": "x.example", "nodeName": "n", "pool": {"name": "n", "resourceSliceCount": 1}}
    },
    "PriorityClass": {"value": 5},
    "CSIDriver": {"spec": {}},
    "CSINode": {"spec": {"drivers": [{"name": "x.example", "nodeID": "n"}]}},
    "CSIStorageCapacity": {"storageClassName": "x"},
    "StorageClass": {"provisioner": "x.example"},
    "VolumeAttachment": {"spec": {"attacher": "x.example", "nodeName": "n", "source": {"persistentVolumeName": "x"}}},
    "VolumeAttributesClass": {"driverName": "x.example", "parameters": {"iops": "1"}},
    "StorageVersionMigration": {"spec": {"resource": {"group": "apps", "resource": "deployments"}}},
}  # fmt: skip
NEWER_EVENT = {
    "regarding": {"kind": "Pod", "namespace": "default", "name": "x"}, "note": "it runs", "reason": "Started",
    "eventTime": "2026-01-01T00:00:00.000000Z", "action": "Run", "type": "Normal",
    "reportingController": "tests", "reportingInstance": "tests-1",
}  # fmt: skip


def collection(kind: Kind) -> str:
    """The path of a kind's objects in the namespace `default`, or of all where there are no namespaces."""
    group = f"/apis/{kind.group}" if kind.group else "/api"
    return f"{group}/{kind.version}/{'namespaces/default/' if kind.namespaced else ''}{kind.plural}"


def example(kind: Kind, name: str = "x") -> dict[str, Any]:
    """An object of a kind, as a client would send it."""
    body = NEWER_EVENT if kind.group == "events.k8s.io" else BODIES.get(kind.rules, {})
    return {"metadata": {"name": NAMES.get(kind.kind, name)}, **body}
