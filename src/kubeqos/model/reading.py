"""Values of the domain in strict documents: quantities, durations, CPU lists, lists of resources.

The readers that `kubeqos.document` does not have because it stands below the model. A mistake is reported with the
line it stands on.
"""

from __future__ import annotations

from kubeqos.document import Doc
from kubeqos.errors import InputError
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.quantity import Quantity
from kubeqos.model.timestamps import parse_duration


def quantity(doc: Doc) -> Quantity:
    """A Kubernetes quantity, not negative."""
    try:
        found = Quantity.parse(doc.text())
    except InputError as error:
        doc.fail(f"{doc.text()!r} is not a quantity ({error})", "write it like 64Mi, 10M or 500")
    if found < Quantity.ZERO:
        doc.fail(f"{doc.text()!r} is negative")
    return found


def amount(doc: Doc) -> int:
    """A quantity of bytes or operations as a whole number."""
    return quantity(doc).value()


def cpu_set(doc: Doc) -> CpuSet:
    """CPUs in the kernel's list format."""
    return doc.parsed(CpuSet.parse, "write it like 0-3,8")


def seconds(doc: Doc) -> float:
    """A duration in Go's form (`1m30s`), in seconds; `0` needs no unit."""
    return 0.0 if doc.text() == "0" else doc.parsed(parse_duration) / 1e9
