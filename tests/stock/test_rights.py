"""Each right of each part is missed when it is taken away: its account is denied something in the midst of its work.

A short form is a campaign; `KUBEQOS_RIGHTS=all` takes away every right of every part, one at a time.
"""

from __future__ import annotations

import asyncio
import copy
import os
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from kubeqos.client.errors import ApiError
from kubeqos.client.http import HttpApi
from kubeqos.client.resources import LEASES, SECRETS, Resource
from kubeqos.stock.control.registration import MUTATING, VALIDATING
from kubeqos.stock.installation import resource_for
from kubeqos.stock.installer import install
from tests.apiserver.live import LiveServer, live_server
from tests.qrm.harness import until
from tests.stock.control.replicas import NAMESPACE
from tests.stock.kube_apiserver import acting_as
from tests.stock.rights import BY_APPLY, STORIES, requests, roles

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
Raw = dict[str, Any]
Taken = tuple[str, str, str, Raw]
"""Part, verb, resource, and the role without that right."""
SHORT = 8
"""Of the rights of a part, one in so many is taken away in the short form."""


def without(role: Raw, number: int, resource: str, verb: str) -> Raw:
    """The role with one verb on one resource less, in one of its rules."""
    found = copy.deepcopy(role)
    rule = found["rules"][number]
    others = [one for one in rule["resources"] if one != resource]
    rest = [{**rule, "resources": others}] if others else []
    verbs = [one for one in rule["verbs"] if one != verb]
    kept = [{**rule, "resources": [resource], "verbs": verbs}] if verbs else []
    found["rules"][number : number + 1] = [*rest, *kept]
    return found


def takings(part: str) -> Iterator[Taken]:
    """Every right of a part, each with the role that lacks it."""
    for role in roles(part):
        for number, rule in enumerate(role["rules"]):
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    if (verb, resource) not in BY_APPLY[part]:
                        yield part, verb, resource, without(role, number, resource, verb)


def rounds() -> list[tuple[Taken, ...]]:
    """Rights that are taken away at the same time, one of each part."""
    step = 1 if os.environ.get("KUBEQOS_RIGHTS") == "all" else SHORT
    chosen = [list(takings(part))[::step] for part in STORIES]
    return [tuple(one for one in row if one is not None) for row in zip_longest(*chosen)]


async def test_each_right_is_missed(tmp_path: Path) -> None:
    with live_server(tmp_path / "data") as live:
        admin = HttpApi.from_kubeconfig(live.kubeconfig)
        try:
            _ = [line async for line in install(admin, "kubeqos:test", {})]
            for turn, taken in enumerate(rounds()):
                await forget(admin)
                await asyncio.gather(*(missed(live, tmp_path, admin, str(turn), one) for one in taken))
        finally:
            await admin.close()


async def missed(live: LiveServer, folder: Path, admin: HttpApi, turn: str, taken: Taken) -> None:
    """Tell the part's story until it is denied what was taken."""
    part, verb, resource, less = taken
    await put(admin, less)
    api = HttpApi.from_kubeconfig(acting_as(live.kubeconfig, f"kubeqos-{part}"))
    before = len(requests(live, folder, part))
    telling = asyncio.ensure_future(STORIES[part](admin, api, turn))

    def denied() -> bool:
        return any(one["code"] == 403 for one in requests(live, folder, part)[before:]) or telling.done()

    try:
        await until(f"{part} is denied to {verb} {resource}", denied)
        codes = {one["code"] for one in requests(live, folder, part)[before:]}
        assert 403 in codes, f"{part} does not miss the right to {verb} {resource}"
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)
        await api.close()
        for role in roles(part):
            await put(admin, role)


async def put(admin: HttpApi, role: Raw) -> None:
    await admin.patch(
        resource_for(role), role["metadata"]["name"], {"rules": role["rules"]}, role["metadata"].get("namespace", "")
    )


async def forget(admin: HttpApi) -> None:
    """What parts made in the round before, and would find."""
    shared: list[tuple[Resource, str, str]] = [(MUTATING, "kubeqos", ""), (VALIDATING, "kubeqos", "")]
    shared += [(SECRETS, "kubeqos-webhook", NAMESPACE)]
    shared += [(LEASES, f"kubeqos-{part}", NAMESPACE) for part in ("controller", "scheduler")]
    for resource, name, namespace in shared:
        try:
            await admin.delete(resource, name, namespace)
        except ApiError as error:
            if not error.not_found:
                raise
