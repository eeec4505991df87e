"""Which machine somebody means: one that has a name here, one described in a file, or the one that this runs on.

Called by the commands and by the simulated runtime. Readers are imported when they are needed: commands start fast.
"""

from __future__ import annotations

from pathlib import Path

from kubeqos.errors import InputError
from kubeqos.model.machine import Machine


def load_machine(given: str | None, folder: Path | None = None) -> Machine:
    """A machine by name or from a YAML file (relative to `folder`); the machine that this runs on for None."""
    from kubeqos.document import read_document
    from kubeqos.model.hardware.machinefile import machine_from_doc
    from kubeqos.model.hardware.named import MACHINES
    from kubeqos.model.hardware.sysfs import read_machine

    if given is None:
        return read_machine(Path("/sys"), name="local")
    path = (folder or Path()) / given
    if given in MACHINES and not path.exists():
        return MACHINES[given]()
    try:
        document = read_document(path, "machine", InputError)
    except InputError as error:
        raise InputError(
            error.what, where=error.where, remedy=f"name a YAML file or one of: {', '.join(MACHINES)}"
        ) from error
    return machine_from_doc(document)
