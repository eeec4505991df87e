"""Admission webhooks on our server: who is asked, what they change, what they refuse, and what happens without them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kubeqos.apiserver.registry.kinds import kind_named
from kubeqos.store.records import Put
from tests.apiserver.live import Answer, LiveServer, live_server
from tests.apiserver.webhooks.webhook import CONFIGURATIONS, Webhook, allow, label, patch, running_webhook, slow

MAPS, PODS = "/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("api")) as live:
        yield live


@pytest.fixture(scope="module")
def webhook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Webhook]:
    with running_webhook(tmp_path_factory.mktemp("hook")) as made:
        yield made


@pytest.fixture(autouse=True)
def forget(webhook: Webhook) -> None:
    webhook.asked.clear()


def create(server: LiveServer, name: str, query: str = "", **metadata: Any) -> Answer:
    return server.call("POST", f"{MAPS}{query}", {"metadata": {"name": name, **metadata}, "data": {"a": "1"}})


def test_a_pod_is_changed_then_completed_then_judged(server: LiveServer, webhook: Webhook) -> None:
    """Neither the fast way of pods nor defaults go past a webhook: what it adds gets defaults too."""
    sidecar = {"name": "sidecar", "image": "proxy"}
    webhook.answers["/inject"] = patch({"op": "add", "path": "/spec/containers/-", "value": sidecar})
    webhook.answers["/look"] = allow
    mutating = webhook.configured(server.call, "Mutating", webhook.entry("/inject", ["pods"]))
    with mutating, webhook.configured(server.call, "Validating", webhook.entry("/look", ["pods"])):
        body = {"metadata": {"generateName": "web-"}, "spec": {"containers": [{"name": "c", "image": "app"}]}}
        made = server.call("POST", PODS, body)
    assert made.code == 201, made.body
    assert [one["name"] for one in made.body["spec"]["containers"]] == ["c", "sidecar"]
    assert made.body["spec"]["containers"][1]["imagePullPolicy"] == "Always"
    (_, asked), (_, judged) = webhook.asked
    assert "name" not in asked and "name" not in asked["object"]["metadata"], "it is generated later"
    assert judged["object"]["metadata"]["name"] == judged["name"] == made.body["metadata"]["name"]
    assert judged["object"]["spec"] == made.body["spec"]
    assert asked["userInfo"]["username"] == "admin" and asked["requestKind"]["kind"] == "Pod"
    assert asked["options"] == {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}
    before = len(webhook.asked)
    assert server.call("POST", PODS, body).code == 201
    assert len(webhook.asked) == before, "nobody is asked any more"


def test_what_a_webhook_adds_is_nobodys(server: LiveServer, webhook: Webhook) -> None:
    webhook.answers["/label"] = label("added", "yes")
    with webhook.configured(server.call, "Mutating", webhook.entry("/label", ["configmaps"], ["CREATE", "UPDATE"])):
        made = create(server, "owned").body
        assert made["metadata"]["labels"] == {"added": "yes"}
        assert "f:labels" not in str(made["metadata"]["managedFields"])
        headers = {"Content-Type": "application/merge-patch+json"}
        patched = server.call("PATCH", f"{MAPS}/owned", {"data": {"b": "2"}}, headers).body
    assert patched["data"] == {"a": "1", "b": "2"}
    assert patched["metadata"]["uid"] == made["metadata"]["uid"]


def test_a_refusal_is_told_in_the_webhooks_words(server: LiveServer, webhook: Webhook) -> None:
    answer: Any = {"allowed": False, "warnings": ["this may hurt"], "status": {"code": 418, "message": "no tea"}}
    webhook.answers["/deny"] = lambda _request: answer
    with webhook.configured(server.call, "Validating", webhook.entry("/deny", ["configmaps"], ["CREATE", "DELETE"])):
        refused = create(server, "tea")
        assert (refused.code, refused.body["message"]) == (
            418,
            'admission webhook "deny.example.com" denied the request: no tea',
        )
        assert refused.warnings == ['299 - "this may hurt"']
        answer = {"allowed": False}
        refused = server.call("DELETE", f"{MAPS}/owned")
        told = 'admission webhook "deny.example.com" denied the request without explanation'
        assert (refused.code, refused.body["message"]) == (400, told)
        assert webhook.asked[-1][1]["oldObject"]["metadata"]["name"] == "owned"
        assert webhook.asked[-1][1]["object"] is None
    assert server.call("DELETE", f"{MAPS}/owned").code == 200


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (lambda _request: b"{}", "received invalid webhook response: webhook response was absent"),
        (
            lambda _request: {"uid": "other", "allowed": True},
            "received invalid webhook response: expected response.uid=",
        ),
        (
            lambda _request: {"allowed": True, "patch": "W10="},
            "webhook returned response.patch but not response.patchType",
        ),
        (lambda _request: (500, b"boom"), "failed to call webhook: the webhook answered with status 500: boom"),
        (lambda _request: b"<html>", "failed to call webhook: its answer is not JSON"),
        (slow, "context deadline exceeded"),
        (patch({"op": "remove", "path": "/spec"}), "the server rejected our request due to an error in our request"),
    ],
)
def test_who_cannot_be_asked_is_no_yes(server: LiveServer, webhook: Webhook, answer: Any, told: str) -> None:
    webhook.answers["/odd"] = answer
    entry = webhook.entry("/odd", ["configmaps"], timeoutSeconds=1)
    with webhook.configured(server.call, "Mutating", entry):
        refused = create(server, "odd")
    assert refused.code == 500 and told in refused.body["message"], refused.body
    assert refused.body["message"].startswith("Internal error occurred: ")
    if "reject" not in told:  # a patch that does not fit is a mistake, not an outage
        with webhook.configured(server.call, "Mutating", {**entry, "failurePolicy": "Ignore"}):
            assert create(server, "odd").code == 201
        server.call("DELETE", f"{MAPS}/odd")


def test_nobody_listens(server: LiveServer, webhook: Webhook) -> None:
    entry = webhook.entry("/gone", ["configmaps"], client={"url": "https://127.0.0.1:1/gone"})
    with webhook.configured(server.call, "Validating", entry):
        refused = create(server, "x")
    assert 'failed calling webhook "gone.example.com": failed to call webhook: Post' in refused.body["message"]
    stranger = webhook.entry("/deny", ["configmaps"])
    stranger["clientConfig"].pop("caBundle")
    with webhook.configured(server.call, "Validating", stranger):
        assert "CERTIFICATE_VERIFY_FAILED" in create(server, "x").body["message"]


def test_selectors_rules_and_scopes(server: LiveServer, webhook: Webhook) -> None:
    webhook.answers["/pick"] = allow

    def asked(**more: Any) -> bool:
        webhook.asked.clear()
        with webhook.configured(server.call, "Validating", webhook.entry("/pick", ["configmaps"], **more)):
            assert create(server, "picked", "?dryRun=All", labels={"app": "web"}).code == 201
        return bool(webhook.asked)

    assert asked()
    assert asked(objectSelector={"matchLabels": {"app": "web"}})
    assert not asked(objectSelector={"matchLabels": {"app": "db"}})
    own = {"kubernetes.io/metadata.name": "default"}
    assert asked(namespaceSelector={"matchLabels": own})
    assert not asked(namespaceSelector={"matchExpressions": [{"key": next(iter(own)), "operator": "DoesNotExist"}]})
    assert not asked(operations=["UPDATE"])
    assert not asked(group="apps")


def test_a_dry_run_asks_only_those_without_side_effects(server: LiveServer, webhook: Webhook) -> None:
    webhook.answers["/effects"] = allow
    with webhook.configured(server.call, "Validating", webhook.entry("/effects", ["configmaps"])):
        assert create(server, "dry", "?dryRun=All").code == 201
        assert webhook.asked[-1][1]["dryRun"] is True
    with webhook.configured(
        server.call, "Validating", webhook.entry("/effects", ["configmaps"], sideEffects="NoneOnDryRun")
    ):
        assert create(server, "dry", "?dryRun=All").code == 201
        assert len(webhook.asked) == 2
    assert server.call("GET", f"{MAPS}/dry").code == 404
    for effects in ("Some", "Unknown"):
        body = {"metadata": {"name": "some"}, "webhooks": [webhook.entry("/effects", ["pods"], sideEffects=effects)]}
        refused = server.call("POST", f"{CONFIGURATIONS}/validatingwebhookconfigurations", body)
        assert refused.code == 422 and "webhooks[0].sideEffects: Unsupported value" in refused.body["message"]


def test_who_does_not_want_to_see_it_again_does_not(server: LiveServer, webhook: Webhook) -> None:
    webhook.answers |= {"/first": label("first", "1"), "/second": label("second", "2")}
    entries = [webhook.entry(f"/{name}", ["configmaps"], reinvocationPolicy="Never") for name in ("first", "second")]
    with webhook.configured(server.call, "Mutating", *entries):
        assert create(server, "once", "?dryRun=All").body["metadata"]["labels"] == {"first": "1", "second": "2"}
    assert [path for path, _ in webhook.asked] == ["/first", "/second"]


def test_who_wants_to_see_it_again_does(server: LiveServer, webhook: Webhook) -> None:
    webhook.answers |= {"/first": label("first", "1"), "/second": label("second", "2"), "/third": label("second", "2")}
    again = {"reinvocationPolicy": "IfNeeded"}
    entries = [webhook.entry(f"/{name}", ["configmaps"], **again) for name in ("first", "second", "third")]
    with webhook.configured(server.call, "Mutating", *entries):
        assert create(server, "again").body["metadata"]["labels"] == {"first": "1", "second": "2"}
    assert [path for path, _ in webhook.asked] == ["/first", "/second", "/third", "/first"]


def test_an_update_starts_again_when_somebody_was_faster(server: LiveServer, webhook: Webhook) -> None:
    create(server, "race")
    headers = {"Content-Type": "application/merge-patch+json"}

    def meanwhile(request: Any) -> Any:
        if request["object"]["data"].get("mine") and len(webhook.asked) == 1:
            assert server.call("PATCH", f"{MAPS}/race", {"data": {"theirs": "2"}}, headers).code == 200
        return {"allowed": True}

    webhook.answers["/race"] = meanwhile
    with webhook.configured(server.call, "Validating", webhook.entry("/race", ["configmaps"], ["UPDATE"])):
        found = server.call("PATCH", f"{MAPS}/race", {"data": {"mine": "1"}}, headers)
    assert found.body["data"] == {"a": "1", "mine": "1", "theirs": "2"}


def _move_here(server: LiveServer, key: str) -> None:
    """Let a slice speak of this machine, in the store: no server takes an address of the loopback range."""
    stored = server.server.store.get(key)
    assert stored is not None

    async def write() -> None:
        await server.server.store.commit([Put(key, stored.value.replace(b"192.0.2.1", b"127.0.0.1"))])

    server.run(write())


def test_a_webhook_behind_a_service(server: LiveServer, webhook: Webhook) -> None:
    service = {"metadata": {"name": "hook"}, "spec": {"ports": [{"port": 443}], "clusterIP": "None"}}
    assert server.call("POST", "/api/v1/namespaces/default/services", service).code == 201
    webhook.answers["/service"] = label("via", "service")
    client = {"service": {"namespace": "default", "name": "hook", "path": "/service"}}
    with webhook.configured(server.call, "Mutating", webhook.entry("/service", ["configmaps"], client=client)):
        assert 'no endpoints available for service "hook"' in create(server, "served").body["message"]
        slice = {
            "metadata": {"name": "hook-1", "labels": {"kubernetes.io/service-name": "hook"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["192.0.2.1"]}],
            "ports": [{"port": webhook.port, "name": ""}],
        }
        slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
        assert server.call("POST", slices, slice).code == 201
        _move_here(server, kind_named("EndpointSlice", "discovery.k8s.io").key("default", "hook-1"))
        assert create(server, "served").body["metadata"]["labels"] == {"via": "service"}


def test_nobody_is_locked_out_of_the_configurations(server: LiveServer, webhook: Webhook) -> None:
    webhook.answers["/never"] = lambda _request: {"allowed": False}
    entry = webhook.entry("/never", ["*"], ["*"], group="*")
    with webhook.configured(server.call, "Validating", entry):
        assert create(server, "x").code == 400
    assert server.call("GET", f"{CONFIGURATIONS}/validatingwebhookconfigurations").body["items"] == []
    assert create(server, "x").code == 201


def test_what_is_sent_below_an_object_is_shown_and_can_be_changed(server: LiveServer, webhook: Webhook) -> None:
    """A binding goes where a webhook sends it, a scale becomes what a webhook says, and a stream is refused."""
    webhook.answers |= {
        "/elsewhere": patch({"op": "replace", "path": "/target/name", "value": "n2"}),
        "/fewer": patch({"op": "replace", "path": "/spec/replicas", "value": 1}),
        "/never": lambda _request: {"allowed": False, "status": {"code": 403, "message": "no shells"}},
    }
    pod = {"metadata": {"name": "below"}, "spec": {"containers": [{"name": "c", "image": "app"}]}}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod["spec"]}
    deployment = {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}
    workloads = "/apis/apps/v1/namespaces/default/deployments"
    assert server.call("POST", PODS, pod).code == server.call("POST", workloads, deployment).code == 201
    moves = webhook.entry("/elsewhere", ["pods/binding"])
    scales = webhook.entry("/fewer", ["deployments/scale"], ["UPDATE"], group="apps")
    refuses = webhook.entry("/never", ["pods/exec"], ["CONNECT"])
    target = {"metadata": {"name": "below"}, "target": {"kind": "Node", "name": "n1"}}
    scale = {"metadata": {"name": "d", "namespace": "default"}, "spec": {"replicas": 7}}
    with (
        webhook.configured(server.call, "Mutating", moves, scales),
        webhook.configured(server.call, "Validating", refuses),
    ):
        assert server.call("POST", f"{PODS}/below/binding", target).code == 201
        assert server.call("PUT", f"{workloads}/d/scale", scale).body["spec"] == {"replicas": 1}
        refused = server.call("GET", f"{PODS}/below/exec?command=sh&container=c&stdin=true")
    assert server.call("GET", f"{PODS}/below").body["spec"]["nodeName"] == "n2"
    assert refused.code == 403 and "no shells" in refused.body["message"]
    bound, scaled, connected = (asked for _, asked in webhook.asked)
    assert (bound["kind"]["kind"], bound["resource"]["resource"], bound["subResource"]) == (
        "Binding",
        "pods",
        "binding",
    )
    assert (scaled["kind"]["group"], scaled["resource"]["group"]) == ("autoscaling", "apps")
    assert scaled["object"]["spec"] == {"replicas": 7} and scaled["oldObject"]["spec"] == {"replicas": 1}
    sent = {"kind": "PodExecOptions", "apiVersion": "v1", "stdin": True, "container": "c", "command": ["sh"]}
    assert connected["operation"] == "CONNECT" and connected["object"] == sent and connected["options"] is None


def test_match_conditions_are_left_out_with_a_warning(server: LiveServer, webhook: Webhook) -> None:
    entry = webhook.entry("/pick", ["configmaps"], matchConditions=[{"name": "never", "expression": "false"}])
    body = {"metadata": {"name": "cel"}, "webhooks": [entry]}
    made = server.call("POST", f"{CONFIGURATIONS}/validatingwebhookconfigurations?dryRun=All", body)
    assert made.code == 201 and "webhooks[0].matchConditions: CEL is not evaluated here" in made.warnings[0]


def test_webhooks_are_there_after_a_restart(tmp_path_factory: pytest.TempPathFactory, webhook: Webhook) -> None:
    folder = tmp_path_factory.mktemp("again")
    webhook.answers["/kept"] = label("kept", "yes")
    with live_server(folder) as first:
        body = {"metadata": {"name": "kept"}, "webhooks": [webhook.entry("/kept", ["configmaps"])]}
        first.call("POST", f"{CONFIGURATIONS}/mutatingwebhookconfigurations", body)
    with live_server(folder) as second:
        assert create(second, "x").body["metadata"]["labels"] == {"kept": "yes"}
