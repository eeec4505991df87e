"""What commands that show something read a cluster through: its objects as the embedded home has them, in both homes.

A stock cluster has classes, cores and class quotas in kinds of ours; there they are asked for, too, and put where the
views look for them (`stock.lens`). Commands that change objects talk to the server itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from kubeqos.client.errors import ApiError
from kubeqos.client.light import LightApi
from kubeqos.stock.lens import is_native, native_node, native_pod, native_quotas

Raw = dict[str, Any]
OURS = "/apis/kubeqos.io/v1alpha1"
_PATH = re.compile(r"/api/v1(?P<scope>/namespaces/[^/]+)?/(?P<kind>nodes|pods|resourcequotas)(?:/(?P<name>[^/]+))?")


class Reader:
    """Reads one API server."""

    def __init__(self, api: LightApi) -> None:
        self._api = api
        self.namespace = api.namespace

    def get(self, path: str, **query: str) -> Raw:
        """One object or list."""
        named = _PATH.fullmatch(path)
        if named is None:
            return self._api.get(path, **query)
        if named["kind"] == "resourcequotas" and named["name"]:
            return self._quota(named["scope"] or "", named["name"], path)
        found = self._api.get(path, **query)
        if named["name"]:
            return self._node(found) if named["kind"] == "nodes" else native_pod(found)
        items: list[Raw] = found.get("items") or []
        if named["kind"] == "nodes":
            items = [self._node(one) for one in items]
        elif named["kind"] == "pods":
            items = [native_pod(one) for one in items]
        else:
            items = native_quotas(items, self._ours(f"{OURS}{named['scope'] or ''}/qosclassquotas", **query))
        return {**found, "items": items}

    def get_or_none(self, path: str, **query: str) -> Raw | None:
        """One object, or None where there is none."""
        try:
            return self.get(path, **query)
        except ApiError as error:
            if error.not_found:
                return None
            raise

    def items(self, path: str, **query: str) -> list[Raw]:
        """Every object of a collection."""
        found: list[Raw] = self.get(path, **query).get("items") or []
        return found

    def watch(self, path: str, **query: str) -> Iterator[tuple[str, Raw]]:
        """Events of a collection until the server ends the watch; of Nodes those of their reports, where these tell."""
        if path != "/api/v1/nodes" or not self._reports:
            yield from self._api.watch(path, **query)
            return
        nodes = {one["metadata"]["name"]: one for one in self._api.items(path)}
        for kind, report in self._api.watch(f"{OURS}/nodeqoses", **query):
            node = nodes.get((report.get("metadata") or {}).get("name", ""))
            if node is not None:
                yield kind, native_node(node, report)

    def _node(self, node: Raw) -> Raw:
        return node if is_native(node) else native_node(node, self._reports.get(node["metadata"]["name"]))

    @cached_property
    def _reports(self) -> dict[str, Raw]:
        return {one["metadata"]["name"]: one for one in self._ours(f"{OURS}/nodeqoses")}

    def _quota(self, scope: str, name: str, path: str) -> Raw:
        """A quota of this name, in either kind or in both."""
        own = self._ours(f"{OURS}{scope}/qosclassquotas", fieldSelector=f"metadata.name={name}")
        if not own:
            return self._api.get(path)
        known = self._api.get_or_none(path)
        [found] = native_quotas([known] if known is not None else [], own)
        return found

    def _ours(self, path: str, **query: str) -> list[Raw]:
        """Objects of a kind of ours; none where the server does not have it, or does not show it to this user."""
        try:
            return self._api.items(path, **query)
        except ApiError as error:
            if error.not_found or error.forbidden:
                return []
            raise
