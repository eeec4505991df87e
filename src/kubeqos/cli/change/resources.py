"""Which resource a word on the command line means, as the server's discovery tells: `deploy`, `quota`, `Pod`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kubeqos.cli.connection import Target
from kubeqos.client.light import LightApi
from kubeqos.codec import JsonObject
from kubeqos.errors import InputError


@dataclass(frozen=True, slots=True)
class Named:
    """One object: where it is and how it is spoken of."""

    path: str
    shown: str


def named(target: Target, words: tuple[str, ...]) -> Named:
    """The object that `TYPE NAME` or `TYPE/NAME` means."""
    parts = words[0].split("/") if len(words) == 1 else words
    if len(parts) != 2 or not all(parts):
        raise InputError(f"not one object: {' '.join(words)}", remedy="say TYPE NAME or TYPE/NAME, as deployment/web")
    word, name = parts
    home, resource = _resource(target.api, word)
    group = home.removeprefix("/apis/").partition("/")[0] if home.startswith("/apis/") else ""
    scope = f"/namespaces/{target.namespace}" if resource.get("namespaced") else ""
    shown = f"{resource.get('singularName') or resource['kind'].lower()}{f'.{group}' if group else ''}/{name}"
    return Named(f"{home}{scope}/{resource['name']}/{name}", shown)


def _resource(api: LightApi, word: str) -> tuple[str, JsonObject]:
    wanted, _, group = word.lower().partition(".")
    for home in _homes(api):
        if group and not home.startswith(f"/apis/{group}/"):
            continue
        for resource in api.get(home).get("resources") or ():
            known = {resource["name"], resource.get("singularName", ""), resource["kind"].lower()}
            if wanted in known | set(resource.get("shortNames") or ()):
                return home, resource
    raise InputError(f'the server doesn\'t have a resource type "{word}"', remedy="kubectl api-resources lists them")


def _homes(api: LightApi) -> Iterator[str]:
    """Where resources are listed, the core group first."""
    yield "/api/v1"
    for group in api.get("/apis").get("groups") or ():
        yield f"/apis/{group['preferredVersion']['groupVersion']}"
