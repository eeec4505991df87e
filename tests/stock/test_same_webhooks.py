"""The same webhooks on a real kube-apiserver and on ours: equal questions, equal outcomes, equal words of refusal."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.apiserver.webhooks.webhook import Webhook, allow, label, patch, running_webhook, slow
from tests.stock.needs import needs_stock
from tests.stock.pair import Ours, Stock, both_servers, comparable, differences

pytestmark = needs_stock("kube-apiserver", "etcd")
MAPS = "/api/v1/namespaces/default/configmaps"
Servers = tuple[Stock, Ours]
DENY = {"allowed": False, "status": {"code": 418, "message": "no tea", "reason": "Teapot"}}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with both_servers(tmp_path_factory.mktemp("stock"), tmp_path_factory.mktemp("ours")) as both:
        yield both


@pytest.fixture(scope="module")
def webhook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Webhook]:
    with running_webhook(tmp_path_factory.mktemp("hook")) as made:
        yield made


CASES: dict[str, tuple[str, list[tuple[str, dict[str, Any]]]]] = {
    "changed": ("Mutating", [("/label", {})]),
    "changed by two": ("Mutating", [("/label", {"reinvocationPolicy": "IfNeeded"}), ("/other", {})]),
    "looked at": ("Validating", [("/allow", {})]),
    "denied": ("Validating", [("/deny", {})]),
    "denied by the first": ("Mutating", [("/deny", {}), ("/label", {})]),
    "denied without a word": ("Validating", [("/silent", {})]),
    "a patch from who only looks": ("Validating", [("/label", {})]),
    "a patch without its type": ("Mutating", [("/untyped", {})]),
    "an empty answer": ("Mutating", [("/empty", {})]),
    "an answer to another": ("Mutating", [("/stranger", {})]),
    "too slow, and open": ("Mutating", [("/slow", {"timeoutSeconds": 1, "failurePolicy": "Ignore"})]),
    "selected": ("Mutating", [("/label", {"objectSelector": {"matchLabels": {"app": "web"}}})]),
    "not selected": ("Mutating", [("/label", {"objectSelector": {"matchLabels": {"app": "db"}}})]),
}
CHANGES: list[tuple[str, str, Any, str]] = [
    ("POST", MAPS, {"metadata": {"name": "m", "labels": {"app": "web"}}, "data": {"a": "1"}}, "application/json"),
    ("POST", f"{MAPS}?dryRun=All", {"metadata": {"generateName": "g-", "labels": {"app": "web"}}}, "application/json"),
    ("PATCH", f"{MAPS}/m", {"data": {"b": "2"}}, "application/merge-patch+json"),
    ("DELETE", f"{MAPS}/m", {"gracePeriodSeconds": 3, "propagationPolicy": "Background"}, "application/json"),
    ("POST", MAPS, {"metadata": {"name": "n", "labels": {"app": "web"}}}, "application/json"),
    ("DELETE", f"{MAPS}?labelSelector=app%3Dweb", None, "application/json"),
]


@pytest.mark.parametrize("name", CASES)
def test_webhooks_have_the_same_effect(servers: Servers, webhook: Webhook, name: str) -> None:
    webhook.answers |= {
        "/allow": allow,
        "/label": label("one", "1"),
        "/other": label("two", "2"),
        "/deny": lambda _request: DENY,
        "/silent": lambda _request: {"allowed": False},
        "/untyped": lambda _request: {"allowed": True, "patch": "W10="},
        "/empty": lambda _request: b"{}",
        "/stranger": lambda _request: {"uid": "other", "allowed": True},
        "/slow": slow,
        "/nothing": patch(),
    }
    kind, entries = CASES[name]
    found = []
    for server in servers:
        webhook.asked.clear()
        made = [webhook.entry(path, ["configmaps"], ["*"], **more) for path, more in entries]
        with webhook.configured(server.call, kind, *made):
            if isinstance(server, Stock):
                wait_until_followed(server, webhook)
            webhook.asked.clear()
            replies = [server.call(*change) for change in CHANGES]
        if isinstance(server, Stock):
            wait_until_forgotten(server, webhook)
        server.call("DELETE", f"{MAPS}/m")
        found.append([[said(one) for one in replies], [question(path, one) for path, one in webhook.asked]])
    assert list(differences(*found)) == []


POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
LABELS = {"app": "web"}
DEPLOYMENT = {
    "metadata": {"name": "d"},
    "spec": {
        "selector": {"matchLabels": LABELS},
        "template": {"metadata": {"labels": LABELS}, "spec": POD["spec"]},
    },
}
SCALE = {"metadata": {"name": "d", "namespace": "default"}, "spec": {"replicas": 3}}
IN, WORKLOADS = "/api/v1/namespaces/default", "/apis/apps/v1/namespaces/default/deployments"
EVICTION = {"metadata": {"name": "p"}, "deleteOptions": {"gracePeriodSeconds": 4}}
BINDING = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}}
JSON, MERGE = "application/json", "application/merge-patch+json"
BELOW: list[tuple[str, str, Any, str]] = [
    ("POST", f"{IN}/pods/p/binding?dryRun=All", BINDING, JSON),
    ("POST", f"{IN}/bindings?dryRun=All", BINDING, JSON),
    ("POST", f"{IN}/pods/p/binding", BINDING, JSON),
    ("PATCH", f"{IN}/pods/p/status", {"status": {"phase": "Running"}}, MERGE),
    ("PUT", f"{WORKLOADS}/d/scale", SCALE, JSON),
    ("PATCH", f"{WORKLOADS}/d/scale", {"spec": {"replicas": 2}}, MERGE),
    ("POST", f"{IN}/serviceaccounts/robot/token", {"spec": {"expirationSeconds": 700}}, JSON),
    ("GET", f"{IN}/pods/p/exec?command=ls&command=-l&container=c&stdin=true&tty=1&stdout=true", None, JSON),
    ("POST", f"{IN}/pods/p/attach?container=c&stderr=true", None, JSON),
    ("GET", f"{IN}/pods/p/portforward?ports=80&ports=81", None, JSON),
    ("POST", f"{IN}/pods/p/eviction", EVICTION, JSON),
]


def wait_for_its_own_writes(server: Stock | Ours) -> None:
    """Until a server's cache has what its store has: one that patches a stale copy tries again, and asks again."""
    deadline = time.monotonic() + 60
    for path in (f"{IN}/pods/p", f"{WORKLOADS}/d"):
        while server.call("GET", f"{path}?resourceVersion=0") != server.call("GET", path):
            assert time.monotonic() < deadline, f"{path} does not reach the cache"
            time.sleep(0.05)


@pytest.mark.parametrize("answer", ["allow", "deny"])
@pytest.mark.parametrize("kind", ["Mutating", "Validating"])
def test_what_is_sent_below_an_object_is_asked_about(
    servers: Servers, webhook: Webhook, kind: str, answer: str
) -> None:
    webhook.answers |= {"/allow": allow, "/deny": lambda _request: DENY}
    rule = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}
    if kind == "Mutating":  # an exact rule sees only the version that the client speaks
        rule |= {"apiVersions": ["v1"], "resources": ["pods/*", "bindings", "deployments/scale", "*/token"]}
    found = []
    for server in servers:
        for path, body in ((f"{IN}/pods", POD), (WORKLOADS, DEPLOYMENT)):
            server.call("POST", path, body)
        server.call("POST", f"{IN}/serviceaccounts", {"metadata": {"name": "robot"}})
        entry = webhook.entry(f"/{answer}", [], rules=[rule], matchPolicy="Exact")
        webhook.asked.clear()
        with webhook.configured(server.call, kind, entry):
            probe = ("PATCH", f"{IN}/pods/p/status?dryRun=All", {"status": {"message": "probe"}}, MERGE)
            ask_until(webhook, server, probe, lambda asked: asked)
            webhook.asked.clear()
            replies = []
            for change in BELOW:
                replies.append(server.call(*change))
                wait_for_its_own_writes(server)
            questions = [question(path, one) for path, one in webhook.asked]
        ask_until(webhook, server, probe, lambda asked: not asked)
        for path in (f"{IN}/pods/p", f"{WORKLOADS}/d"):
            server.call("DELETE", path, {"gracePeriodSeconds": 0})
        codes = [code if code < 400 or answer == "deny" else "refused" for code, _ in replies]
        found.append([codes, questions])
    differ = list(differences(*found))
    assert not differ, "\n".join(differ)


def ask_until(webhook: Webhook, server: Stock | Ours, probe: Any, enough: Callable[[int], bool]) -> None:
    """A real server hears of a configuration a moment after it was stored, or has gone."""
    deadline = time.monotonic() + 60
    while True:
        before = len(webhook.asked)
        server.call(*probe)
        if enough(len(webhook.asked) - before):
            return
        assert time.monotonic() < deadline, "the server never followed the configuration"
        time.sleep(0.1)


def wait_until_followed(server: Stock, webhook: Webhook) -> None:
    """A real server hears of a configuration a moment after it has stored it: ask until a webhook was asked."""
    probe = {"metadata": {"generateName": "probe-", "labels": {"app": "web"}}}
    deadline = time.monotonic() + 5
    while not webhook.asked and time.monotonic() < deadline:
        server.call("POST", f"{MAPS}?dryRun=All", probe)
        time.sleep(0.1)


def wait_until_forgotten(server: Stock, webhook: Webhook) -> None:
    probe = {"metadata": {"generateName": "probe-", "labels": {"app": "web"}}}
    while True:
        before = len(webhook.asked)
        server.call("POST", f"{MAPS}?dryRun=All", probe)
        if len(webhook.asked) == before:
            return
        del webhook.asked[before:]
        time.sleep(0.1)


def said(reply: tuple[int, Any]) -> Any:
    """An answer; of a refusal also its words."""
    code, body = comparable(reply)
    message = reply[1].get("message", "") if code >= 400 else ""
    words = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "<uid>", message)
    body.get("metadata", {}).pop("name", None)  # one was generated
    return [code, body, words]


def question(path: str, asked: dict[str, Any]) -> Any:
    """A question without what differs from server to server: identities, names that were generated, who asks."""
    kept = {key: value for key, value in asked.items() if key not in ("uid", "userInfo")}
    for obj in (kept["object"], kept["oldObject"]):
        (obj or {}).get("metadata", {}).pop("managedFields", None)  # compared by test_same_changes
    if asked["kind"]["kind"] == "TokenRequest":
        kept["object"]["spec"].pop("audiences", None)  # the servers' own names
    text = json.dumps(kept)
    for pattern in (
        r'"uid": "[^"]*"',
        r'"creationTimestamp": "[^"]*"',
        r'"resourceVersion": "\d+"',
        r'"time": "[^"]*"',
        r'"lastTransitionTime": "[^"]*"',
    ):
        text = re.sub(pattern, f'{pattern.partition(":")[0]}: ""', text)
    return [path, json.loads(re.sub(r'"name": "g-\w+"', '"name": "g-"', text))]
