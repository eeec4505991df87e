"""The CustomResourceDefinitions of this package as objects: applied to a stock cluster, and partly there in our own.

Called by `kubeqos up` and `kubeqos apiserver`: their server has the fields of quotas, limits and nodes by nature, and
needs the objects that describe classes.
"""

from __future__ import annotations

from importlib.resources import files

from kubeqos.codec import JsonObject, decode_yaml_all

EMBEDDED = ("qosclasses", "qosresources")
"""Those that our own API server has from the beginning."""


def definitions(names: tuple[str, ...] = EMBEDDED) -> tuple[JsonObject, ...]:
    """The definitions in the files of these names."""
    folder = files("kubeqos.stock") / "crds"
    return tuple(obj for name in names for obj in decode_yaml_all((folder / f"{name}.yaml").read_text()))
