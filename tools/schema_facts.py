"""Facts about API types that the published models leave out; read by tools/schemagen.py.

The models of lightkube-models know field names, Python types and which fields are required. What merging, strict
decoding and OpenAPI need beyond that is written here by hand, from the published Kubernetes API conventions: integer
widths, map values, list semantics, named string types, and how fields are written back. Keys are "Type.field".
"""

from __future__ import annotations

# The kinds that are served, as (group, version, package of the models, kind, has a List kind).
KINDS: list[tuple[str, str, str, str, bool]] = [
    *(
        ("", "v1", "core_v1", kind, True)
        for kind in (
            "Namespace", "Node", "Pod", "ResourceQuota", "LimitRange", "ConfigMap", "Secret", "Service",
            "ServiceAccount", "ReplicationController", "Event", "PersistentVolumeClaim", "PodTemplate",
        )
    ),
    ("", "v1", "core_v1", "Binding", False),
    ("", "v1", "meta_v1", "Status", False),
    ("", "v1", "meta_v1", "DeleteOptions", False),
    ("apps", "v1", "apps_v1", "ReplicaSet", True),
    ("apps", "v1", "apps_v1", "Deployment", True),
    ("authentication.k8s.io", "v1", "authentication_v1", "SelfSubjectReview", False),
    ("authentication.k8s.io", "v1", "authentication_v1", "TokenReview", False),
    ("authentication.k8s.io", "v1", "authentication_v1", "TokenRequest", False),
    ("authorization.k8s.io", "v1", "authorization_v1", "SelfSubjectAccessReview", False),
    ("authorization.k8s.io", "v1", "authorization_v1", "SelfSubjectRulesReview", False),
    ("authorization.k8s.io", "v1", "authorization_v1", "SubjectAccessReview", False),
    ("authorization.k8s.io", "v1", "authorization_v1", "LocalSubjectAccessReview", False),
    ("autoscaling", "v1", "autoscaling_v1", "Scale", False),
    ("coordination.k8s.io", "v1", "coordination_v1", "Lease", True),
    ("events.k8s.io", "v1", "events_v1", "Event", True),
    ("policy", "v1", "policy_v1", "PodDisruptionBudget", True),
    ("policy", "v1", "policy_v1", "Eviction", False),
    ("rbac.authorization.k8s.io", "v1", "rbac_v1", "Role", True),
    ("rbac.authorization.k8s.io", "v1", "rbac_v1", "RoleBinding", True),
    ("rbac.authorization.k8s.io", "v1", "rbac_v1", "ClusterRole", True),
    ("rbac.authorization.k8s.io", "v1", "rbac_v1", "ClusterRoleBinding", True),
    ("resource.k8s.io", "v1alpha1", "resource_v1alpha1", "ResourceClass", True),
    ("resource.k8s.io", "v1alpha1", "resource_v1alpha1", "ResourceClaim", True),
    ("resource.k8s.io", "v1alpha1", "resource_v1alpha1", "ResourceClaimTemplate", True),
    ("scheduling.k8s.io", "v1", "scheduling_v1", "PriorityClass", True),
]  # fmt: skip

# Kinds whose types are described by tools/published.txt, which tools/gotypes.py makes from the Go sources.
PUBLISHED: list[tuple[str, str, str, str, bool]] = [
    *(("", "v1", "core_v1", kind, True) for kind in ("PersistentVolume", "Endpoints", "ComponentStatus")),
    *(
        ("admissionregistration.k8s.io", "v1", "admissionregistration_v1", kind, True)
        for kind in (
            "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "MutatingWebhookConfiguration",
            "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration",
        )
    ),
    ("apiextensions.k8s.io", "v1", "apiextensions_v1", "CustomResourceDefinition", True),
    ("apiregistration.k8s.io", "v1", "apiregistration_v1", "APIService", True),
    *(("apps", "v1", "apps_v1", kind, True) for kind in ("ControllerRevision", "DaemonSet", "StatefulSet")),
    *(("autoscaling", version, f"autoscaling_{version}", "HorizontalPodAutoscaler", True) for version in ("v1", "v2")),
    *(("batch", "v1", "batch_v1", kind, True) for kind in ("CronJob", "Job")),
    *(
        ("certificates.k8s.io", "v1", "certificates_v1", kind, True)
        for kind in ("CertificateSigningRequest", "ClusterTrustBundle", "PodCertificateRequest")
    ),
    ("discovery.k8s.io", "v1", "discovery_v1", "EndpointSlice", True),
    *(
        ("flowcontrol.apiserver.k8s.io", "v1", "flowcontrol_v1", kind, True)
        for kind in ("FlowSchema", "PriorityLevelConfiguration")
    ),
    *(
        ("networking.k8s.io", "v1", "networking_v1", kind, True)
        for kind in ("IPAddress", "Ingress", "IngressClass", "NetworkPolicy", "ServiceCIDR")
    ),
    ("node.k8s.io", "v1", "node_v1", "RuntimeClass", True),
    *(
        ("resource.k8s.io", "v1", "resource_v1", kind, True)
        for kind in ("DeviceClass", "DeviceTaintRule", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice")
    ),
    *(
        ("storage.k8s.io", "v1", "storage_v1", kind, True)
        for kind in (
            "CSIDriver", "CSINode", "CSIStorageCapacity", "StorageClass", "VolumeAttachment", "VolumeAttributesClass",
        )
    ),
    ("storagemigration.k8s.io", "v1", "storagemigration_v1", "StorageVersionMigration", True),
    ("", "v1", "meta_v1", "PartialObjectMetadata", True),
    *(("", "v1", "meta_v1", kind, False) for kind in ("APIGroup", "APIGroupList", "APIResourceList", "APIVersions")),
    ("apidiscovery.k8s.io", "v2", "apidiscovery_v2", "APIGroupDiscoveryList", False),
]  # fmt: skip

# Integers are 32 bits wide but for these.
INT64 = {
    "Condition.observedGeneration", "ContainerImage.sizeBytes", "DeleteOptions.gracePeriodSeconds",
    "DeploymentStatus.observedGeneration", "LinuxContainerUser.gid", "LinuxContainerUser.supplementalGroups",
    "LinuxContainerUser.uid", "ListMeta.remainingItemCount", "ObjectMeta.deletionGracePeriodSeconds",
    "ObjectMeta.generation", "PodCondition.observedGeneration", "PodDisruptionBudgetStatus.observedGeneration",
    "PodSecurityContext.fsGroup", "PodSecurityContext.runAsGroup", "PodSecurityContext.runAsUser",
    "PodSecurityContext.supplementalGroups", "PodSpec.activeDeadlineSeconds",
    "PodSpec.terminationGracePeriodSeconds", "PodStatus.observedGeneration", "Probe.terminationGracePeriodSeconds",
    "ReplicaSetStatus.observedGeneration", "ReplicationControllerStatus.observedGeneration",
    "SecurityContext.runAsGroup", "SecurityContext.runAsUser", "ServiceAccountTokenProjection.expirationSeconds",
    "SleepAction.seconds", "TokenRequestSpec.expirationSeconds", "Toleration.tolerationSeconds",
}  # fmt: skip

# Maps hold strings but for these.
MAP_VALUES = {
    **dict.fromkeys(
        (
            "ContainerStatus.allocatedResources", "LimitRangeItem.default", "LimitRangeItem.defaultRequest",
            "LimitRangeItem.max", "LimitRangeItem.maxLimitRequestRatio", "LimitRangeItem.min",
            "NodeAllocatableResourceClaimStatus.resources", "NodeStatus.allocatable", "NodeStatus.capacity",
            "PersistentVolumeClaimStatus.allocatedResources", "PersistentVolumeClaimStatus.capacity",
            "PodSpec.overhead", "PodStatus.allocatedResources", "ResourceQuotaSpec.hard",
            "ResourceQuotaStatus.hard", "ResourceQuotaStatus.used", "ResourceRequirements.limits",
            "ResourceRequirements.requests", "VolumeResourceRequirements.limits",
            "VolumeResourceRequirements.requests",
        ),
        "quantity",
    ),
    "ConfigMap.binaryData": "bytes",
    "Secret.data": "bytes",
    "PodDisruptionBudgetStatus.disruptedPods": "time",
    "UserInfo.extra": "[]string",
    "UserInfo.attestations": "[]string",
    "TokenRequestSpec.attestations": "[]string",
    "SubjectAccessReviewSpec.extra": "[]string",
    "PersistentVolumeClaimStatus.allocatedResourceStatuses": "string(ClaimResourceStatus)",
}  # fmt: skip

# Single fields whose published Python type says less than the wire does.
FIELD_TYPES = {
    "PodCertificateProjection.maxExpirationSeconds": "int32",
}


def _merge(*fields: str, key: str, also: tuple[str, ...] = (), strategy: str = "merge") -> dict[str, str]:
    """Lists that both patch styles merge by `key`; apply may need more keys to tell items apart."""
    flags = f"patch={strategy} key={key} list=map:{','.join((key, *also))}"
    return dict.fromkeys(fields, flags)


_CONTAINERS = ("Container", "EphemeralContainer")

# List semantics. A list that is not here is replaced as a whole by both strategic merge and apply.
LISTS: dict[str, str] = {
    **_merge("PodSpec.containers", "PodSpec.initContainers", "PodSpec.ephemeralContainers", key="name"),
    **_merge("PodSpec.volumes", "PodSpec.resourceClaims", key="name", strategy="merge,retainKeys"),
    **_merge("PodStatus.resourceClaimStatuses", key="name", strategy="merge,retainKeys"),
    **_merge("PodSpec.imagePullSecrets", "PodSpec.schedulingGates", "ServiceAccount.secrets", key="name"),
    **_merge("PodSpec.hostAliases", key="ip"),
    **_merge("PodSpec.topologySpreadConstraints", key="topologyKey", also=("whenUnsatisfiable",)),
    **_merge(*(f"{c}.env" for c in _CONTAINERS), key="name"),
    **_merge(*(f"{c}.ports" for c in _CONTAINERS), key="containerPort", also=("protocol",)),
    **_merge(*(f"{c}.volumeMounts" for c in _CONTAINERS), key="mountPath"),
    **_merge(*(f"{c}.volumeDevices" for c in _CONTAINERS), key="devicePath"),
    **_merge("ContainerStatus.volumeMounts", key="mountPath"),
    **_merge("ContainerStatus.allocatedResourcesStatus", key="name"),
    **_merge("PodStatus.podIPs", key="ip"),
    "PodStatus.hostIPs": "patch=merge key=ip",
    "ResourceRequirements.claims": "list=map:name",
    "ResourceStatus.resources": "list=map:resourceID",
    **_merge("ServiceSpec.ports", key="port", also=("protocol",)),
    **_merge("NodeStatus.addresses", key="type"),
    "NodeSpec.podCIDRs": "patch=merge list=set",
    "ObjectMeta.finalizers": "patch=merge list=set",
    **_merge("ObjectMeta.ownerReferences", key="uid"),
    **_merge(
        "PodStatus.conditions",
        "NodeStatus.conditions",
        "NamespaceStatus.conditions",
        "ServiceStatus.conditions",
        "PersistentVolumeClaimStatus.conditions",
        "ReplicationControllerStatus.conditions",
        "ReplicaSetStatus.conditions",
        "DeploymentStatus.conditions",
        "PodDisruptionBudgetStatus.conditions",
        key="type",
    ),
}

# Objects that apply treats as one value, and objects with a patch strategy of their own.
ATOMIC_TYPES = {
    "ConfigMapKeySelector", "FileKeySelector", "LabelSelector", "LocalObjectReference", "NodeSelector",
    "NodeSelectorTerm", "ObjectFieldSelector", "ObjectReference", "OwnerReference", "ResourceFieldSelector",
    "RoleRef", "ScopeSelector", "SecretKeySelector", "SecretReference", "Subject", "TopologySelectorTerm",
    "TypedLocalObjectReference",
}  # fmt: skip
ATOMIC_MAPS = {"PodSpec.nodeSelector", "ReplicationControllerSpec.selector", "ServiceSpec.selector"}
OBJECT_STRATEGY = {
    "DeploymentSpec.strategy": "patch=retainKeys",
    "PodDisruptionBudgetSpec.selector": "patch=replace",
}
# Defaults that the published schema declares; apply fills keys of list items with them.
DEFAULTS = {"ContainerPort.protocol": '"TCP"', "ServicePort.protocol": '"TCP"', "LocalObjectReference.name": '""'}

# Named string types, which a decoder's complaint mentions by name.
STRING_TYPES = {
    "Container.imagePullPolicy": "PullPolicy", "EphemeralContainer.imagePullPolicy": "PullPolicy",
    "Container.restartPolicy": "ContainerRestartPolicy",
    "EphemeralContainer.restartPolicy": "ContainerRestartPolicy",
    "Container.terminationMessagePolicy": "TerminationMessagePolicy",
    "EphemeralContainer.terminationMessagePolicy": "TerminationMessagePolicy",
    "ContainerPort.protocol": "Protocol", "ServicePort.protocol": "Protocol",
    "ContainerResizePolicy.resourceName": "ResourceName", "HTTPGetAction.scheme": "URIScheme",
    "Capabilities.add": "Capability", "Capabilities.drop": "Capability", "EmptyDirVolumeSource.medium": "StorageMedium",
    "HostPathVolumeSource.type": "HostPathType", "LimitRangeItem.type": "LimitType",
    "NamespaceSpec.finalizers": "FinalizerName", "NamespaceStatus.phase": "NamespacePhase",
    "NodeAddress.type": "NodeAddressType", "NodeCondition.status": "ConditionStatus",
    "NodeCondition.type": "NodeConditionType", "NodeSelectorRequirement.operator": "NodeSelectorOperator",
    "ObjectMeta.uid": "types.UID", "ObjectReference.uid": "types.UID", "OwnerReference.uid": "types.UID",
    "Preconditions.uid": "types.UID", "DeleteOptions.propagationPolicy": "DeletionPropagation",
    "LabelSelectorRequirement.operator": "LabelSelectorOperator",
    "PersistentVolumeClaimSpec.accessModes": "PersistentVolumeAccessMode",
    "PersistentVolumeClaimSpec.volumeMode": "PersistentVolumeMode",
    "PersistentVolumeClaimStatus.accessModes": "PersistentVolumeAccessMode",
    "PersistentVolumeClaimStatus.phase": "PersistentVolumeClaimPhase",
    "PodCondition.status": "ConditionStatus", "PodCondition.type": "PodConditionType", "PodOS.name": "OSName",
    "PodReadinessGate.conditionType": "PodConditionType", "PodSpec.dnsPolicy": "DNSPolicy",
    "PodSpec.preemptionPolicy": "PreemptionPolicy", "PodSpec.restartPolicy": "RestartPolicy",
    "PodStatus.phase": "PodPhase", "PodStatus.qosClass": "PodQOSClass",
    "PodSecurityContext.fsGroupChangePolicy": "PodFSGroupChangePolicy",
    "PriorityClass.preemptionPolicy": "PreemptionPolicy", "ResourceQuotaSpec.scopes": "ResourceQuotaScope",
    "ScopedResourceSelectorRequirement.operator": "ScopeSelectorOperator",
    "ScopedResourceSelectorRequirement.scopeName": "ResourceQuotaScope", "SeccompProfile.type": "SeccompProfileType",
    "Secret.type": "SecretType", "SecurityContext.procMount": "ProcMountType",
    "ServiceSpec.externalTrafficPolicy": "ServiceExternalTrafficPolicy",
    "ServiceSpec.internalTrafficPolicy": "ServiceInternalTrafficPolicy",
    "ServiceSpec.ipFamilies": "IPFamily", "ServiceSpec.ipFamilyPolicy": "IPFamilyPolicy",
    "ServiceSpec.sessionAffinity": "ServiceAffinity", "ServiceSpec.type": "ServiceType",
    "Taint.effect": "TaintEffect", "Toleration.effect": "TaintEffect", "Toleration.operator": "TolerationOperator",
    "TopologySpreadConstraint.nodeAffinityPolicy": "NodeInclusionPolicy",
    "TopologySpreadConstraint.nodeTaintsPolicy": "NodeInclusionPolicy",
    "TopologySpreadConstraint.whenUnsatisfiable": "UnsatisfiableConstraintAction",
    "VolumeMount.mountPropagation": "MountPropagationMode", "DeploymentStrategy.type": "DeploymentStrategyType",
}  # fmt: skip

# Lists of published types that say something while empty: where there is none, policies are filled in.
KEPT_LISTS = {"[]autoscaling/v2.HPAScalingPolicy"}
# Optional scalars that are pointers in Go: a zero that a client wrote is kept. Any other optional zero is dropped when
# an object is written back; a required one is always written. A list of a class quota is kept although it is empty: it
# allows nothing, where no list at all forbids nothing (DESIGN ruling 4).
KEEP_ZERO = {
    "QOSResourceClassLimit.capacity", "QOSResourceQuota.container", "QOSResourceQuota.pod",
    "AllowedQOSResourceClass.capacity", "AppArmorProfile.localhostProfile", "AzureDiskVolumeSource.cachingMode",
    "AzureDiskVolumeSource.fsType", "AzureDiskVolumeSource.kind", "AzureDiskVolumeSource.readOnly",
    "CSIVolumeSource.fsType", "CSIVolumeSource.readOnly", "ClientIPConfig.timeoutSeconds",
    "ClusterTrustBundleProjection.name", "ClusterTrustBundleProjection.optional",
    "ClusterTrustBundleProjection.signerName", "ClusterTrustBundleProjection.user", "ConfigMap.immutable",
    "ConfigMapEnvSource.optional", "ConfigMapKeySelector.optional", "ConfigMapProjection.optional",
    "ConfigMapVolumeSource.defaultMode", "ConfigMapVolumeSource.defaultUser", "ConfigMapVolumeSource.optional",
    "Container.restartPolicy", "ContainerStatus.started", "ContainerStatus.stopSignal",
    "DeleteOptions.gracePeriodSeconds", "DeleteOptions.ignoreStoreReadErrorWithClusterBreakingPotential",
    "DeleteOptions.orphanDependents", "DeleteOptions.propagationPolicy", "DeploymentSpec.progressDeadlineSeconds",
    "DeploymentSpec.replicas", "DeploymentSpec.revisionHistoryLimit", "DeploymentStatus.collisionCount",
    "DeploymentStatus.terminatingReplicas", "DownwardAPIVolumeFile.mode", "DownwardAPIVolumeFile.user",
    "DownwardAPIVolumeSource.defaultMode", "DownwardAPIVolumeSource.defaultUser", "EmptyDirVolumeSource.mode",
    "EmptyDirVolumeSource.sizeLimit", "EphemeralContainer.restartPolicy", "FCVolumeSource.lun",
    "FileKeySelector.optional", "GRPCAction.service", "HostPathVolumeSource.type", "ISCSIVolumeSource.initiatorName",
    "KeyToPath.mode", "KeyToPath.user", "LeaseSpec.holderIdentity", "LeaseSpec.leaseDurationSeconds",
    "LeaseSpec.leaseTransitions", "LeaseSpec.preferredHolder", "LeaseSpec.strategy", "Lifecycle.stopSignal",
    "LoadBalancerIngress.ipMode", "NodeRuntimeHandlerFeatures.recursiveReadOnlyMounts",
    "NodeRuntimeHandlerFeatures.userNamespaces", "NodeFeatures.supplementalGroupsPolicy", "NodeSwapStatus.capacity",
    "ObjectMeta.deletionGracePeriodSeconds", "OwnerReference.blockOwnerDeletion", "OwnerReference.controller",
    "PersistentVolumeClaimSpec.storageClassName", "PersistentVolumeClaimSpec.volumeAttributesClassName",
    "PersistentVolumeClaimSpec.volumeMode", "PersistentVolumeClaimStatus.currentVolumeAttributesClassName",
    "PodDNSConfigOption.value", "PodDisruptionBudgetSpec.maxUnavailable", "PodDisruptionBudgetSpec.minAvailable",
    "PodDisruptionBudgetSpec.unhealthyPodEvictionPolicy", "PodResourceClaim.resourceClaimName",
    "PodResourceClaim.resourceClaimTemplateName", "PodResourceClaimStatus.resourceClaimName",
    "PodSecurityContext.fsGroup", "PodSecurityContext.fsGroupChangePolicy", "PodSecurityContext.runAsGroup",
    "PodSecurityContext.runAsNonRoot", "PodSecurityContext.runAsUser", "PodSecurityContext.seLinuxChangePolicy",
    "PodSecurityContext.supplementalGroupsPolicy", "PodSpec.activeDeadlineSeconds",
    "PodSpec.automountServiceAccountToken", "PodSpec.enableServiceLinks", "PodSpec.hostUsers",
    "PodSpec.hostnameOverride", "PodSpec.preemptionPolicy", "PodSpec.priority", "PodSpec.runtimeClassName",
    "PodSpec.setHostnameAsFQDN", "PodSpec.shareProcessNamespace", "PodSpec.terminationGracePeriodSeconds",
    "PortStatus.error", "Preconditions.resourceVersion", "Preconditions.uid", "PriorityClass.preemptionPolicy",
    "Probe.terminationGracePeriodSeconds", "ProjectedVolumeSource.defaultMode", "ProjectedVolumeSource.defaultUser",
    "QOSResourceClassInfo.capacity", "ReplicaSetSpec.replicas", "ReplicaSetStatus.terminatingReplicas",
    "ReplicationControllerSpec.replicas", "ResourceFieldSelector.divisor", "RoleRef.apiGroup",
    "RollingUpdateDeployment.maxSurge", "RollingUpdateDeployment.maxUnavailable", "SeccompProfile.localhostProfile",
    "Secret.immutable", "SecretEnvSource.optional", "SecretKeySelector.optional", "SecretProjection.optional",
    "SecretVolumeSource.defaultMode", "SecretVolumeSource.defaultUser", "SecretVolumeSource.optional",
    "SecurityContext.allowPrivilegeEscalation", "SecurityContext.privileged", "SecurityContext.procMount",
    "SecurityContext.readOnlyRootFilesystem", "SecurityContext.runAsGroup", "SecurityContext.runAsNonRoot",
    "SecurityContext.runAsUser", "ServiceAccount.automountServiceAccountToken",
    "ServiceAccountTokenProjection.expirationSeconds", "ServiceAccountTokenProjection.user",
    "ServicePort.appProtocol", "ServicePort.targetPort", "ServiceSpec.allocateLoadBalancerNodePorts",
    "ServiceSpec.internalTrafficPolicy", "ServiceSpec.ipFamilyPolicy", "ServiceSpec.loadBalancerClass",
    "ServiceSpec.trafficDistribution", "Toleration.tolerationSeconds", "TopologySpreadConstraint.minDomains",
    "TopologySpreadConstraint.nodeAffinityPolicy", "TopologySpreadConstraint.nodeTaintsPolicy",
    "TypedLocalObjectReference.apiGroup", "TypedObjectReference.apiGroup", "TypedObjectReference.namespace",
    "VolumeMount.mountPropagation", "VolumeMount.recursiveReadOnly", "VolumeMountStatus.recursiveReadOnly",
    "WindowsSecurityContextOptions.gmsaCredentialSpec", "WindowsSecurityContextOptions.gmsaCredentialSpecName",
    "WindowsSecurityContextOptions.hostProcess", "WindowsSecurityContextOptions.runAsUserName",
}  # fmt: skip

# Fields that are written even when nobody set them: objects that are not pointers in Go, and times without omitempty.
_SPEC_AND_STATUS = (
    "Deployment", "Namespace", "Node", "PersistentVolumeClaim", "Pod", "PodDisruptionBudget", "ReplicaSet",
    "ReplicationController", "ResourceQuota", "Scale", "Service", "SelfSubjectAccessReview", "SelfSubjectRulesReview",
    "SubjectAccessReview", "LocalSubjectAccessReview", "TokenRequest", "TokenReview",
)  # fmt: skip
ALWAYS_WRITTEN = {
    *(f"{kind}.{field}" for kind in _SPEC_AND_STATUS for field in ("spec", "status")),
    *(f"{kind}.metadata" for _, _, _, kind, _ in KINDS if kind != "DeleteOptions"),
    "Binding.target", "Container.resources", "ContainerStateRunning.startedAt", "ContainerStateTerminated.finishedAt",
    "ContainerStateTerminated.startedAt", "ContainerStatus.lastState", "ContainerStatus.state",
    "Condition.lastTransitionTime", "DeploymentCondition.lastTransitionTime", "DeploymentCondition.lastUpdateTime",
    "DeploymentSpec.strategy", "DeploymentSpec.template", "EphemeralContainer.resources", "Event.deprecatedSource",
    "Event.eventTime", "Event.firstTimestamp", "Event.involvedObject", "Event.lastTimestamp", "Event.source",
    "Lease.spec", "LimitRange.spec", "NodeCondition.lastHeartbeatTime", "NodeCondition.lastTransitionTime",
    "NodeDaemonEndpoints.kubeletEndpoint", "NodeStatus.daemonEndpoints", "NodeStatus.nodeInfo",
    "PersistentVolumeClaimSpec.resources", "PersistentVolumeClaimTemplate.metadata",
    "PersistentVolumeClaimTemplate.spec", "PodCondition.lastProbeTime", "PodCondition.lastTransitionTime",
    "PodTemplate.template", "PodTemplateSpec.metadata", "PodTemplateSpec.spec", "PreferredSchedulingTerm.preference",
    "ReplicaSetCondition.lastTransitionTime", "ReplicaSetSpec.template",
    "ReplicationControllerCondition.lastTransitionTime", "ResourceClaim.spec", "ResourceClaim.status",
    "ResourceClaimTemplate.spec", "ResourceClaimTemplateSpec.metadata", "ResourceClaimTemplateSpec.spec",
    "RoleBinding.roleRef", "ClusterRoleBinding.roleRef", "ClusterRole.rules", "Role.rules",
    "SelfSubjectReview.status", "ServiceStatus.loadBalancer", "WeightedPodAffinityTerm.podAffinityTerm",
    "ContainerImage.names", "DeploymentCondition.status", "DeploymentCondition.type", "Event.deprecatedFirstTimestamp",
    "Event.deprecatedLastTimestamp", "Event.reportingComponent", "Event.reportingInstance",
    "NamespaceCondition.lastTransitionTime", "PersistentVolumeClaimCondition.lastProbeTime",
    "PersistentVolumeClaimCondition.lastTransitionTime", "PodDisruptionBudgetStatus.currentHealthy",
    "PodDisruptionBudgetStatus.desiredHealthy", "PodDisruptionBudgetStatus.disruptionsAllowed",
    "PodDisruptionBudgetStatus.expectedPods", "ProjectedVolumeSource.sources", "ReplicaSetCondition.status",
    "ReplicaSetCondition.type",
}  # fmt: skip
