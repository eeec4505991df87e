"""Volumes that a node can make by itself: emptyDir, hostPath, configMap, secret, downwardAPI, and projections.

A projection may also hold tokens of the pod's service account (`tokens`). A volume that stands for a claim is a link to
the place that `claimed` found for it.

`content` decides what stands in a volume (pure); `write_all` puts it on disk. A volume of another kind keeps its pod
from starting, with an event that says so, as a volume that cannot be mounted does in Kubernetes.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubeqos.errors import InputError
from kubeqos.node.cri.configs import volume_paths
from kubeqos.node.cri.context import Context
from kubeqos.node.cri.environment import field_value
from kubeqos.plugins.managers import AdmittedPod

Raw = Mapping[str, Any]
Lookup = Mapping[tuple[str, str], Mapping[str, bytes]]
"""(ConfigMap or Secret, name) → its files; for a token, (TOKEN, what is wished for) → the one file "token"."""
TOKEN = "Token"
TOKEN_SECONDS = 3600
_ELSEWHERE = ("emptyDir", "hostPath", "persistentVolumeClaim", "ephemeral")
"""Volumes that nothing is written into."""
_IS_ONE: Mapping[str, tuple[Callable[[Path], bool], str]] = {
    "Directory": (Path.is_dir, "a directory"),
    "File": (Path.is_file, "a file"),
    "Socket": (Path.is_socket, "a socket file"),
    "CharDevice": (Path.is_char_device, "a character device"),
    "BlockDevice": (Path.is_block_device, "a block device"),
}


class MountProblem(InputError):
    """A volume that cannot be provided: FailedMount."""


@dataclass(frozen=True, slots=True)
class HostPlace:
    """A path of the host, and what has to be there (`hostPath.type`; empty: anything)."""

    path: Path
    type: str = ""

    def prepare(self) -> None:
        """Make what may be made, and refuse what is something else, as a kubelet does."""
        if self.type == "DirectoryOrCreate" and not self.path.exists():
            self.path.mkdir(parents=True, mode=0o755)
        elif self.type == "FileOrCreate" and not self.path.exists():
            self.path.touch(mode=0o644)
        is_one, what = _IS_ONE.get(self.type.removesuffix("OrCreate"), (None, ""))
        if is_one is not None and not is_one(self.path):
            raise MountProblem(f"hostPath type check failed: {self.path} is not {what}")


def check(pod: AdmittedPod, context: Context) -> None:
    """Refuse a pod with a volume that this node cannot make."""
    known = volume_paths(pod, context)
    for volume in pod.view.spec.volumes:
        if volume.get("name") not in known:
            kinds = ", ".join(key for key in volume if key != "name") or "none"
            text = f'Unable to attach or mount volumes: volume "{volume.get("name")}" has unsupported type {kinds}'
            raise MountProblem(text)


def needs(pod: AdmittedPod) -> set[tuple[str, str]]:
    """The ConfigMaps and Secrets that the pod's volumes are filled from."""
    return {found for volume in pod.view.spec.volumes for source in _sources(volume) for found in _needed(source)}


def write_all(pod: AdmittedPod, context: Context, lookup: Lookup, claimed: Mapping[str, HostPlace] = {}) -> None:
    """Make every volume of the pod; `claimed` are the places of those that stand for claims."""
    check(pod, context)
    paths = volume_paths(pod, context)
    filled = {volume["name"]: content(pod, volume, context, lookup) for volume in pod.view.spec.volumes}
    for volume in pod.view.spec.volumes:
        name = volume["name"]
        if "emptyDir" in volume:
            paths[name].mkdir(parents=True, exist_ok=True)
        elif "hostPath" in volume:
            _prepare(HostPlace(paths[name], volume["hostPath"].get("type") or ""), volume, context)
        elif name in claimed:
            _prepare(claimed[name], volume, context)
            _link(paths[name], claimed[name].path)
        else:
            write_volume(paths[name], filled[name])


def _prepare(place: HostPlace, volume: Raw, context: Context) -> None:
    try:
        if context.host_files:
            place.prepare()
    except OSError as error:
        raise MountProblem(f'MountVolume.SetUp failed for volume "{volume["name"]}" : {error}') from error
    except MountProblem as problem:
        raise MountProblem(f'MountVolume.SetUp failed for volume "{volume["name"]}" : {problem.what}') from problem


def _link(path: Path, target: Path) -> None:
    """Let a path lead to a place on the host; the runtime follows it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.replace(path)


def content(pod: AdmittedPod, volume: Raw, context: Context, lookup: Lookup) -> dict[str, bytes]:
    """The files of a filled volume."""
    files: dict[str, bytes] = {}
    if any(kind in volume for kind in _ELSEWHERE):
        return files
    for source in _sources(volume):
        makers = [(kind, make) for kind, make in _MAKERS.items() if source.get(kind) is not None]
        if not makers:
            raise MountProblem(f'volume "{volume["name"]}": no node can project {", ".join(source)} yet')
        for kind, make in makers:
            files |= make(pod, source[kind], context, lookup)
    return files


def write_volume(path: Path, files: Mapping[str, bytes]) -> None:
    """Make a folder hold exactly these files."""
    path.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        file = path / name
        if not file.resolve().is_relative_to(path.resolve()):
            raise MountProblem(f"a volume's file would lie outside of it: {name}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    for file in path.rglob("*"):
        if file.is_file() and str(file.relative_to(path)) not in files:
            file.unlink()


def decoded(kind: str, raw: Raw) -> dict[str, bytes]:
    """The files of a ConfigMap or Secret."""
    if kind == "Secret":
        return {key: base64.b64decode(text) for key, text in (raw.get("data") or {}).items()}
    plain = {key: text.encode() for key, text in (raw.get("data") or {}).items()}
    return plain | {key: base64.b64decode(text) for key, text in (raw.get("binaryData") or {}).items()}


def _sources(volume: Raw) -> list[Raw]:
    if volume.get("projected") is not None:
        return volume["projected"].get("sources") or []
    return [volume]


def _needed(source: Raw) -> Iterator[tuple[str, str]]:
    if source.get("configMap") is not None:
        yield "ConfigMap", source["configMap"].get("name", "")
    if source.get("secret") is not None:
        yield "Secret", source["secret"].get("secretName") or source["secret"].get("name", "")
    if source.get("serviceAccountToken") is not None:
        yield TOKEN, token_wish(source["serviceAccountToken"])


def _from_object(kind: str, name_field: str) -> Callable[[AdmittedPod, Raw, Context, Lookup], dict[str, bytes]]:
    def make(pod: AdmittedPod, source: Raw, _context: Context, lookup: Lookup) -> dict[str, bytes]:
        name = source.get(name_field) or source.get("name", "")
        data = lookup.get((kind, name))
        if data is None:
            if source.get("optional"):
                return {}
            where = pod.view.metadata.namespace
            raise MountProblem(f'MountVolume.SetUp failed: {kind.lower()} "{name}" not found in namespace {where}')
        items = source.get("items")
        if not items:
            return dict(data)
        missing = [item["key"] for item in items if item["key"] not in data]
        if missing and not source.get("optional"):
            raise MountProblem(f'MountVolume.SetUp failed: {kind.lower()} "{name}" has no key {missing[0]}')
        return {item["path"]: data[item["key"]] for item in items if item["key"] in data}

    return make


def token_wish(source: Raw) -> str:
    """What a projection asks of a token: for whom, and for how long."""
    return f"{source.get('audience', '')}/{source.get('expirationSeconds') or TOKEN_SECONDS}"


def write_token(pod: AdmittedPod, context: Context, wish: str, token: bytes) -> None:
    """Put a new token in the place of an old one; a reader sees one or the other."""
    paths = volume_paths(pod, context)
    for volume in pod.view.spec.volumes:
        for source in _sources(volume):
            found = source.get("serviceAccountToken")
            if found is not None and token_wish(found) == wish:
                file = paths[volume["name"]] / found["path"]
                fresh = file.with_name(f".{file.name}.new")
                fresh.write_bytes(token)
                fresh.replace(file)


def _from_token(pod: AdmittedPod, source: Raw, _context: Context, lookup: Lookup) -> dict[str, bytes]:
    found = lookup.get((TOKEN, token_wish(source)))
    if found is None:
        account = pod.view.spec.service_account_name or "default"
        where = pod.view.metadata.namespace
        raise MountProblem(f'MountVolume.SetUp failed: serviceaccount "{account}" not found in namespace {where}')
    return {source["path"]: found["token"]}


def _from_fields(pod: AdmittedPod, source: Raw, context: Context, _lookup: Lookup) -> dict[str, bytes]:
    files = {}
    for item in source.get("items") or ():
        path = (item.get("fieldRef") or {}).get("fieldPath", "")
        if path in ("metadata.labels", "metadata.annotations"):
            table = pod.view.metadata.labels if path.endswith("labels") else pod.view.metadata.annotations
            text = "\n".join(f'{key}="{value}"' for key, value in sorted(table.items()))
        else:
            text = field_value(pod, path, context, "") if path else ""
        files[item["path"]] = text.encode()
    return files


_MAKERS: Mapping[str, Callable[[AdmittedPod, Raw, Context, Lookup], dict[str, bytes]]] = {
    "configMap": _from_object("ConfigMap", "name"),
    "secret": _from_object("Secret", "secretName"),
    "downwardAPI": _from_fields,
    "serviceAccountToken": _from_token,
}
