"""Fields and types that the proposals add to the published API; read by tools/schemagen.py.

KEP-3008 ("Kubernetes API", "Access control", "Default and limits") and KEP-3675 (claims of resource.k8s.io/v1alpha1). A
field is (name, spec as in types.txt, description); a trailing "!" on the name marks it as required.
"""

from __future__ import annotations

_BY_NAME = "patch=merge key=name list=map:name"
_QOS_REQUESTS = f"[]core/v1.QOSResourceRequest {_BY_NAME}"
_POD_QOS_REQUESTS = f"[]core/v1.PodQOSResourceRequest {_BY_NAME}"
_NAME = ("name!", "string(QOSResourceName)", "Name of the QoS resource.")

ADDED_FIELDS: dict[str, list[tuple[str, str, str]]] = {
    "core/v1.PodSpec": [
        (
            "qosResources",
            _POD_QOS_REQUESTS,
            "Pod-level requests of QoS resources. A container-level QoS resource named here is the default for every "
            "container of the pod.",
        )
    ],
    "core/v1.ResourceRequirements": [
        (
            "qosResources",
            _QOS_REQUESTS,
            "The QoS resources that a container requests, one class of each. A pod requests them in spec.qosResources.",
        )
    ],
    "core/v1.PodStatus": [
        ("qosResources", _POD_QOS_REQUESTS, "The pod-level QoS classes that were assigned, implicit defaults included.")
    ],
    "core/v1.ContainerStatus": [
        ("qosResources", _QOS_REQUESTS, "The QoS classes that were assigned, implicit defaults included.")
    ],
    "core/v1.NodeStatus": [
        ("qosResources", "core/v1.QOSResourceStatus", "The QoS resources that are available on the node.")
    ],
    "core/v1.ResourceQuotaSpec": [
        ("qosResources", "core/v1.QOSResourceQuota", "The QoS classes that may be used, and how often.")
    ],
    "core/v1.ResourceQuotaStatus": [
        ("qosResources", "core/v1.QOSResourceQuota", "The enforced set of allowed QoS classes."),
        ("qosResourcesUsage", "core/v1.QOSResourceQuota", "The observed usage of QoS classes in the namespace."),
    ],
    "core/v1.LimitRangeItem": [
        ("qosResources", f"[]core/v1.LimitQOSResource {_BY_NAME}", "Default class and per-pod limits of QoS resources.")
    ],
    "core/v1.PodResourceClaim": [
        ("source", "core/v1.ClaimSource", "Where the claim is found (the form of resource.k8s.io/v1alpha1).")
    ],
}

ADDED_TYPES: dict[str, tuple[str, list[tuple[str, str, str]]]] = {
    "core/v1.QOSResourceRequest": (
        "A request for one QoS resource of a container.",
        [_NAME, ("class!", "string", "Name of the class, inside the QoS resource.")],
    ),
    "core/v1.PodQOSResourceRequest": (
        "A request for one QoS resource of a pod.",
        [_NAME, ("class!", "string", "Name of the class, inside the QoS resource.")],
    ),
    "core/v1.QOSResourceStatus": (
        "The QoS resources that are available on a node.",
        [
            ("podQoSResources", f"[]core/v1.QOSResourceInfo {_BY_NAME}", "QoS resources that pods can be assigned to."),
            (
                "containerQoSResources",
                f"[]core/v1.QOSResourceInfo {_BY_NAME}",
                "QoS resources that containers can be assigned to.",
            ),
        ],
    ),
    "core/v1.QOSResourceInfo": (
        "One QoS resource of a node.",
        [
            _NAME,
            ("mutable", "bool", "True if the class of a running pod or container can be changed in place."),
            ("classes", f"[]core/v1.QOSResourceClassInfo {_BY_NAME}", "Classes that are available for assignment."),
            (
                "runtimeHandlers",
                f"[]core/v1.QOSResourceHandlerInfo {_BY_NAME}",
                "Runtime handlers whose pods are offered some of the classes only. "
                "Pods of any other handler are offered all.",
            ),
        ],
    ),
    "core/v1.QOSResourceHandlerInfo": (
        "The classes of a QoS resource that pods of one runtime handler are offered.",
        [
            ("name!", "string", "Name of the handler, as in a RuntimeClass. Empty is the node's default handler."),
            ("classes", "[]string list=set", "Names of the classes; none of them when empty."),
        ],
    ),
    "core/v1.QOSResourceClassInfo": (
        "One class of a QoS resource.",
        [
            ("name!", "string", "Name of the class."),
            ("capacity", "int64", "How many may be assigned to the class at the same time. Zero means no restriction."),
        ],
    ),
    "core/v1.QOSResourceQuota": (
        "The QoS classes that a namespace may use.",
        [
            (
                "pod",
                f"[]core/v1.AllowedQOSResource {_BY_NAME}",
                "Allowed QoS resources of pods. An empty list allows none; absent means that pods are not governed.",
            ),
            (
                "container",
                f"[]core/v1.AllowedQOSResource {_BY_NAME}",
                "Allowed QoS resources of containers. An empty list allows none; absent means that they are free.",
            ),
        ],
    ),
    "core/v1.AllowedQOSResource": (
        "Access to one QoS resource.",
        [_NAME, ("classes", f"[]core/v1.AllowedQOSResourceClass {_BY_NAME}", "Allowed classes.")],
    ),
    "core/v1.AllowedQOSResourceClass": (
        "One allowed class of a QoS resource.",
        [
            ("name!", "string", "Name of the class."),
            ("capacity", "int64", "Hard limit for the usage of the class. Absent means unlimited, 0 means none."),
        ],
    ),
    "core/v1.LimitQOSResource": (
        "Limits of one QoS resource.",
        [
            _NAME,
            ("default", "string", "The class that is assigned when none is requested."),
            ("max", f"[]core/v1.QOSResourceClassLimit {_BY_NAME}", "Maximum usage of classes."),
        ],
    ),
    "core/v1.QOSResourceClassLimit": (
        "A limit for one class of a QoS resource.",
        [
            ("name!", "string", "Name of the class."),
            ("capacity", "int64", "The limit for the usage of the class. Absent means unlimited, 0 means none."),
        ],
    ),
    "core/v1.ClaimSource": (
        "A reference to a claim or to the template it is made from; exactly one is set.",
        [
            ("resourceClaimName", "string", "Name of a ResourceClaim in the pod's namespace."),
            ("resourceClaimTemplateName", "string", "Name of a ResourceClaimTemplate in the pod's namespace."),
        ],
    ),
    "resource/v1alpha1.ResourceClass": (
        "A class of resources, and the driver that allocates them.",
        [
            ("apiVersion", "string", "APIVersion defines the versioned schema of this representation of an object."),
            ("kind", "string", "Kind is a string value representing the REST resource this object represents."),
            ("metadata", "meta/v1.ObjectMeta", "Standard object metadata."),
            ("driverName!", "string", "Name of the driver that allocates resources of this class."),
            (
                "parametersRef",
                "resource/v1alpha1.ResourceClassParametersReference",
                "An object with parameters for the driver.",
            ),
            ("suitableNodes", "core/v1.NodeSelector", "Nodes that a pod with a claim of this class can run on."),
        ],
    ),
    "resource/v1alpha1.ResourceClassParametersReference": (
        "Where the parameters of a class are kept.",
        [
            ("apiGroup", "string", "API group of the object; empty for the core group."),
            ("kind!", "string", "Kind of the object."),
            ("name!", "string", "Name of the object."),
            ("namespace", "string", "Namespace of the object; empty when it has none."),
        ],
    ),
    "resource/v1alpha1.ResourceClaim": (
        "A request for resources, and its allocation.",
        [
            ("apiVersion", "string", "APIVersion defines the versioned schema of this representation of an object."),
            ("kind", "string", "Kind is a string value representing the REST resource this object represents."),
            ("metadata", "meta/v1.ObjectMeta", "Standard object metadata."),
            ("spec!", "resource/v1alpha1.ResourceClaimSpec", "What is claimed."),
            ("status", "resource/v1alpha1.ResourceClaimStatus", "Whether and how the claim was allocated."),
        ],
    ),
    "resource/v1alpha1.ResourceClaimSpec": (
        "What is claimed.",
        [
            ("resourceClassName!", "string", "Name of the ResourceClass, which names the driver."),
            (
                "parametersRef",
                "resource/v1alpha1.ResourceClaimParametersReference",
                "An object in the claim's namespace with parameters for the driver, usually a ConfigMap.",
            ),
            ("allocationMode", "string(AllocationMode)", "WaitForFirstConsumer (default) or Immediate."),
        ],
    ),
    "resource/v1alpha1.ResourceClaimParametersReference": (
        "Where the parameters of a claim are kept.",
        [
            ("apiGroup", "string", "API group of the object; empty for the core group."),
            ("kind!", "string", "Kind of the object."),
            ("name!", "string", "Name of the object."),
        ],
    ),
    "resource/v1alpha1.ResourceClaimStatus": (
        "Whether and how a claim was allocated.",
        [
            ("driverName", "string", "Name of the driver, copied from the class when the claim was allocated."),
            ("allocation", "resource/v1alpha1.AllocationResult", "Set once the claim was allocated."),
            (
                "reservedFor",
                "[]resource/v1alpha1.ResourceClaimConsumerReference list=map:uid",
                "The pods that may use the claim.",
            ),
            ("deallocationRequested", "bool", "True while the claim waits to be given back."),
        ],
    ),
    "resource/v1alpha1.AllocationResult": (
        "What a driver allocated.",
        [
            ("resourceHandle", "string", "Opaque data that travels to the driver on the node."),
            ("availableOnNodes", "core/v1.NodeSelector", "Nodes that can use the allocation; absent means all."),
            ("shareable", "bool", "True if more than one pod may use the claim at the same time."),
        ],
    ),
    "resource/v1alpha1.ResourceClaimConsumerReference": (
        "One user of a claim.",
        [
            ("apiGroup", "string", "API group of the user; empty for the core group."),
            ("resource!", "string", "Resource of the user, for example pods."),
            ("name!", "string", "Name of the user."),
            ("uid!", "string(types.UID)", "UID of the user."),
        ],
    ),
    "resource/v1alpha1.ResourceClaimTemplate": (
        "A template from which one claim per pod is made.",
        [
            ("apiVersion", "string", "APIVersion defines the versioned schema of this representation of an object."),
            ("kind", "string", "Kind is a string value representing the REST resource this object represents."),
            ("metadata", "meta/v1.ObjectMeta", "Standard object metadata."),
            ("spec!", "resource/v1alpha1.ResourceClaimTemplateSpec", "The claim that is made."),
        ],
    ),
    "resource/v1alpha1.ResourceClaimTemplateSpec": (
        "The claim that is made from a template.",
        [
            ("metadata", "meta/v1.ObjectMeta", "Labels and annotations of the claim."),
            ("spec!", "resource/v1alpha1.ResourceClaimSpec", "Spec of the claim, copied unchanged."),
        ],
    ),
}

for _kind in ("ResourceClass", "ResourceClaim", "ResourceClaimTemplate"):
    ADDED_TYPES[f"resource/v1alpha1.{_kind}List"] = (
        f"A collection of {_kind} objects.",
        [
            ("apiVersion", "string", "APIVersion defines the versioned schema of this representation of an object."),
            ("kind", "string", "Kind is a string value representing the REST resource this object represents."),
            ("metadata", "meta/v1.ListMeta", "Standard list metadata."),
            ("items!", f"[]resource/v1alpha1.{_kind}", "The objects of the collection."),
        ],
    )
