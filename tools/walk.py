"""One pod's walk through the house, counted: how many modules it touches and how often it switches between them.

    python -m tools.walk            both walks, with the edges that are crossed most
    python -m tools.walk --write    the same figures into docs/architecture.md
    python -m tools.walk --check    fail where a walk switches more than half as often as before

The first walk goes from the create of a pod to its answer, on a fresh API server in this process. The second goes from
the moment a node sees the pod to the moment it runs, on a real agent over a simulated runtime, in virtual time. A
*switch* is a call of one of our functions whose predecessor, the last of our functions that was called, lies in another
module. What a walk does for the first time counts too (types that are compiled, memos that are filled): a reader walks
there as well.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

PACKAGE = "kubeqos"
PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
BEGIN, END = "<!-- walk: written by tools/walk.py -->", "<!-- end of walk -->"


@dataclass(frozen=True)
class Figures:
    """What is told of one walk."""

    modules: int
    switches: int


CREATE, NODE = "from POST to stored", "from watch to Running"
BEFORE_COMMIT = "a658a24"
"""The last commit before the rooms had inner walls; its walks were counted by the same rule."""
BEFORE = {CREATE: Figures(57, 444), NODE: Figures(49, 815)}
TARGETS = {CREATE: 205, NODE: 395}
"""Half of what was counted when the house was judged (411 and 790)."""


@dataclass
class Walk:
    """Listens to the interpreter while it is entered."""

    called: list[str] = field(default_factory=list)
    """Modules of the functions called, in order."""
    edges: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often a module called into another."""

    def __enter__(self) -> Walk:
        sys.setprofile(self._listen)
        return self

    def __exit__(self, *_error: object) -> None:
        sys.setprofile(None)

    def _listen(self, frame: FrameType, event: str, _argument: object) -> None:
        if event != "call" or not (module := _ours(frame)):
            return
        self.called.append(module)
        caller = frame.f_back
        # Between two of our functions there may be others': a comprehension's key function, a decoder's hook, the loop.
        while caller is not None and not _ours(caller):
            caller = caller.f_back
        origin = _ours(caller) if caller is not None else "(event loop)"
        if origin != module:
            self.edges[origin, module] += 1

    @property
    def figures(self) -> Figures:
        pairs = zip(self.called, self.called[1:], strict=False)
        return Figures(len(set(self.called)), sum(one != other for one, other in pairs))


def _ours(frame: FrameType) -> str:
    name: str = frame.f_globals.get("__name__", "")
    return name if name.startswith(f"{PACKAGE}.") else ""


def pod(name: str, **spec: Any) -> dict[str, Any]:
    """A pod such as most are: one container with requests and limits."""
    amounts = {"cpu": "1", "memory": "1Gi"}
    container = {"name": "c", "image": "app:1", "resources": {"requests": amounts, "limits": amounts}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container], **spec},
    }


async def create() -> Walk:
    """The first pod that a fresh API server is given."""
    from kubeqos.apiserver.server import ApiServer, Settings
    from kubeqos.client.resources import PODS

    with tempfile.TemporaryDirectory() as folder:
        async with ApiServer.start(Settings(Path(folder) / "data", port=0)) as server:
            api = server.local()
            with Walk() as walk:
                await api.create(PODS, pod("web"), "default")
    return walk


async def run() -> Walk:
    """The first pod of a node, until it runs."""
    from kubeqos.cluster.fleet import Fleet, NodeShape
    from kubeqos.model.hardware.named import kep80

    with tempfile.TemporaryDirectory() as folder:
        async with Fleet(Path(folder)) as fleet:
            (node,) = await fleet.add(["n"], NodeShape(kep80()))
            raw = pod("web", nodeName="n")
            raw["metadata"]["uid"] = "u"
            with Walk() as walk:
                node.pods.set(raw)
                await fleet.until_idle()
                for _ in range(100):
                    if node.phases().get("u") == "Running":
                        break
                    await fleet.advance(0.1)
            if node.phases().get("u") != "Running":
                raise SystemExit("the pod does not run")
    return walk


def measured() -> dict[str, Walk]:
    return {CREATE: asyncio.run(create()), NODE: asyncio.run(run())}


def table(walks: dict[str, Walk]) -> str:
    """Before and after, in Markdown."""
    lines = [
        f"| walk | modules before ({BEFORE_COMMIT}) | switches before | modules | switches | of before |",
        "|---|---|---|---|---|---|",
    ]
    for name, walk in walks.items():
        before, now = BEFORE[name], walk.figures
        share = now.switches / before.switches
        lines.append(
            f"| {name} | {before.modules} | {before.switches} | {now.modules} | {now.switches} | {share:.0%} |"
        )
    return "\n".join(lines)


def write(walks: dict[str, Walk]) -> None:
    """Put the table into the page, between its marks."""
    text = PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    PAGE.write_text(f"{head}{BEGIN}\n\n{table(walks)}\n\n{END}{tail}", encoding="utf-8")


def main(arguments: list[str]) -> int:
    walks = measured()
    print(table(walks))
    for name, walk in walks.items():
        print(f"\n{name}: {len(walk.called)} calls, most crossed edges")
        for (origin, module), count in walk.edges.most_common(12):
            print(f"{count:6}  {origin.removeprefix(PACKAGE + '.')} → {module.removeprefix(PACKAGE + '.')}")
    if "--write" in arguments:
        write(walks)
    over = {name: walk.figures.switches for name, walk in walks.items() if walk.figures.switches > TARGETS[name]}
    if "--check" in arguments and over:
        said = ", ".join(f"{name}: {count} switches, at most {TARGETS[name]}" for name, count in over.items())
        print(f"\nmore than half of what it was: {said}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
