"""The installation as a Helm chart: the same objects, with the image and the settings as values. Pure.

Nothing is written twice: the chart is made from what `installation` has, by `kubeqos install --chart`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from kubeqos.codec import encode_yaml
from kubeqos.stock.installation import EMPTY, RUNTIME, objects

NAME = "kubeqos"
VALUES = {"kubeqos-classes": "classes", "kubeqos-node-configuration": "nodeConfiguration", RUNTIME: "runtime"}
"""Settings, and how the chart's values are named that set them."""
_MARK = "VALUE-OF-{}-IN-THE-CHART"
_MARKED = re.compile(_MARK.format("([A-Za-z]+)"))
_COMMENTS = {
    "image": "The image of the Containerfile.",
    "classes": "The classes of every node: a classes.yaml.",
    "nodeConfiguration": "A NodeConfiguration of nodes that hand out cores; empty for none.",
    "runtime": "What agents may change in their runtime's settings, a runtime.yaml; nothing where it is empty.",
}


def chart(version: str, image: str, given: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Every file of the chart, its path and its text; what is given are the defaults of its values."""
    settings = {name: _MARK.format(value) for name, value in VALUES.items()}
    defaults = {"image": image, **{value: given.get(name, EMPTY[name]) for name, value in VALUES.items()}}
    about = "QoS classes, exclusive cores, pools and class quotas for an unmodified Kubernetes"
    described = {"apiVersion": "v2", "name": NAME, "description": about, "type": "application"}
    yield "Chart.yaml", encode_yaml({**described, "version": _semantic(version), "appVersion": version})
    yield "values.yaml", "".join(f"# {_COMMENTS[key]}\n{encode_yaml({key: text})}" for key, text in defaults.items())
    for raw in objects(_MARK.format("image"), settings):
        kind, name = raw["kind"], raw["metadata"]["name"]
        folder = "crds" if kind == "CustomResourceDefinition" else "templates"
        yield f"{folder}/{kind.lower()}-{name}.yaml", _MARKED.sub(r"{{ .Values.\1 | toJson }}", encode_yaml(raw))


def _semantic(version: str) -> str:
    """Helm wants three numbers."""
    numbers = [*re.findall(r"\d+", version)[:3], "0", "0"][:3]
    return ".".join(numbers)
