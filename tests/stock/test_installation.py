"""What is installed into a cluster: complete, the same by both ways, and with no right that nobody needs."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from kubeqos.client.errors import ApiError
from kubeqos.client.http import HttpApi
from kubeqos.client.resources import EVENTS, NODES, PODS, SECRETS
from kubeqos.codec import decode_json
from kubeqos.cri.providers.protocol import Level, Subject
from kubeqos.model.cpuset import NO_CPUS
from kubeqos.model.hardware.loading import load_machine
from kubeqos.node.api.sources import ApiPods
from kubeqos.stock.agent.report import Reporter
from kubeqos.stock.cluster import CLASSES, QUOTAS, RESOURCES
from kubeqos.stock.control.registration import MUTATING, published
from kubeqos.stock.cores.dra import publish, stock_claims
from kubeqos.stock.installation import EMPTY, objects
from kubeqos.stock.installer import install, uninstall
from tests.apiserver.live import LiveServer, live_server
from tests.qrm.harness import until
from tests.stock.control.replicas import asked, replica
from tests.stock.kube_apiserver import acting_as

METHODS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "GET": "get"}
# An object that an apply would make is created: kube-apiserver asks for that right too (test_stock_scheduler runs so).
BY_APPLY = {
    "controller": {("create", "mutatingwebhookconfigurations"), ("create", "validatingwebhookconfigurations")},
    "agent": {("create", "resourceslices")},
}
SLOW = {"resource": "blockio", "class": "slow", "level": "container", "capacity": 1}


def test_both_ways_install_the_same() -> None:
    home = files("kubeqos.stock")
    listed = yaml.safe_load((home / "kustomization.yaml").read_text())["resources"]
    named = [raw["metadata"]["name"] for path in listed for raw in yaml.safe_load_all((home / path).read_text())]
    assert sorted(named) == sorted(raw["metadata"]["name"] for raw in objects("x", EMPTY))


def test_schemas_say_nothing_that_kubernetes_does_not_know() -> None:
    """A comma in a sentence of a flow mapping makes a key of the rest; a real server refuses the whole object."""
    known = {"type", "format", "properties", "required", "items", "enum", "description", "additionalProperties"}
    known |= {"minimum", "maximum", "minLength", "maxLength", "pattern", "minItems", "maxItems", "default"}
    known |= {"anyOf", "allOf", "oneOf", "not", "nullable", "minProperties", "maxProperties", "uniqueItems"}

    def unknown(schema: Any, path: str) -> list[str]:
        found = [f"{path}.{key}" for key in schema if key not in known and not key.startswith("x-kubernetes-")]
        for name, child in (schema.get("properties") or {}).items():
            found += unknown(child, f"{path}.{name}")
        for key in ("items", "additionalProperties"):
            if isinstance(schema.get(key), dict):
                found += unknown(schema[key], f"{path}.{key}")
        return found

    for path in sorted((files("kubeqos.stock") / "crds").iterdir(), key=lambda each: each.name):
        for raw in yaml.safe_load_all(path.read_text()):
            for version in raw["spec"]["versions"]:
                assert unknown(version["schema"]["openAPIV3Schema"], path.name) == []


def test_the_image_and_the_classes_are_those_that_were_said() -> None:
    made = objects("registry.example/kubeqos:1", {"kubeqos-classes": "resources: {a: {}}\n"})
    images = {
        container["image"]
        for raw in made
        if raw["kind"] in ("Deployment", "DaemonSet")
        for container in raw["spec"]["template"]["spec"]["containers"]
    }
    assert images == {"registry.example/kubeqos:1"}
    assert [raw["data"]["classes.yaml"] for raw in made if raw["kind"] == "ConfigMap"] == ["resources: {a: {}}\n"]
    assert not [raw for raw in objects("x", {}) if raw["kind"] == "ConfigMap"], "those of the cluster stay"


async def test_every_right_is_needed_and_enough(tmp_path: Path) -> None:
    """The parts do all that they do with the rights of their accounts, and use each of them."""
    with live_server(tmp_path / "data") as live:
        admin = HttpApi.from_kubeconfig(live.kubeconfig)
        controller, agent = (
            HttpApi.from_kubeconfig(acting_as(live.kubeconfig, f"kubeqos-{part}")) for part in ("controller", "agent")
        )
        try:
            said = [line async for line in install(admin, "kubeqos:test", {})]
            assert "configmap/kubeqos-classes applied" in said
            await story(admin, controller, agent)
            for part in ("controller", "agent"):
                assert used(live, tmp_path, part) | BY_APPLY[part] == granted(part)
            left = [line async for line in uninstall(admin)]
            assert {line.removesuffix(" applied") for line in said} <= {line.removesuffix(" deleted") for line in left}
            # Nobody empties namespaces here.
            assert [line async for line in uninstall(admin)] == ["namespace/kubeqos-system deleted"]
        finally:
            for api in (admin, controller, agent):
                await api.close()


async def story(admin: HttpApi, controller: HttpApi, agent: HttpApi) -> None:
    await admin.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    offered = dict(SLOW)
    reporter = Reporter(agent, "n1", lambda before, now: {"classes": [dict(offered)], "classCount": 1})
    reporting = asyncio.create_task(reporter.run())
    bound = ApiPods(agent, "n1")
    following = asyncio.create_task(bound.run())
    await bound.synced.wait()
    # Whether the server has Dynamic Resource Allocation or not: it is asked.
    with suppress(ApiError):
        await publish(agent, "n1", load_machine("laptop8"), NO_CPUS)
    named = {"resourceClaims": [{"name": "compute", "resourceClaimName": "cores"}]}
    await stock_claims(agent, load_machine("laptop8"))({"metadata": {"namespace": "default"}, "spec": named})
    async with replica(controller, "a") as running:
        await until("described", lambda: _has(admin, CLASSES))
        described = {"apiVersion": "kubeqos.io/v1alpha1", "kind": "QOSResource", "metadata": {"name": "blockio"}}
        await admin.create(RESOURCES, {**described, "spec": {"resource": "blockio", "level": "container"}})

        async def told() -> bool:
            return bool((await admin.get(RESOURCES, "blockio")).get("status"))

        await until("the resource is told of its classes", told)
        quota = {"container": [{"name": "blockio", "classes": [{"name": "slow", "capacity": 1}]}]}
        own = {"apiVersion": "kubeqos.io/v1alpha1", "kind": "QOSClassQuota", "metadata": {"name": "q"}}
        await admin.create(QUOTAS, {**own, "spec": {"qosResources": quota}}, "default")
        pod: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod"}
        pod["metadata"] = {"name": "p", "annotations": {"qos.kubeqos.io/container.c": "blockio=slow"}}
        pod["spec"] = {"containers": [{"name": "c", "image": "app:1"}]}
        stored = await admin.create(PODS, pod, "default")
        request = {"operation": "CREATE", "namespace": "default", "object": stored}
        bundle = published(await admin.get(MUTATING, "kubeqos"))
        assert (await asked(running.port, "/mutate", bundle, request))["allowed"]

        async def counted() -> bool:
            return bool(((await admin.get(QUOTAS, "q", "default")).get("status") or {}).get("qosResourcesUsage"))

        await until("counted", counted)
        del offered["capacity"]  # nobody counts it any more
        reporter.changed()

        async def uncounted() -> bool:
            return not (await admin.get(CLASSES, "blockio.slow"))["spec"]["counted"]

        await until("no longer counted", uncounted)
        node = {"status": {"capacity": {"qos.kubeqos.io/blockio.slow": "0"}}}
        await admin.patch(NODES, "n1", node, subresource="status")
        # The authority is replaced: the Secret is written again.
        await admin.patch(SECRETS, "kubeqos-webhook", {"data": {"ca.key": "AA=="}}, "kubeqos-system")

        async def renewed() -> bool:
            return bool((await admin.get(SECRETS, "kubeqos-webhook", "kubeqos-system"))["data"]["ca.key"] != "AA==")

        await until("renewed", renewed)
        uid = stored["metadata"]["uid"]
        for _ in range(2):  # the second time the event is one of a series
            reporter.broken(Subject(Level.CONTAINER, "x", "s", uid, "default", "p", "c"), "it is a test")
            await until("evicted", lambda: not reporter._broken)
        await until("told", lambda: _patched_event(admin))
    reporting.cancel()
    following.cancel()
    await asyncio.gather(reporting, following, return_exceptions=True)


async def _has(api: HttpApi, resource: Any) -> bool:
    return bool((await api.list(resource)).items)


async def _patched_event(api: HttpApi) -> bool:
    return any((decode_json(raw).get("count") or 1) > 1 for raw in (await api.list(EVENTS, "default")).items)


def granted(part: str) -> set[tuple[str, str]]:
    """What the roles of a part give it; `list` stands for `watch` too."""
    found = set()
    for raw in objects("x", {}):
        if raw["kind"] in ("Role", "ClusterRole") and raw["metadata"]["name"] == f"kubeqos-{part}":
            for rule in raw["rules"]:
                verbs = {"list" if verb == "watch" else verb for verb in rule["verbs"]}
                found |= {(verb, name) for verb in verbs for name in rule["resources"]}
    return found


def used(live: LiveServer, folder: Path, part: str) -> set[tuple[str, str]]:
    """What its account did, and was allowed to."""
    assert live.server.audit is not None
    live.server.audit.flush()
    found = set()
    for line in (folder / "data" / "audit.log").read_bytes().splitlines():
        said = decode_json(line)
        if said["user"] != f"system:serviceaccount:kubeqos-system:kubeqos-{part}":
            continue
        assert said["code"] != 403, said
        match = re.fullmatch(
            r"/(?:api/v1|apis/[^/]+/[^/]+)(?:/namespaces/[^/]+)?/([a-z]+)(?:/([^/]+)(/[a-z]+)?)?", said["path"]
        )
        assert match is not None, said["path"]
        verb = "list" if said["verb"] == "GET" and not match[2] else METHODS[said["verb"]]
        found.add((verb, match[1] + (match[3] or "")))
    return found
