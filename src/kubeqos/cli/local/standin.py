"""What the demo needs of kubectl, on a machine that has none: apply, run, create, get, delete, in kubectl's words."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from kubeqos.cli.output import table
from kubeqos.client.api import Call, PatchType
from kubeqos.client.errors import ApiError
from kubeqos.client.http import HttpApi
from kubeqos.client.resources import EVENTS, NAMESPACES, PODS, RESOURCE_QUOTAS, Resource, resource_of
from kubeqos.codec import decode_yaml_all, encode_json

_NAMED = {"pod": PODS, "pods": PODS, "events": EVENTS, "namespace": NAMESPACES}
_GONE_SECONDS = 60.0
_COLUMNS = "NAME:.metadata.name,STATUS:.status.phase,NODE:.spec.nodeName"


def run(kubeconfig: Path, words: Sequence[str], manifest: str) -> tuple[int, str]:
    """Carry out one command; its exit code and what it says."""
    return asyncio.run(_run(kubeconfig, _parser().parse_args(words), manifest))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kubectl")
    parser.add_argument("verb", choices=_VERBS)
    parser.add_argument("operands", nargs="*")
    parser.add_argument("-n", dest="namespace", default="default")
    parser.add_argument("-f", dest="file")
    parser.add_argument("-l", dest="labels", default="")
    parser.add_argument("--field-selector", dest="fields", default="")
    parser.add_argument("-o", dest="output", default=f"custom-columns={_COLUMNS}")
    for option in ("--image", "--hard", "--scopes"):
        parser.add_argument(option, default="")
    parser.add_argument("--wait", nargs="?", const="true", default="true")
    for flag in ("--now", "--ignore-not-found"):
        parser.add_argument(flag, action="store_true")
    return parser


async def _run(kubeconfig: Path, asked: argparse.Namespace, manifest: str) -> tuple[int, str]:
    api = HttpApi.from_kubeconfig(kubeconfig)
    try:
        return await _VERBS[asked.verb](api, asked, manifest)
    except ApiError as error:
        if error.not_found and asked.ignore_not_found:
            return 0, ""
        return 1, _refused(error)
    finally:
        await api.close()


def _refused(error: ApiError) -> str:
    return f"Error from server ({error.reason}): {error.message}"


async def _apply(api: HttpApi, asked: argparse.Namespace, manifest: str) -> tuple[int, str]:
    said, code = [], 0
    for body in decode_yaml_all(manifest):
        resource = _resource(body)
        name, namespace = body["metadata"]["name"], body["metadata"].get("namespace") or asked.namespace
        path = resource.path(namespace if resource.namespaced else "", name)
        query = {"fieldManager": "kubeqos-demo", "force": "true"}
        answer = await api.transport.send(Call("PATCH", path, query, encode_json(body), PatchType.APPLY.value))
        if answer.status >= 400:
            said.append(_refused(ApiError.of(answer.status, answer.body)))
            code = 1
        else:
            group = f".{resource.group}" if resource.group else ""
            said.append(f"{resource.kind.lower()}{group}/{name} {'created' if answer.status == 201 else 'configured'}")
    return code, "\n".join(said)


def _resource(body: dict[str, Any]) -> Resource:
    resource = resource_of(body["apiVersion"], body["kind"])
    assert resource is not None, f"the demo applies its own manifests: {body['kind']}"
    return resource


async def _start(api: HttpApi, asked: argparse.Namespace, _manifest: str) -> tuple[int, str]:
    (name,) = asked.operands
    spec = {"containers": [{"name": name, "image": asked.image}]}
    await api.create(PODS, {"metadata": {"name": name, "labels": {"run": name}}, "spec": spec}, asked.namespace)
    return 0, f"pod/{name} created"


async def _create(api: HttpApi, asked: argparse.Namespace, _manifest: str) -> tuple[int, str]:
    what, name = asked.operands
    if what == "namespace":
        await api.create(NAMESPACES, {"metadata": {"name": name}})
        return 0, f"namespace/{name} created"
    hard = dict(each.split("=", 1) for each in asked.hard.split(","))
    spec = {"hard": hard, "scopes": asked.scopes.split(",")}
    await api.create(RESOURCE_QUOTAS, {"metadata": {"name": name}, "spec": spec}, asked.namespace)
    return 0, f"resourcequota/{name} created"


async def _get(api: HttpApi, asked: argparse.Namespace, _manifest: str) -> tuple[int, str]:
    resource = _NAMED[asked.operands[0]]
    columns = [each.split(":.", 1) for each in asked.output.removeprefix("custom-columns=").split(",")]
    found = await api.list(resource, asked.namespace, labels=asked.labels, fields=asked.fields)
    objects = [body for raw in found.items for body in decode_yaml_all(raw.decode())]
    return 0, table([header for header, _ in columns], [[_at(one, path) for _, path in columns] for one in objects])


def _at(value: Any, path: str) -> Any:
    for key in path.split("."):
        value = (value or {}).get(key)
    return value


async def _delete(api: HttpApi, asked: argparse.Namespace, _manifest: str) -> tuple[int, str]:
    what, name = asked.operands
    resource = _NAMED[what]
    namespace = asked.namespace if resource.namespaced else ""
    await api.delete(resource, name, namespace, grace_seconds=1 if asked.now else None)
    if asked.wait == "true":
        async with asyncio.timeout(_GONE_SECONDS):
            while await _there(api, resource, name, namespace):  # noqa: ASYNC110 - another process ends it
                await asyncio.sleep(0.1)
    return 0, f'{what} "{name}" deleted'


async def _there(api: HttpApi, resource: Resource, name: str, namespace: str) -> bool:
    try:
        await api.get(resource, name, namespace)
    except ApiError as error:
        if error.not_found:
            return False
        raise
    return True


_VERBS: dict[str, Callable[[HttpApi, argparse.Namespace, str], Awaitable[tuple[int, str]]]] = {
    "apply": _apply,
    "run": _start,
    "create": _create,
    "get": _get,
    "delete": _delete,
}
