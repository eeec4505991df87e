"""A new class provider to start from: `kubeqos provider new NAME` writes it, with a test that passes."""

from __future__ import annotations

from pathlib import Path

from kubeqos.plugins.skeleton import facts, plain_name, write

PROVIDER = '''"""A class provider: the classes of {resource}."""

import asyncio
import sys

from kubeqos.cri.providers.protocol import Advertisement, ClassInfo, ClassProvider, ClassRefusal, Edit, Level
from kubeqos.cri.providers.remote import serve

CLASSES = {{"fast": 2, "slow": 0}}
"""How many containers may have each at the same time; 0 is unlimited."""


class {type}(ClassProvider):
    """Says which classes there are, and makes them true for a container."""

    def __init__(self) -> None:
        self.entered = {{}}

    async def advertise(self):
        classes = tuple(ClassInfo(name, capacity) for name, capacity in CLASSES.items())
        return [Advertisement("{resource}", Level.CONTAINER, True, classes)]

    async def check(self, subject, resource, class_name):
        known = resource == "{resource}" and class_name in CLASSES
        return None if known else ClassRefusal(f"there is no {{resource}}={{class_name}}", "see what is advertised")

    async def apply(self, subject, resource, class_name):
        return Edit(annotations={{"{resource}-class": class_name}})

    async def enter(self, subject, place, resource, class_name):
        self.entered[subject.id] = class_name  # write what only a running container has: it is at place.cgroup

    async def move(self, subject, place, resource, old, new):
        self.entered[subject.id] = new

    async def withdraw(self, subject, resource, class_name):
        self.entered.pop(subject.id, None)


async def main() -> None:
    server = await serve({type}(), sys.argv[1])
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main())
'''

TEST = '''"""The provider keeps its promises: to the protocol, and to whoever is in its classes."""

import asyncio
import tempfile
from pathlib import Path

from {module} import {type}

from kubeqos.cri.providers.kit.conformance import Kit
from kubeqos.cri.providers.protocol import Level, Place, Subject
from kubeqos.cri.providers.remote import serve


def test_who_ends_is_forgotten() -> None:
    async def life() -> None:
        provider, subject = {type}(), Subject(Level.CONTAINER, "c1")
        await provider.enter(subject, Place(1, "/"), "{resource}", "fast")
        assert provider.entered == {{"c1": "fast"}}
        await provider.withdraw(subject, "{resource}", "fast")
        assert provider.entered == {{}}

    asyncio.run(life())


def test_it_speaks_the_protocol() -> None:
    async def judged() -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            server = await serve({type}(), f"{{folder}}/p.sock")
            report = await Kit(Path(folder) / "p.sock").run()
            await server.stop(0)
        return [f"{{check.name}}: {{check.detail}}" for check in report if check.passed is False]

    assert asyncio.run(judged()) == []
'''


def write_skeleton(name: str, folder: Path, resource: str = "") -> list[Path]:
    """Write a provider and its test into a new folder; returns the files."""
    known = facts(plain_name(name, "provider"), resource)
    texts = {f"{known['module']}.py": PROVIDER, f"test_{known['module']}.py": TEST}
    return write(folder / name, {file: text.format(**known) for file, text in texts.items()})
