"""Which collections an API server has, by its own account: built-in kinds, those of CRDs, and of aggregated servers.

For whoever works on anything there is: emptying namespaces, following owners (`controllers`).
"""

from __future__ import annotations

from kubeqos.client.api import Api
from kubeqos.client.resources import Resource

NEEDED = frozenset({"list", "watch", "delete"})


async def discovered(api: Api) -> list[Resource]:
    """Every collection that can be listed, followed and emptied, in the version that its group prefers."""
    groups = (await api.read("/apis")).get("groups") or ()
    versions = [("", "v1"), *((one["name"], one["preferredVersion"]["version"]) for one in groups)]
    found: list[Resource] = []
    for group, version in versions:
        listed = (await api.read(f"/apis/{group}/{version}" if group else f"/api/{version}")).get("resources") or ()
        found += [
            Resource(group, version, one["name"], one["kind"], one["namespaced"])
            for one in listed
            if "/" not in one["name"] and set(one["verbs"]) >= NEEDED
        ]
    return found


def beyond(known: list[Resource], found: list[Resource]) -> list[Resource]:
    """Those of another's that are not known; a collection is the same in every version."""
    names = {(one.group, one.plural) for one in known}
    return [one for one in found if (one.group, one.plural) not in names]
