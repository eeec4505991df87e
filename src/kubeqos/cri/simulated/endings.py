"""When and how a simulated container ends: by its program, its script, its limit of memory, or because it was asked to.

Pure. Asked by the core, which sets timers by it and brings the end about.
"""

from __future__ import annotations

from kubeqos.cri.simulated import cgroups
from kubeqos.cri.simulated.process.usage import NS
from kubeqos.cri.simulated.state import KILLED, OOM_KILLED, Container, Ending, reason_of


def ending_of(container: Container) -> Ending | None:
    """The first of: out of memory, asked to stop, scripted exit, end of the program."""
    found: list[Ending] = []
    limit = cgroups.memory_limit(container.resources)
    if limit is not None and container.usage is not None:
        passes = container.usage.passes_ns(limit)
        if passes is not None:
            found.append(Ending(max(passes, container.limited_ns), KILLED, OOM_KILLED))
    if container.stopping is not None:
        found.append(container.stopping)
    scripted = container.script.exit
    if scripted is not None and (scripted.times is None or container.config.metadata.attempt < scripted.times):
        at_ns = container.started_ns + scripted.after_ns
        found.append(Ending(at_ns, scripted.code, reason_of(scripted.code), scripted.message))
    elif container.program.ends_after_ns is not None:
        code = container.program.exit_code
        found.append(Ending(container.started_ns + container.program.ends_after_ns, code, reason_of(code)))
    return min(found, key=lambda ending: ending.at_ns, default=None)


def ending_when_asked(container: Container, timeout_seconds: int, now_ns: int) -> Ending:
    """How a running container ends that is asked to, and killed once its time is over."""
    ending = Ending(now_ns + max(0, timeout_seconds) * NS, KILLED, reason_of(KILLED))
    scripted = container.script.stop
    if scripted is not None and scripted.after_ns is not None:
        asked = Ending(now_ns + scripted.after_ns, scripted.code, reason_of(scripted.code))
        return min(asked, ending, key=lambda e: e.at_ns)
    if scripted is None and container.program.heeds_term and timeout_seconds > 0:
        return Ending(now_ns, 0, reason_of(0))
    return ending
