"""Which groups, versions and resources there are: legacy discovery, and the aggregated form kubectl asks for first.

Everything is worked out once from the table of kinds, and again when a definition adds to it.
"""

from __future__ import annotations

import base64
import hashlib

from kubeqos.apiserver.present.negotiation import PROTOBUF, SERVED, YAML, not_accepted, not_available, takes
from kubeqos.apiserver.protobuf import encode_body
from kubeqos.apiserver.registry.definitions import Catalog
from kubeqos.apiserver.registry.kinds import Kind, Subresource
from kubeqos.apiserver.requests import Request
from kubeqos.codec import JsonObject, encode_json
from kubeqos.web.messages import JSON, Response

_AGGREGATED = "{};g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList"
_GROUP_VERSION = 3
"""How many parts the path of a version of a group has."""
_FORMS = ((JSON, "v2"), (JSON, "v2beta1"), (PROTOBUF, "v2"))


def discovery_response(request: Request, address: str, catalog: Catalog) -> Response | None:
    """The answer to a discovery path; None for any other path."""
    parts = [part for part in request.path.split("/") if part]
    found = _discovered(parts, request.accept, address, catalog)
    if found is not None and not any(takes(request.accept, media) for media in (JSON, YAML, PROTOBUF)):
        # The list of groups and each of them are other parts of Kubernetes than the rest, with other words.
        raise not_accepted() if parts[0] == "apis" and len(parts) < _GROUP_VERSION else not_available(SERVED)
    return found


def _discovered(parts: list[str], accept: str, address: str, catalog: Catalog) -> Response | None:
    match parts:
        case ["api"] | ["apis"]:
            form = _aggregated_form(accept)
            if form:
                return _remembered_aggregate(parts[0], *form, catalog)
            return _json(api_versions(address) if parts == ["api"] else group_list(catalog))
        case ["api", "v1"]:
            return _json(resource_list("", "v1", catalog))
        case ["apis", group] if group in catalog.groups and group:
            return _json({"kind": "APIGroup", "apiVersion": "v1", **_group(group, catalog)})
        case ["apis", group, version] if group and version in catalog.groups.get(group, ()):
            return _json(resource_list(group, version, catalog))
    return None


def _json(body: JsonObject) -> Response:
    return Response(200, encode_json(body))


def _aggregated_form(accept: str) -> tuple[str, str] | None:
    """In which media type and version a client wants all groups at once, if it wants that first."""
    for clause in accept.split(","):
        wanted = set(clause.replace(" ", "").split(";"))
        for media, version in _FORMS:
            if {media, "g=apidiscovery.k8s.io", f"v={version}", "as=APIGroupDiscoveryList"} <= wanted:
                return media, version
        if wanted in ({JSON}, {PROTOBUF}):
            return None
    return None


def _remembered_aggregate(root: str, media: str, version: str, catalog: Catalog) -> Response:
    key = ("discovery", root, media, version)
    if key not in catalog.documents:
        catalog.documents[key] = _aggregated(root, media, version, catalog)
    found: Response = catalog.documents[key]
    return found


def _aggregated(root: str, media: str, version: str, catalog: Catalog) -> Response:
    groups = [""] if root == "api" else [group for group in catalog.groups if group]
    found: JsonObject = {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": [_group_discovery(group, catalog) for group in groups],
    }
    body = encode_body(found) if media == PROTOBUF else encode_json(found)
    etag = hashlib.sha512(body).hexdigest().upper()
    headers = [(b"etag", f'"{etag}"'.encode()), (b"vary", b"Accept"), (b"cache-control", b"public")]
    return Response(200, body, _AGGREGATED.format(media, version), headers)


def _group_discovery(group: str, catalog: Catalog) -> JsonObject:
    return {
        "metadata": {"name": group} if group else {},
        "versions": [
            {
                "version": version,
                "resources": [_resource_discovery(kind) for kind in _served(group, version, catalog)],
                "freshness": "Current",
            }
            for version in catalog.groups[group]
        ],
    }


def _resource_discovery(kind: Kind) -> JsonObject:
    found: JsonObject = {
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": list(kind.verbs),
    }
    if kind.short:
        found["shortNames"] = list(kind.short)
    if kind.categories:
        found["categories"] = list(kind.categories)
    if kind.subresources:
        found["subresources"] = [
            {"subresource": sub.name, "responseKind": _response_kind(kind, sub), "verbs": list(sub.verbs)}
            for sub in kind.subresources
        ]
    return found


def _response_kind(kind: Kind, sub: Subresource) -> JsonObject:
    if sub.kind:
        return {"group": sub.group, "version": sub.version, "kind": sub.kind}
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _served(group: str, version: str, catalog: Catalog) -> list[Kind]:
    return sorted((k for k in catalog.kinds if (k.group, k.version) == (group, version)), key=lambda k: k.plural)


def api_versions(address: str) -> JsonObject:
    servers = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": servers}


def _group(group: str, catalog: Catalog) -> JsonObject:
    versions = [{"groupVersion": f"{group}/{version}", "version": version} for version in catalog.groups[group]]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def group_list(catalog: Catalog) -> JsonObject:
    return {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [_group(group, catalog) for group in catalog.groups if group],
    }


def resource_list(group: str, version: str, catalog: Catalog) -> JsonObject:
    """Legacy discovery of one group version; subresources are entries of their own."""
    entries: list[JsonObject] = []
    for kind in _served(group, version, catalog):
        entries.append(_legacy_entry(kind))
        for sub in kind.subresources:
            entry: JsonObject = {"name": f"{kind.plural}/{sub.name}", "singularName": "", "namespaced": kind.namespaced}
            if sub.kind:
                entry.update({"group": sub.group, "version": sub.version} if sub.group else {})
            entry.update({"kind": sub.kind or kind.kind, "verbs": list(sub.verbs)})
            entries.append(entry)
    version_field: JsonObject = {"apiVersion": "v1"} if group else {}
    group_version = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", **version_field, "groupVersion": group_version, "resources": entries}


def _legacy_entry(kind: Kind) -> JsonObject:
    entry: JsonObject = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(kind.verbs),
    }
    if kind.short:
        entry["shortNames"] = list(kind.short)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    if kind.stored:
        # Upstream's recipe: the first eight bytes of the digest of the storage type's name, base64.
        kept = kind.storage
        digest = hashlib.sha256(f"{kept.group}/{kept.version}/{kept.kind}".encode()).digest()
        entry["storageVersionHash"] = base64.b64encode(digest[:8]).decode()
    return entry
