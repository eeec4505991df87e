"""The demo's stories: each proposal's own story as kubectl commands with what must come of them. Data, no
I/O."""

from __future__ import annotations

from dataclasses import dataclass

from kubeqos.cli.local.storyfiles import CLAIM, CLASS_PODS, CLASS_QUOTA, EVERY_CLASS, NOISY, QUOTAS, ROLES, standard

STAGE = frozenset({"qrm", "cci", "hybrid"})
"""The nodes on which the stories are played: what `kubeqos up` starts by default."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do: what to say, the command, and what its output must show.

    `expect` are regular expressions that must all be found, tried until they are or time runs out. A command that is
    meant to be refused has `refused`. `{option}` tells a command which cluster is meant, where it is not the usual one.
    """

    say: str
    command: str
    expect: tuple[str, ...] = ()
    manifest: str = ""
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Story:
    """What one proposal promises."""

    name: str
    title: str
    steps: tuple[Step, ...]


QOS = Story(
    "pod-qos",
    "Pod QoS classes: how a pod wants to be treated follows from what it asks for",
    (
        Step("Three pods, one of each class.", "kubectl apply -f -", ("pod/guaranteed created",), EVERY_CLASS),
        Step(
            "The server has worked out their classes.",
            "kubectl get pods -o custom-columns=NAME:.metadata.name,QOS:.status.qosClass,PHASE:.status.phase",
            (
                r"best-effort\s+BestEffort\s+Running",
                r"burstable\s+Burstable\s+Running",
                r"guaranteed\s+Guaranteed\s+Running",
            ),
        ),
        Step(
            "And can say why.", "kubeqos why burstable", (r"class +Burstable: container 'app': memory request 128Mi ≠",)
        ),
    ),
)

SCOPES = Story(
    "quota-scoping",
    "Scoped quotas: one quota for best-effort pods, another for the rest",
    (
        Step("Two quotas with scopes.", "kubectl apply -f -", ("resourcequota/quota-best-effort created",), QUOTAS),
        Step("A best-effort pod is charged to the first.", "kubectl run one --image=app:1", ("pod/one created",)),
        Step(
            "A second one is one too many.",
            "kubectl run two --image=app:1",
            (r"exceeded quota: quota-best-effort, requested: pods=1, used: pods=1, limited: pods=1",),
            refused=True,
        ),
        Step(
            "The other quota wants to know what a pod needs.",
            "kubectl create quota more --hard=pods=5,requests.cpu=2 --scopes=NotBestEffort",
            ("resourcequota/more created",),
        ),
        Step("How full they are.", "kubeqos quota", (r"pods +\[#{20}\] 100% +1/1",)),
    ),
)

CLASSES = Story(
    "KEP-3008",
    "QoS-class resources: ask for a class, and get it while there is room",
    (
        Step("The proposal's noisy neighbours, verbatim.", "kubectl apply -f -", ("created",), NOISY),
        Step(
            "Each container runs in its class; what nobody asked for is the runtime's default.",
            "kubeqos describe pod qos-resource-example",
            (r"main-app +rdt +exclusive +exclusive", r"sidecar +blockio +throttled +throttled"),
        ),
        Step(
            "Three pods want the class gold, of which node hybrid has two.",
            "kubectl apply -f -",
            ("created",),
            CLASS_PODS,
        ),
        Step(
            "One waits, and says for what.",
            "kubectl get events --field-selector reason=FailedScheduling -o custom-columns=MESSAGE:.message",
            (r"QoS class rdt=gold exhausted \(2/2 used\)",),
        ),
        Step("A slot is freed.", "kubectl delete pod gold-1 --now", (r'pod "gold-1" deleted',)),
        Step("The one that waited runs.", "kubectl get pods -l app=gold", (r"gold-2 .*Running", r"gold-3 .*Running")),
        Step("A quota may allow classes by name.", "kubectl apply -f -", ("created",), CLASS_QUOTA),
        Step(
            "What it does not list is not to be had.",
            "kubectl apply -f -",
            (r'class "gold" of .*rdt is not allowed \(allowed: silver, bronze\)',),
            CLASS_PODS.replace("gold-", "late-"),
            refused=True,
        ),
    ),
)

PLUGINS = Story(
    "KEP-3461",
    "QRM: resource plugins hand out CPUs by role, and change their mind while pods run",
    (
        Step("An online service and an offline job.", "kubectl apply -f -", ("created",), ROLES),
        Step(
            "The CPU plugin, a process of its own, put each into the pool of its role.",
            "kubeqos map qrm",
            (r"demo-kep-3461/online/app +0-7,40-47", r"demo-kep-3461/offline/app +8-9,48-49"),
        ),
        Step(
            "At night the job may have more: a QoS system resizes the pools.",
            "kubeqos plugin cpu set-pool --node qrm{option} online=8 offline=12",
            (),
        ),
        Step(
            "Within a few seconds both containers have moved, without a restart.",
            "kubeqos map qrm",
            (r"demo-kep-3461/online/app +0-3,40-43", r"demo-kep-3461/offline/app +4-9,44-49"),
        ),
    ),
)

DRIVERS = Story(
    "KEP-3675",
    "CCI: a claim for cores with attributes, served by a compute driver",
    (
        Step("A pod without claims, on the node with the driver.", "kubectl apply -f -", ("created",), standard("cci")),
        Step("It may use every core that nobody owns.", "kubeqos map cci", (r"demo-kep-3675/standard/app +2-79",)),
        Step(
            "The proposal's claim: 5 exclusive cores with siblings on one NUMA node, and 20 shared ones.",
            "kubectl apply -f -",
            ("pod/hpc created",),
            CLAIM,
        ),
        Step(
            "The driver has chosen, and the pod without claims has made room.",
            "kubeqos map cci",
            (r"A demo-kep-3675/hpc/app +6 +2-7", r"demo-kep-3675/standard/app +8-79"),
        ),
        Step("When the claim's pod goes, its cores come back.", "kubectl delete pod hpc --now", ('"hpc" deleted',)),
        Step("To everybody.", "kubeqos map cci", (r"demo-kep-3675/standard/app +2-79",)),
    ),
)

STORIES = (QOS, SCOPES, CLASSES, PLUGINS, DRIVERS)
