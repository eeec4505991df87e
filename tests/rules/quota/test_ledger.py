"""The ledger decides exactly, charges what it said, and never drifts."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from kubeqos.gates import FeatureGates
from kubeqos.model.objects import PodView
from kubeqos.model.quantity import Quantity
from kubeqos.rules.offline import Answer, Offline
from kubeqos.rules.quota import Charge, OverQuota, Quota, QuotaLedger, WithinQuota, charge_pod, decide
from kubeqos.rules.requests import Admitted as AdmittedWrite
from tests.rules.quota.objects import Raw, container, pod, quota, used, why

NAMESPACE = "default"


def cluster_with(*quotas: Raw) -> Offline:
    cluster = Offline()
    for raw in quotas:
        assert cluster.apply(raw).ok
    return cluster


def asking(name: str, cpu: str) -> Raw:
    return pod(name, container(requests={"cpu": cpu}))


def test_who_forgets_a_request_is_told_which_and_where() -> None:
    cluster = cluster_with(quota("q", {"requests.cpu": "4", "limits.memory": "4Gi"}))
    answer = cluster.apply(pod("p", container("b"), container("a", requests={"cpu": "1"})))
    assert why(answer) == (
        'pods "p" is forbidden: failed quota: q: must specify limits.memory for: a,b; requests.cpu for: b'
    )


def test_a_quota_that_was_lowered_refuses_growth_but_not_endings() -> None:
    cluster = cluster_with(quota("q", {"pods": "3"}))
    for name in "abc":
        assert cluster.apply(pod(name)).ok
    cluster.apply(quota("q", {"pods": "1"}))
    assert used(cluster, "q") == {"pods": "3"}
    assert not cluster.apply(pod("d")).ok
    assert cluster.delete("pods", NAMESPACE, "a").ok
    assert used(cluster, "q") == {"pods": "2"}


def test_a_new_quota_counts_what_is_there_already() -> None:
    cluster = cluster_with()
    cluster.apply(asking("a", "100m"))
    cluster.apply(quota("q", {"requests.cpu": "1", "resourcequotas": "5"}))
    assert used(cluster, "q") == {"requests.cpu": "100m", "resourcequotas": "1"}


def test_usage_is_printed_in_the_suffix_of_whoever_is_left() -> None:
    cluster = cluster_with(quota("q", {"requests.memory": "10Gi"}))
    cluster.apply(pod("decimal", container(requests={"memory": "500M"})))
    cluster.apply(pod("binary", container(requests={"memory": "128Mi"})))
    assert used(cluster, "q") == {"requests.memory": "634217728"}
    cluster.delete("pods", NAMESPACE, "decimal")
    assert used(cluster, "q") == {"requests.memory": "128Mi"}


def test_a_pod_that_outlives_its_grace_period_is_released_once() -> None:
    ledger = QuotaLedger()
    raw = pod("p")
    raw["metadata"]["uid"] = "u1"
    view = PodView.of(raw)
    ledger.put(NAMESPACE, Quota.of(quota("q", {"pods": "5", "count/pods": "5"})), [charge_pod(view)])
    assert set(ledger.expire(NAMESPACE, view)) == {"q"}
    assert ledger.expire(NAMESPACE, view) == {}
    [only] = ledger.quotas(NAMESPACE)
    assert only.status()["used"] == {"count/pods": "1", "pods": "0"}
    gone = ledger.decide(NAMESPACE, charge_pod(view, expired=view.metadata.uid in ledger.expired), None, enforce=False)
    assert isinstance(gone, WithinQuota)
    ledger.apply(NAMESPACE, gone.deltas)
    assert only.status()["used"] == {"count/pods": "0", "pods": "0"}


# -- laws --------------------------------------------------------------------------------------------------------

CPU = st.sampled_from(["50m", "100m", "0.25", "1", "1e0", "1500m"])
MEMORY = st.sampled_from(["10Mi", "100M", "1e8", "128Mi", "1Gi"])
PHASES = st.sampled_from(["Pending", "Running", "Succeeded", "Failed"])
SCOPES = st.sampled_from(
    [[], ["BestEffort"], ["NotBestEffort"], ["Terminating"], ["NotTerminating"], ["NotTerminating", "NotBestEffort"]]
)


@st.composite
def resources(draw: st.DrawFn) -> Raw:
    """Nothing, requests, or requests with limits above them."""
    out: Raw = {}
    shape = draw(st.sampled_from(["nothing", "requests", "both", "both"]))
    if shape != "nothing":
        out["requests"] = {"cpu": draw(CPU), "memory": draw(MEMORY)}
    if shape == "both":
        out["limits"] = {"cpu": draw(st.sampled_from(["1500m", "2"])), "memory": draw(st.sampled_from(["2G", "1Gi"]))}
    if draw(st.integers(0, 3)) == 0:
        out["qosResources"] = [{"name": "rdt", "class": draw(st.sampled_from(["gold", "silver"]))}]
    return out


@st.composite
def pods(draw: st.DrawFn) -> Raw:
    spec: Raw = {
        "containers": [container(f"c{n}") | {"resources": draw(resources())} for n in range(draw(st.integers(1, 2)))]
    }
    if draw(st.booleans()):
        spec["activeDeadlineSeconds"] = 60
    if draw(st.booleans()):
        spec["initContainers"] = [container("i", restartPolicy="Always") | {"resources": draw(resources())}]
    return spec


@st.composite
def quotas(draw: st.DrawFn) -> Raw:
    scopes = draw(SCOPES)
    hard = {"pods": str(draw(st.integers(0, 5))), "count/pods": str(draw(st.integers(2, 6)))}
    if "BestEffort" not in scopes and draw(st.booleans()):
        hard |= {"requests.cpu": draw(st.sampled_from(["1", "2500m"])), "requests.memory": "2Gi"}
    spec: Raw = {"hard": hard, "scopes": scopes}
    if draw(st.integers(0, 3)) == 0:
        spec["qosResources"] = {"container": [{"name": "rdt", "classes": [{"name": "gold", "capacity": 2}]}]}
    return spec


class Namespace(RuleBasedStateMachine):
    """Pods and quotas come, change and go; whatever happens, usage is the sum over the pods that are there."""

    live = Bundle("live")

    @initialize()
    def start(self) -> None:
        self.cluster = Offline(FeatureGates.parse("QOSResources=true"))
        self.names = iter(range(10**6))

    @rule(target=live, spec=pods())
    def create(self, spec: Raw) -> Any:
        name = f"p{next(self.names)}"
        return name if self.written(self.cluster.apply({**pod(name), "spec": spec}), enforced=True) else multiple()

    @rule(name=live, phase=PHASES)
    def report(self, name: str, phase: str) -> None:
        raw = self.changed(name)
        raw["status"]["phase"] = phase
        assert self.cluster.update(raw, "pods", subresource="status").ok

    @rule(name=live, wanted=resources())
    def resize(self, name: str, wanted: Raw) -> None:
        raw = self.changed(name)
        raw["spec"]["containers"][0]["resources"] = wanted
        self.written(self.cluster.update(raw, "pods", subresource="resize"), enforced=True)

    @rule(name=live, deadline=st.sampled_from([None, 30]))
    def bound(self, name: str, deadline: int | None) -> None:
        raw = self.changed(name)
        raw["spec"].pop("activeDeadlineSeconds", None)
        if deadline is not None:
            raw["spec"]["activeDeadlineSeconds"] = deadline
        self.written(self.cluster.update(raw, "pods"), enforced=False)

    @rule(name=consumes(live))
    def delete(self, name: str) -> None:
        assert self.cluster.delete("pods", NAMESPACE, name).ok

    @rule(name=st.sampled_from(["qa", "qb", "qc"]), spec=quotas())
    def put_quota(self, name: str, spec: Raw) -> None:
        old = self.cluster.get("resourcequotas", NAMESPACE, name)
        if old is None or (old["spec"].get("scopes") or []) == spec["scopes"]:  # scopes never change
            assert self.cluster.apply({**quota(name), "spec": spec}).ok

    @rule(name=st.sampled_from(["qa", "qb", "qc"]))
    def drop_quota(self, name: str) -> None:
        self.cluster.delete("resourcequotas", NAMESPACE, name)

    def changed(self, name: str) -> Raw:
        stored = self.cluster.get("pods", NAMESPACE, name)
        assert stored is not None
        return {**stored, "spec": _copy(stored["spec"]), "status": dict(stored["status"])}

    def written(self, answer: Answer, *, enforced: bool) -> bool:
        """An admitted write never takes a quota over its limit by growing it."""
        if isinstance(answer.outcome, AdmittedWrite) and enforced:
            for name, delta in answer.outcome.deltas.items():
                charged = self.cluster.ledger.quota(NAMESPACE, name)
                assert charged is not None
                for resource, amount in delta.amounts.items():
                    assert amount < Quantity.ZERO or charged.used[resource].nanos <= charged.hard[resource].nanos
                for key, count in delta.classes.items():
                    capacity = charged.allowed[key]
                    assert count < 0 or capacity is None or charged.classes_used[key] <= capacity
        return answer.ok

    @invariant()
    def usage_is_the_sum_over_what_is_there(self) -> None:
        charges = [
            charge_pod(PodView.of(raw)) for (resource, _, _), raw in self.cluster.objects.items() if resource == "pods"
        ]
        counted = QuotaLedger()
        for (resource, _, _), raw in self.cluster.objects.items():
            if resource == "resourcequotas":
                counted.put(NAMESPACE, Quota.of(raw), charges)
        kept, summed = (
            {
                one.name: ({name: tally.nanos for name, tally in one.used.items()}, one.classes_used)
                for one in ledger.quotas(NAMESPACE)
            }
            for ledger in (self.cluster.ledger, counted)
        )
        assert kept == summed

    @invariant()
    def the_ledger_is_sound(self) -> None:
        self.cluster.ledger.validate()


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


TestNamespace = Namespace.TestCase
TestNamespace.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


def charged(specs: list[Raw]) -> list[Charge]:
    return [charge_pod(PodView.of({**pod(f"p{number}"), "spec": spec})) for number, spec in enumerate(specs)]


@settings(max_examples=100, deadline=None)
@given(specs=st.lists(pods(), max_size=5), spec=quotas(), order=st.randoms(use_true_random=False))
def test_usage_does_not_depend_on_the_order_of_arrival(specs: list[Raw], spec: Raw, order: Any) -> None:
    charges = charged(specs)
    shuffled = list(charges)
    order.shuffle(shuffled)
    one, two = QuotaLedger(), QuotaLedger()
    one.put(NAMESPACE, Quota.of({**quota("q"), "spec": spec}), charges)
    two.put(NAMESPACE, Quota.of({**quota("q"), "spec": spec}), shuffled)
    [first], [second] = one.quotas(NAMESPACE), two.quotas(NAMESPACE)
    assert first.used_amounts() == second.used_amounts()
    assert first.classes_used == second.classes_used


@settings(max_examples=100, deadline=None)
@given(spec=pods(), wanted=st.lists(quotas(), min_size=2, max_size=4))
def test_the_decision_does_not_depend_on_the_order_of_quotas(spec: Raw, wanted: list[Raw]) -> None:
    [charge] = charged([spec])
    compiled = [Quota.of({**quota(f"q{number}"), "spec": one}) for number, one in enumerate(wanted)]
    forwards, backwards = decide(compiled, None, charge), decide(compiled[::-1], None, charge)
    if isinstance(forwards, WithinQuota):
        assert forwards == backwards
    else:
        assert isinstance(backwards, OverQuota)
        assert {reason.message for reason in forwards.reasons} == {reason.message for reason in backwards.reasons}
