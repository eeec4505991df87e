"""Everything that changes an object by a description of the change: patches and server-side apply.

Pure functions on plain JSON values. The API server calls them between reading the stored object and running admission;
what they return still has to be decoded (`decoding`), defaulted and validated. A refusal is a `PatchError` that carries
the Status the client gets. The inputs are never modified.
"""

from kubeqos.apiserver.patch.apply import Applied, apply_configuration
from kubeqos.apiserver.patch.decoding import Patched, apply_patch
from kubeqos.apiserver.patch.errors import PatchError
from kubeqos.apiserver.patch.jsonpatch import json_patch
from kubeqos.apiserver.patch.managers import Writer, changes_between, track
from kubeqos.apiserver.patch.merge import merge_patch
from kubeqos.apiserver.patch.strategic import strategic_merge
from kubeqos.apiserver.patch.typed import Comparison

__all__ = [
    "Applied",
    "Comparison",
    "PatchError",
    "Patched",
    "Writer",
    "apply_configuration",
    "apply_patch",
    "changes_between",
    "json_patch",
    "merge_patch",
    "strategic_merge",
    "track",
]
