"""Static pods: manifests in a folder of the node, which it runs with or without an API server.

Their uid follows from node and content, so that a restart finds the same pods. `Mirrors` shows them in the API as
mirror pods, which others can read and nobody can change: a mirror that is deleted comes back, the pod never notices.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

from kubeqos.client.api import Api
from kubeqos.client.errors import ApiError, Unreachable
from kubeqos.client.resources import PODS
from kubeqos.clock import Clock
from kubeqos.codec import YamlError, decode_yaml
from kubeqos.errors import InputError
from kubeqos.node.api.podwriter import PodWriter
from kubeqos.node.pod.effects import PodGone, PodSet, Raw
from kubeqos.node.pod.machine import MIRROR_ANNOTATION, SOURCE_ANNOTATION
from kubeqos.rules.defaulting.defaults import apply_defaults
from kubeqos.rules.validation import validate

HASH_ANNOTATION = "kubernetes.io/config.hash"
SUFFIXES = (".yaml", ".yml", ".json")
RETRY_SECONDS = 2.0
SCAN_SECONDS = 2.0


def static_pod(text: str, node_name: str, where: str) -> dict[str, Any]:
    """The pod that a manifest describes, as this node runs it."""
    try:
        raw = decode_yaml(text)
    except YamlError as error:
        raise InputError(f"static pod: {error}", where=where) from error
    if not isinstance(raw, dict) or raw.get("kind") != "Pod" or not isinstance(raw.get("metadata"), dict):
        raise InputError("static pod: the file is not a Pod", where=where, remedy="write one Pod per file")
    metadata = raw["metadata"]
    uid = hashlib.md5(f"{node_name}\n{text}".encode(), usedforsecurity=False).hexdigest()
    name = f"{metadata.get('name', '')}-{node_name}"
    metadata |= {"name": name, "namespace": metadata.get("namespace") or "default", "uid": uid}
    marks = {HASH_ANNOTATION: uid, SOURCE_ANNOTATION: "file"}
    metadata["annotations"] = {**(metadata.get("annotations") or {}), **marks}
    raw.pop("status", None)
    spec = raw.setdefault("spec", {})
    spec["nodeName"] = node_name
    spec["tolerations"] = [*(spec.get("tolerations") or ()), {"operator": "Exists", "effect": "NoExecute"}]
    apply_defaults("Pod", raw)
    errors = validate("Pod", raw)
    if errors:
        raise InputError(f"static pod {name}: {errors[0]}", where=where)
    return raw


class StaticFolder:
    """Reads a folder again and again; what changed becomes stimuli."""

    def __init__(self, folder: Path, node_name: str) -> None:
        self._folder = folder
        self._node_name = node_name
        self._seen: dict[str, tuple[int, int, str]] = {}
        self.problems: dict[str, InputError] = {}
        """Files that cannot be used, and why."""

    def scan(self) -> Iterator[PodSet | PodGone]:
        """What changed since the last scan. A changed file is another pod: the old one ends."""
        present: set[str] = set()
        for path in sorted(self._files()):
            try:
                stat = path.stat()
                present.add(path.name)
                known = self._seen.get(path.name)
                if known is not None and known[:2] == (stat.st_mtime_ns, stat.st_size):
                    continue
                raw = static_pod(path.read_text(), self._node_name, str(path))
            except OSError:
                present.discard(path.name)  # it went away while we looked
                continue
            except (InputError, UnicodeDecodeError) as error:
                self.problems[path.name] = error if isinstance(error, InputError) else InputError(str(error))
                self._seen[path.name] = (stat.st_mtime_ns, stat.st_size, known[2] if known else "")
                continue
            self.problems.pop(path.name, None)
            uid = raw["metadata"]["uid"]
            if known is not None and known[2] not in ("", uid):
                yield PodGone(known[2])
            self._seen[path.name] = (stat.st_mtime_ns, stat.st_size, uid)
            yield PodSet(raw, "file")
        for name in self._seen.keys() - present:
            uid = self._seen.pop(name)[2]
            self.problems.pop(name, None)
            if uid:
                yield PodGone(uid)

    def _files(self) -> list[Path]:
        try:
            found = list(self._folder.iterdir())
        except OSError:
            return []
        return [path for path in found if path.suffix in SUFFIXES and not path.name.startswith(".")]

    def tell(self, feed: Callable[[PodSet | PodGone], None], report: Callable[[str, str], None]) -> None:
        """Pass on what changed, and what is newly wrong."""
        known = set(self.problems)
        for stimulus in self.scan():
            feed(stimulus)
        for name in set(self.problems) - known:
            report("FailedStaticPod", f"{self.problems[name].what} ({self.problems[name].where or name})")

    async def follow(
        self, clock: Clock, feed: Callable[[PodSet | PodGone], None], report: Callable[[str, str], None]
    ) -> None:
        """Look again and again, until cancelled."""
        while True:
            await clock.sleep(SCAN_SECONDS)
            self.tell(feed, report)


class Mirrors:
    """Keeps a mirror pod in the API for every static pod."""

    def __init__(self, api: Api, writer: PodWriter, spawn: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        self._api = api
        self._writer = writer
        self._spawn = spawn
        self._wanted: dict[str, tuple[Raw, Raw]] = {}
        self._working: set[str] = set()
        self._made: dict[str, tuple[str, Raw]] = {}
        """Mirror's uid → static pod's uid, and the mirror."""

    def write(self, raw: Raw, status: Raw) -> None:
        """Show this status of a static pod."""
        uid = raw["metadata"]["uid"]
        self._wanted[uid] = (raw, status)
        self._wake(uid)

    def forget(self, uid: str) -> None:
        """The static pod has ended: take its mirror away."""
        if self._wanted.pop(uid, None) is not None:
            self._wake(uid)

    def changed(self, stimulus: PodSet | PodGone) -> None:
        """What the API says about mirrors: one that is to be deleted goes at once, and comes back."""
        uid = stimulus.uid if isinstance(stimulus, PodGone) else stimulus.raw["metadata"]["uid"]
        if uid in self._made and (isinstance(stimulus, PodGone) or stimulus.raw["metadata"].get("deletionTimestamp")):
            self._wake(self._made[uid][0])

    def _wake(self, uid: str) -> None:
        if uid not in self._working:
            self._working.add(uid)
            self._spawn(self._work(uid))

    async def _work(self, uid: str) -> None:
        try:
            while True:
                wanted = self._wanted.get(uid)
                try:
                    await self._keep(uid, wanted)
                except (ApiError, Unreachable):
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                if self._wanted.get(uid) is wanted:
                    return
        finally:
            self._working.discard(uid)

    async def _keep(self, uid: str, wanted: tuple[Raw, Raw] | None) -> None:
        if wanted is None:
            for owner, made in list(self._made.values()):
                if owner == uid:
                    await self._delete(made)
            return
        raw, status = wanted
        mirror = await self._found(raw)
        if mirror is not None and not _mirrors(mirror, uid):
            await self._delete(mirror)
            mirror = None
        if mirror is None:
            mirror = await self._api.create(PODS, mirror_of(raw))
        self._made[mirror["metadata"]["uid"]] = (uid, mirror)
        self._writer.write(mirror, status)

    async def _found(self, raw: Raw) -> dict[str, Any] | None:
        try:
            return await self._api.get(PODS, raw["metadata"]["name"], raw["metadata"]["namespace"])
        except ApiError as error:
            if not error.not_found:
                raise
            return None

    async def _delete(self, mirror: Raw) -> None:
        metadata = mirror["metadata"]
        try:
            await self._api.delete(PODS, metadata["name"], metadata["namespace"], grace_seconds=0, uid=metadata["uid"])
        except ApiError as error:
            if not error.not_found and not error.conflict:
                raise
        self._made.pop(metadata["uid"], None)


def mirror_of(raw: Raw) -> dict[str, Any]:
    """The API's copy of a static pod."""
    metadata = {key: value for key, value in raw["metadata"].items() if key != "uid"}
    metadata["annotations"] = {**metadata["annotations"], MIRROR_ANNOTATION: raw["metadata"]["uid"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": dict(raw["spec"])}


def _mirrors(mirror: Raw, uid: str) -> bool:
    metadata = mirror["metadata"]
    return (metadata.get("annotations") or {}).get(MIRROR_ANNOTATION) == uid and not metadata.get("deletionTimestamp")
