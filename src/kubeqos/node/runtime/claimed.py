"""Volume claims of pods as places on this machine: hostPath and local volumes are mounted here, others are named.

`place_of` decides over objects (pure); `places` asks the API server for them. Words and order are a kubelet's. The
executor asks before a pod's sandbox is made; `volumes` puts a link to each place among the pod's volumes, so that an
agent that starts anew need not ask again.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kubeqos.client.api import Api
from kubeqos.client.errors import ApiError
from kubeqos.client.resources import NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, Resource
from kubeqos.node.runtime.volumes import HostPlace, MountProblem
from kubeqos.placement.expressions import matches_any
from kubeqos.plugins.managers import AdmittedPod
from kubeqos.rules.storage import MountedClaim, VolumeView, mounted_claims

Raw = Mapping[str, Any]
_GENERAL = frozenset({
    "accessModes", "capacity", "claimRef", "mountOptions", "nodeAffinity", "persistentVolumeReclaimPolicy",
    "storageClassName", "volumeAttributesClassName", "volumeMode",
})  # fmt: skip
"""What a volume says of itself whatever it is; the one other field is what it is."""


async def places(pod: AdmittedPod, api: Api | None, node: str) -> dict[str, HostPlace]:
    """Where the claims of a pod's volumes are on this machine, by the volume's name."""
    found: dict[str, HostPlace] = {}
    for mounted in mounted_claims(pod.view):
        if api is None:
            raise MountProblem(f'{_failed(mounted)}: there is no API server to ask for claim "{mounted.claim}"')
        namespace = pod.view.metadata.namespace
        where = f"{_failed(mounted)}: error processing PVC {namespace}/{mounted.claim}"
        claim = await _fetched(api, PERSISTENT_VOLUME_CLAIMS, mounted.claim, namespace, where)
        if wrong := _unusable(pod, mounted, claim):
            raise MountProblem(f"{where}: {wrong}")
        volume = await _fetched(api, PERSISTENT_VOLUMES, claim["spec"]["volumeName"], "", where)
        labels: Raw = {}
        if VolumeView.of(dict(volume)).terms() is not None:
            labels = (await api.get(NODES, node))["metadata"].get("labels") or {}
        found[mounted.volume] = place_of(mounted, claim, volume, node, labels)
    return found


def place_of(mounted: MountedClaim, claim: Raw, volume: Raw, node: str, labels: Raw) -> HostPlace:
    """The place of a claim's volume on the node of this name and these labels."""
    name, spec, view = volume["metadata"]["name"], volume["spec"], VolumeView.of(dict(volume))
    ref, terms = view.spec.claim_ref, view.terms()
    if ref is None or ref.uid != claim["metadata"]["uid"]:
        raise MountProblem(f'{_failed(mounted)}: persistentvolume "{name}" is not bound to claim "{mounted.claim}"')
    if terms is not None and not matches_any(terms, node, labels):
        why = "no matching NodeSelectorTerms"
        raise MountProblem(f'MountVolume.NodeAffinity check failed for volume "{name}" : {why}')
    what = next((key for key in spec if key not in _GENERAL), "none")
    if what not in ("hostPath", "local"):
        text = f'persistentvolume "{name}" is of type {what}; this node mounts hostPath and local volumes only'
        raise MountProblem(f"{_failed(mounted)}: {text}")
    if spec.get("volumeMode") == "Block":
        text = f'persistentvolume "{name}" has volumeMode Block; this node mounts volumes of mode Filesystem only'
        raise MountProblem(f"{_failed(mounted)}: {text}")
    if what == "local":  # whoever offers it has made it: a folder that is gone is not made anew, empty
        return HostPlace(Path(spec["local"]["path"]), "Directory")
    return HostPlace(Path(spec["hostPath"]["path"]), spec["hostPath"].get("type") or "DirectoryOrCreate")


def _unusable(pod: AdmittedPod, mounted: MountedClaim, claim: Raw) -> str:
    """Why a claim cannot be mounted, in a kubelet's words."""
    metadata = pod.view.metadata
    owners = claim["metadata"].get("ownerReferences") or ()
    if mounted.own and all(owner.get("uid") != metadata.uid for owner in owners):
        whose = f"{metadata.namespace}/{metadata.name}"
        return f"PVC {metadata.namespace}/{mounted.claim} was not created for pod {whose} (pod is not owner)"
    if claim["metadata"].get("deletionTimestamp"):
        return "PVC is being deleted"
    if (claim.get("status") or {}).get("phase") != "Bound" or not claim["spec"].get("volumeName"):
        return "PVC is not bound"
    return ""


async def _fetched(api: Api, resource: Resource, name: str, namespace: str, where: str) -> Raw:
    try:
        return await api.get(resource, name, namespace)
    except ApiError as error:
        if not error.not_found:
            raise
        what = "PVC" if namespace else "PV"
        raise MountProblem(f"{where}: failed to fetch {what} from API server: {error.message}") from error


def _failed(mounted: MountedClaim) -> str:
    return f'Unable to attach or mount volumes: volume "{mounted.volume}"'
