"""A full object of every kind that is stored, and what can be wrong with each: for `test_same_kinds`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from kubeqos.model.kinds import resource_of
from tests.apiserver.examples import signing_request, stub_request, trust_anchor
from tests.stock.autoscalers import METRICS

Raw = dict[str, Any]
Step = str | int

LABELS = {"app": "x"}
SELECTOR = {"matchLabels": LABELS, "matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}
TEMPLATE = {"metadata": {"labels": {"app": "x", "k": "v"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
ONCE = {"spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}
STORAGE = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}
POLICY = {"type": "Pods", "value": 4, "periodSeconds": 15}
SCALING = {"stabilizationWindowSeconds": 30, "selectPolicy": "Max", "tolerance": "0.1", "policies": [POLICY]}
TERM = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
BACKEND = {"service": {"name": "x", "port": {"number": 80}}}
PEER = [
    {"podSelector": SELECTOR, "namespaceSelector": {}},
    {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}},
]
PORTS = [{"protocol": "TCP", "port": 80, "endPort": 90}, {"port": "http"}]
RULES = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"], "scope": "*"}]
CONDITIONS, VARIABLES = [{"name": "a", "expression": "true"}], [{"name": "a", "expression": "1"}]
HOOK = {
    "name": "hook.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 5,
    "clientConfig": {"service": {"name": "x", "namespace": "default", "path": "/p", "port": 443}},
    "failurePolicy": "Fail", "matchPolicy": "Exact", "rules": RULES, "namespaceSelector": SELECTOR,
    "objectSelector": SELECTOR, "matchConditions": CONDITIONS,
}  # fmt: skip
REQUEST = {"name": "gpu", "exactly": {"deviceClassName": "x", "allocationMode": "ExactCount", "count": 2}}
DEVICES = {"devices": {"requests": [REQUEST], "constraints": [{"requests": ["gpu"], "matchAttribute": "x.example/n"}]}}
FLOW_RULE = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "namespaces": ["*"]}
MATCHED = {
    "resourceRules": [{**RULES[0], "resourceNames": ["x"]}], "excludeResourceRules": RULES, "matchPolicy": "Exact",
    "namespaceSelector": SELECTOR, "objectSelector": SELECTOR,
}  # fmt: skip
PARAMETER_KIND = {"apiVersion": "x.example/v1", "kind": "Thing"}
PARAMETERS = {"name": "x", "namespace": "n", "parameterNotFoundAction": "Deny"}
PATCH = '[JSONPatch{op: "remove", path: "/metadata/labels"}]'
ABOUT = {"kind": "Pod", "namespace": "default", "name": "x", "uid": "1", "apiVersion": "v1", "fieldPath": "spec"}
MOMENT = "2026-01-02T03:04:05.000000Z"
SUBJECTS = [{"kind": "User", "user": {"name": "x"}},
            {"kind": "ServiceAccount", "serviceAccount": {"name": "x", "namespace": "n"}}]  # fmt: skip

PROBE = {
    "httpGet": {"path": "/", "port": "http", "scheme": "HTTP", "host": "h",
                "httpHeaders": [{"name": "A", "value": "b"}]},
    "initialDelaySeconds": 1, "timeoutSeconds": 1, "periodSeconds": 1, "successThreshold": 1, "failureThreshold": 1,
}  # fmt: skip
CONTAINER = {
    "name": "c", "image": "x", "command": ["a"], "args": ["b"], "workingDir": "/", "imagePullPolicy": "Always",
    "ports": [{"name": "http", "containerPort": 80, "protocol": "TCP", "hostIP": "127.0.0.1"}],
    "env": [{"name": "A", "value": "b"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "C", "valueFrom": {"secretKeyRef": {"name": "x", "key": "k"}}},
            {"name": "D", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1"}}}],
    "envFrom": [{"prefix": "P_", "configMapRef": {"name": "x"}}],
    "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
    "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
    "volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "a", "mountPropagation": "None"}],
    "livenessProbe": PROBE, "readinessProbe": {"tcpSocket": {"port": 80}}, "startupProbe": {"exec": {"command": ["a"]}},
    "lifecycle": {"postStart": {"exec": {"command": ["a"]}}, "preStop": {"sleep": {"seconds": 1}}},
    "terminationMessagePath": "/t", "terminationMessagePolicy": "File",
    "securityContext": {"runAsUser": 1, "runAsGroup": 1, "runAsNonRoot": True, "procMount": "Default",
                        "capabilities": {"add": ["A"], "drop": ["B"]}, "seccompProfile": {"type": "RuntimeDefault"}},
}  # fmt: skip
PREFERRED = [{"weight": 1, "preference": TERM}]
NEAR = {"labelSelector": SELECTOR, "topologyKey": "zone", "namespaces": ["n"], "namespaceSelector": SELECTOR}
POD = {
    "containers": [CONTAINER], "initContainers": [{"name": "i", "image": "x", "restartPolicy": "Always"}],
    "restartPolicy": "Always", "terminationGracePeriodSeconds": 5, "activeDeadlineSeconds": 5, "dnsPolicy": "None",
    "dnsConfig": {"nameservers": ["192.0.2.1"], "searches": ["a.example"], "options": [{"name": "o", "value": "1"}]},
    "nodeSelector": {"a": "b"}, "serviceAccountName": "x", "hostname": "h", "subdomain": "s", "schedulerName": "x",
    "imagePullSecrets": [{"name": "x"}], "hostAliases": [{"ip": "192.0.2.1", "hostnames": ["a.example"]}],
    "preemptionPolicy": "PreemptLowerPriority", "readinessGates": [{"conditionType": "x.example/ready"}],
    "securityContext": {"runAsUser": 1, "fsGroup": 1, "supplementalGroups": [1], "fsGroupChangePolicy": "Always",
                        "sysctls": [{"name": "kernel.shm_rmid_forced", "value": "1"}]},
    "affinity": {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM]},
                         "preferredDuringSchedulingIgnoredDuringExecution": PREFERRED},
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [NEAR]},
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "podAffinityTerm": NEAR}]}},
    "tolerations": [{"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute", "tolerationSeconds": 5}],
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
                                   "labelSelector": SELECTOR, "minDomains": 1, "nodeAffinityPolicy": "Honor"}],
    "volumes": [{"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
                {"name": "w", "configMap": {"name": "x", "items": [{"key": "k", "path": "p", "mode": 1}]}},
                {"name": "y", "projected": {"sources": [
                    {"serviceAccountToken": {"audience": "x", "expirationSeconds": 3600, "path": "t"}}]}}],
}  # fmt: skip

SAMPLES: list[tuple[str, str, Raw]] = [
    ("autoscaling/v2", "HorizontalPodAutoscaler", {"spec": {
        "scaleTargetRef": TARGET, "minReplicas": 2, "maxReplicas": 5, "metrics": METRICS,
        "behavior": {"scaleUp": SCALING, "scaleDown": SCALING}}}),
    ("autoscaling/v1", "HorizontalPodAutoscaler", {"spec": {
        "scaleTargetRef": TARGET, "minReplicas": 2, "maxReplicas": 5, "targetCPUUtilizationPercentage": 50}}),
    ("networking.k8s.io/v1", "NetworkPolicy", {"spec": {
        "podSelector": SELECTOR, "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": PEER, "ports": PORTS}], "egress": [{"to": PEER, "ports": PORTS}]}}),
    ("networking.k8s.io/v1", "Ingress", {"spec": {
        "ingressClassName": "x", "defaultBackend": BACKEND, "tls": [{"hosts": ["a.example"], "secretName": "x"}],
        "rules": [{"host": "a.example", "http": {"paths": [
            {"path": "/a", "pathType": "Prefix", "backend": BACKEND},
            {"path": "/b", "pathType": "Exact", "backend": {"service": {"name": "x", "port": {"name": "http"}}}},
            {"path": "/c", "pathType": "Exact", "backend": {
                "resource": {"apiGroup": "x.example", "kind": "Bucket", "name": "x"}}}]}}]}}),
    ("networking.k8s.io/v1", "IngressClass", {"spec": {
        "controller": "x.example/ingress", "parameters": {
            "apiGroup": "x.example", "kind": "Thing", "name": "x", "scope": "Namespace", "namespace": "n"}}}),
    ("networking.k8s.io/v1", "IPAddress", {"metadata": {"name": "192.0.2.1"}, "spec": {
        "parentRef": {"group": "x.example", "resource": "services", "namespace": "default", "name": "x"}}}),
    ("networking.k8s.io/v1", "ServiceCIDR", {"spec": {"cidrs": ["10.96.0.0/16"]}}),
    ("policy/v1", "PodDisruptionBudget", {"spec": {
        "minAvailable": 1, "selector": SELECTOR, "unhealthyPodEvictionPolicy": "AlwaysAllow"}}),
    ("v1", "PersistentVolume", {"spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x", "type": ""},
        "persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem", "storageClassName": "x",
        "mountOptions": ["ro"], "nodeAffinity": {"required": {"nodeSelectorTerms": [TERM]}},
        "claimRef": {"namespace": "default", "name": "x"}}}),
    ("v1", "PersistentVolume", {"spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "local": {"path": "/x"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [TERM]}}}}),
    ("v1", "PersistentVolume", {"spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "nfs": {"server": "s", "path": "/x"}}}),
    ("v1", "PersistentVolume", {"spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"],
        "csi": {"driver": "x.example", "volumeHandle": "1", "fsType": "ext4",
                "nodeStageSecretRef": {"name": "x", "namespace": "n"}}}}),
    ("v1", "PersistentVolumeClaim", {"spec": {
        **STORAGE, "storageClassName": "x", "volumeMode": "Filesystem", "selector": SELECTOR, "volumeName": "x",
        "dataSource": {"apiGroup": "x.example", "kind": "Snapshot", "name": "x"}}}),
    ("storage.k8s.io/v1", "StorageClass", {
        "provisioner": "x.example/p", "parameters": {"a": "b"}, "reclaimPolicy": "Delete", "mountOptions": ["ro"],
        "volumeBindingMode": "Immediate", "allowVolumeExpansion": True,
        "allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["a", "b"]}]}]}),
    ("storage.k8s.io/v1", "CSIDriver", {"metadata": {"name": "x.example"}, "spec": {
        "attachRequired": True, "podInfoOnMount": True, "fsGroupPolicy": "File", "storageCapacity": True,
        "volumeLifecycleModes": ["Persistent"], "requiresRepublish": True, "nodeAllocatableUpdatePeriodSeconds": 60,
        "tokenRequests": [{"audience": "x", "expirationSeconds": 3600}]}}),
    ("storage.k8s.io/v1", "CSINode", {"spec": {"drivers": [
        {"name": "x.example", "nodeID": "n", "topologyKeys": ["x.example/zone"], "allocatable": {"count": 3}}]}}),
    ("storage.k8s.io/v1", "CSIStorageCapacity", {
        "storageClassName": "x", "capacity": "1Gi", "maximumVolumeSize": "1Gi", "nodeTopology": SELECTOR}),
    ("storage.k8s.io/v1", "VolumeAttachment", {"spec": {
        "attacher": "x.example", "nodeName": "n", "source": {"persistentVolumeName": "x"}}}),
    ("storage.k8s.io/v1", "VolumeAttributesClass", {"driverName": "x.example", "parameters": {"iops": "1"}}),
    ("node.k8s.io/v1", "RuntimeClass", {
        "handler": "kata", "overhead": {"podFixed": {"cpu": "100m"}},
        "scheduling": {"nodeSelector": {"a": "b"}, "tolerations": [
            {"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute", "tolerationSeconds": 5}]}}),
    ("discovery.k8s.io/v1", "EndpointSlice", {
        "addressType": "IPv4", "ports": [{"name": "http", "port": 80, "protocol": "TCP", "appProtocol": "http"}],
        "endpoints": [{"addresses": ["192.0.2.1"], "conditions": {"ready": True}, "hostname": "h", "nodeName": "n",
                       "zone": "z", "hints": {"forZones": [{"name": "z"}]},
                       "targetRef": {"kind": "Pod", "name": "x"}}]}),
    ("v1", "Endpoints", {"subsets": [{
        "addresses": [{"ip": "192.0.2.1", "hostname": "h", "nodeName": "n"}],
        "notReadyAddresses": [{"ip": "192.0.2.2"}],
        "ports": [{"name": "http", "port": 80, "protocol": "TCP"}, {"name": "s", "port": 81}]}]}),
    ("v1", "Service", {"spec": {
        "type": "NodePort", "selector": LABELS, "sessionAffinity": "ClientIP",
        "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10}}, "externalIPs": ["192.0.2.1"],
        "externalTrafficPolicy": "Local", "internalTrafficPolicy": "Local", "ipFamilyPolicy": "SingleStack",
        "ports": [{"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP", "appProtocol": "http"}]}}),
    ("v1", "Service", {"spec": {
        "type": "LoadBalancer", "selector": LABELS, "loadBalancerSourceRanges": ["10.0.0.0/8"],
        "loadBalancerClass": "x.example/lb", "allocateLoadBalancerNodePorts": True,
        "trafficDistribution": "PreferClose", "ports": [{"port": 80, "targetPort": 8080}]}}),
    ("apps/v1", "Deployment", {"spec": {
        "replicas": 1, "selector": SELECTOR, "template": TEMPLATE, "minReadySeconds": 1, "revisionHistoryLimit": 2,
        "progressDeadlineSeconds": 9, "strategy": {
            "type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": "25%"}}}}),
    ("apps/v1", "ReplicaSet", {"spec": {
        "replicas": 1, "selector": SELECTOR, "template": TEMPLATE, "minReadySeconds": 1}}),
    ("v1", "ReplicationController", {"spec": {
        "replicas": 1, "selector": LABELS, "template": TEMPLATE, "minReadySeconds": 1}}),
    ("apps/v1", "DaemonSet", {"spec": {
        "selector": SELECTOR, "template": TEMPLATE, "minReadySeconds": 1, "revisionHistoryLimit": 2,
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}}}),
    ("apps/v1", "StatefulSet", {"spec": {
        "replicas": 1, "selector": SELECTOR, "template": TEMPLATE, "serviceName": "x", "minReadySeconds": 1,
        "revisionHistoryLimit": 2, "podManagementPolicy": "Parallel", "ordinals": {"start": 1},
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": STORAGE}],
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Delete"},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1, "maxUnavailable": 1}}}}),
    ("apps/v1", "ControllerRevision", {"revision": 1, "data": {"spec": {}}}),
    ("batch/v1", "Job", {"spec": {
        "template": ONCE, "parallelism": 2, "completions": 3, "completionMode": "Indexed", "backoffLimit": 2,
        "backoffLimitPerIndex": 1, "maxFailedIndexes": 1, "activeDeadlineSeconds": 9, "ttlSecondsAfterFinished": 9,
        "podReplacementPolicy": "Failed", "suspend": False, "managedBy": "x.example/y",
        "successPolicy": {"rules": [{"succeededIndexes": "0-1", "succeededCount": 1}]},
        "podFailurePolicy": {"rules": [
            {"action": "FailJob", "onExitCodes": {"containerName": "c", "operator": "In", "values": [1, 2]}},
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}}}),
    ("batch/v1", "CronJob", {"spec": {
        "schedule": "*/5 * * * *", "timeZone": "Europe/Berlin", "concurrencyPolicy": "Forbid",
        "startingDeadlineSeconds": 9, "successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 1,
        "jobTemplate": {"spec": {"template": ONCE, "backoffLimit": 2}}}}),
    ("certificates.k8s.io/v1", "CertificateSigningRequest", {"spec": {
        "request": signing_request(), "signerName": "x.example/signer", "usages": ["client auth"],
        "expirationSeconds": 3600}}),
    ("coordination.k8s.io/v1", "Lease", {"spec": {
        "holderIdentity": "x", "leaseDurationSeconds": 10, "leaseTransitions": 1, "strategy": "OldestEmulationVersion",
        "acquireTime": "2026-01-02T03:04:05.000000Z", "renewTime": "2026-01-02T03:04:05.000000Z"}}),
    ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", {"webhooks": [HOOK]}),
    ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", {"webhooks": [
        {**HOOK, "clientConfig": {"url": "https://x.example/p"}, "reinvocationPolicy": "Never"}]}),
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", {"spec": {
        "matchConstraints": MATCHED, "failurePolicy": "Fail", "paramKind": PARAMETER_KIND,
        "matchConditions": CONDITIONS, "variables": VARIABLES,
        "auditAnnotations": [{"key": "a", "valueExpression": "'b'"}],
        "validations": [{"expression": "true", "message": "m", "messageExpression": "'m'", "reason": "Invalid"}]}}),
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", {"spec": {
        "policyName": "x", "validationActions": ["Deny"], "paramRef": PARAMETERS, "matchResources": MATCHED}}),
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", {"spec": {
        "policyName": "x", "validationActions": ["Audit", "Warn"],
        "paramRef": {"selector": SELECTOR, "parameterNotFoundAction": "Allow"}}}),
    ("flowcontrol.apiserver.k8s.io/v1", "FlowSchema", {"spec": {
        "priorityLevelConfiguration": {"name": "x"}, "matchingPrecedence": 100,
        "distinguisherMethod": {"type": "ByUser"},
        "rules": [{"subjects": SUBJECTS, "resourceRules": [FLOW_RULE],
                   "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]}]}}),
    ("flowcontrol.apiserver.k8s.io/v1", "PriorityLevelConfiguration", {"spec": {
        "type": "Limited", "limited": {"nominalConcurrencyShares": 5, "lendablePercent": 50, "limitResponse": {
            "type": "Queue", "queuing": {"queues": 8, "handSize": 2, "queueLengthLimit": 5}}}}}),
    ("resource.k8s.io/v1", "ResourceClaim", {"spec": DEVICES}),
    ("resource.k8s.io/v1", "ResourceClaimTemplate", {"spec": {"spec": DEVICES}}),
    ("resource.k8s.io/v1", "DeviceClass", {"spec": {"selectors": [{"cel": {"expression": "true"}}]}}),
    ("resource.k8s.io/v1", "ResourceSlice", {"spec": {
        "driver": "x.example", "nodeName": "n", "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "d", "attributes": {"a": {"string": "b"}}, "capacity": {"m": {"value": "1Gi"}}}]}}),
    ("apiregistration.k8s.io/v1", "APIService", {"metadata": {"name": "v1.away.example"}, "spec": {
        "group": "away.example", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10,
        "insecureSkipTLSVerify": True, "service": {"namespace": "default", "name": "away", "port": 443}}}),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition", {"metadata": {"name": "things.x.example"}, "spec": {
        "group": "x.example", "scope": "Namespaced", "names": {
            "plural": "things", "singular": "thing", "kind": "Thing", "shortNames": ["th"], "categories": ["all"]},
        "conversion": {"strategy": "None"},
        "versions": [{"name": "v1", "served": True, "storage": True, "subresources": {
            "status": {}, "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}},
            "additionalPrinterColumns": [{"name": "N", "type": "integer", "jsonPath": ".spec.n"}],
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0}}},
                "status": {"type": "object", "properties": {"n": {"type": "integer"}}}}}}}]}}),
    ("rbac.authorization.k8s.io/v1", "Role", {"rules": [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": ["x"]}]}),
    ("rbac.authorization.k8s.io/v1", "RoleBinding", {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "x"},
        "subjects": [{"kind": "ServiceAccount", "name": "x", "namespace": "n"},
                     {"kind": "User", "name": "x", "apiGroup": "rbac.authorization.k8s.io"}]}),
    ("rbac.authorization.k8s.io/v1", "ClusterRole", {
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": ["x"]},
                  {"nonResourceURLs": ["/healthz"], "verbs": ["get"]}],
        "aggregationRule": {"clusterRoleSelectors": [SELECTOR]}}),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "x"},
        "subjects": [{"kind": "ServiceAccount", "name": "x", "namespace": "n"},
                     {"kind": "Group", "name": "x", "apiGroup": "rbac.authorization.k8s.io"}]}),
    ("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicy", {"spec": {
        "matchConstraints": MATCHED, "failurePolicy": "Fail", "reinvocationPolicy": "Never",
        "paramKind": PARAMETER_KIND, "matchConditions": CONDITIONS, "variables": VARIABLES,
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": PATCH}},
                      {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}}]}}),
    ("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicyBinding", {"spec": {
        "policyName": "x", "paramRef": PARAMETERS, "matchResources": MATCHED}}),
    ("certificates.k8s.io/v1", "ClusterTrustBundle", {"metadata": {"name": "x.example:y:z"}, "spec": {
        "signerName": "x.example/y", "trustBundle": trust_anchor()}}),
    ("certificates.k8s.io/v1", "PodCertificateRequest", {"spec": {
        "signerName": "x.example/y", "podName": "x", "podUID": "1", "serviceAccountName": "default",
        "serviceAccountUID": "2", "nodeName": "n", "nodeUID": "3", "maxExpirationSeconds": 86400,
        "stubPKCS10Request": stub_request(), "unverifiedUserAnnotations": {"x.example/a": "b"}}}),
    ("resource.k8s.io/v1", "DeviceTaintRule", {"spec": {
        "deviceSelector": {"driver": "x.example", "pool": "n", "device": "d"},
        "taint": {"key": "x.example/bad", "value": "v", "effect": "NoSchedule", "timeAdded": "2026-01-02T03:04:05Z"}}}),
    ("storagemigration.k8s.io/v1", "StorageVersionMigration", {"spec": {
        "resource": {"group": "apps", "resource": "deployments"}}}),
    ("storagemigration.k8s.io/v1", "StorageVersionMigration", {"spec": {
        "resource": {"group": "", "resource": "pods"}}}),
    ("events.k8s.io/v1", "Event", {
        "regarding": ABOUT, "related": ABOUT, "note": "it runs", "reason": "Started", "action": "Run", "type": "Normal",
        "eventTime": MOMENT, "reportingController": "x.example/y", "reportingInstance": "y-1",
        "series": {"count": 2, "lastObservedTime": MOMENT}}),
    ("v1", "Event", {
        "involvedObject": ABOUT, "related": ABOUT, "message": "it runs", "reason": "Started", "action": "Run",
        "type": "Normal", "count": 2, "source": {"component": "x", "host": "n"},
        "firstTimestamp": "2026-01-02T03:04:05Z", "lastTimestamp": "2026-01-02T03:04:05Z",
        "reportingComponent": "x.example/y", "reportingInstance": "y-1"}),
    ("v1", "ConfigMap", {"data": {"a": "b"}, "binaryData": {"c": "ZA=="}, "immutable": False}),
    ("v1", "Secret", {"data": {"a": "Yg=="}, "stringData": {"c": "d"}, "type": "Opaque", "immutable": False}),
    ("v1", "ServiceAccount", {
        "automountServiceAccountToken": True, "secrets": [{"name": "x"}], "imagePullSecrets": [{"name": "x"}]}),
    ("v1", "LimitRange", {"spec": {"limits": [
        {"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "1"}, "min": {"cpu": "1"},
         "max": {"cpu": "2"}, "maxLimitRequestRatio": {"cpu": "2"}},
        {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}]}}),
    ("v1", "ResourceQuota", {"spec": {
        "hard": {"pods": "10", "requests.cpu": "1"}, "scopes": ["NotTerminating"],
        "scopeSelector": {"matchExpressions": [
            {"scopeName": "PriorityClass", "operator": "In", "values": ["x"]}]}}}),
    ("v1", "Namespace", {"spec": {"finalizers": ["kubernetes"]}}),
    ("v1", "PodTemplate", {"template": TEMPLATE}),
    ("v1", "Node", {"spec": {
        "podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"], "providerID": "x://y", "unschedulable": True,
        "taints": [{"key": "k", "value": "v", "effect": "NoSchedule", "timeAdded": "2026-01-02T03:04:05Z"}]}}),
    ("v1", "Pod", {"spec": POD}),
    ("scheduling.k8s.io/v1", "PriorityClass", {"value": 5, "preemptionPolicy": "Never", "description": "x"}),
]  # fmt: skip

_PROPOSED = "of a proposal (KEP-3675): no real server has it"
WITHOUT: dict[tuple[str, str], str] = {
    ("resource.k8s.io/v1alpha1", "ResourceClaim"): _PROPOSED,
    ("resource.k8s.io/v1alpha1", "ResourceClaimTemplate"): _PROPOSED,
    ("resource.k8s.io/v1alpha1", "ResourceClass"): _PROPOSED,
}
"""Kinds that are stored and compared with nobody, and why."""


def collection(api_version: str, kind: str) -> str:
    """The path of a kind's objects: in the namespace `default`, where there are namespaces."""
    resource = resource_of(api_version, kind)
    assert resource is not None
    group = f"/apis/{api_version}" if resource.group else f"/api/{api_version}"
    return f"{group}{'/namespaces/default' if resource.namespaced else ''}/{resource.plural}"


def wrongs(value: Any) -> list[Any]:
    """What somebody may have written instead of a value: nothing, too little, too much, or the wrong word."""
    match value:
        case bool():
            return []
        case str():
            return ["", "Bad_ Value!", "x" * 300]
        case int():
            return [-1, 0, 2_000_000_000]
        case list():
            return [[], [*value, *value[:1]]]
        case _:
            return [{}]


GONE = object()


def variants(obj: Raw) -> Iterator[tuple[str, Raw]]:
    """An object with one thing wrong at a time, and what that is."""
    for steps, value in _below(obj, ()):
        for instead in [GONE, *wrongs(value)]:
            if instead != value:
                yield _told(steps, instead), _changed(obj, steps, instead)


def _below(value: Any, steps: tuple[Step, ...]) -> Iterator[tuple[tuple[Step, ...], Any]]:
    if steps:
        yield steps, value
    if steps == ("metadata",):
        return
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        if key not in ("apiVersion", "kind") or steps:
            yield from _below(inner, (*steps, key))


def _changed(obj: Raw, steps: tuple[Step, ...], instead: Any) -> Raw:
    made = json.loads(json.dumps(obj))  # parts that samples share become two
    holder: Any = made
    for step in steps[:-1]:
        holder = holder[step]
    if instead is GONE:
        del holder[steps[-1]]
    else:
        holder[steps[-1]] = instead
    return made


def _told(steps: tuple[Step, ...], instead: Any) -> str:
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    return f"{path[1:]} " + ("is missing" if instead is GONE else f"= {str(instead)[:40]!r}")
