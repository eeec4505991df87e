"""critest, the conformance tests of container runtimes, on containerd 1.6 and 2: straight, and through the relay.

`python -m tests.stock.critest` runs all of it (a quarter of an hour, as root) and writes docs/reference/critest.md;
tests/stock/test_critest.py asks for a part of it. Images come from a registry of the test's own
(tests/stock/registry.py), since the real ones may be out of reach.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import astuple, dataclass, field
from pathlib import Path

from tools.stock import PROJECTS, find

from tests.cri.containerd import Containerd
from tests.cri.images import PAUSE_IMAGE
from tests.cri.relay.processes import RelayProcess
from tests.shared import cgroups
from tests.stock.containerd2 import Containerd2
from tests.stock.registry import Registry, running_registry

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "critest.md"


@dataclass(frozen=True)
class Outcome:
    """What became of a case, what critest says where it could not look, and of a failure, which names what it made."""

    state: str
    why: str = ""
    failure: str = field(default="", compare=False)


Results = dict[str, Outcome]

RUNTIMES = {"containerd 1.6": (Containerd, "grpc.v1.cri"), "containerd 2": (Containerd2, "cri.v1.images")}
NETWORK = """{{"cniVersion": "0.4.0", "name": "critest", "plugins": [
  {{"type": "ptp", "ipam": {{"type": "host-local", "dataDir": "{folder}/addresses",
    "ranges": [[{{"subnet": "10.254.77.0/24"}}]], "routes": [{{"dst": "0.0.0.0/0"}}]}}}},
  {{"type": "portmap", "capabilities": {{"portMappings": true}}}}]}}
"""
# Nobody asks for a class here, so none may be given by itself: what the relay does for everybody is what is compared.
CLASSES = """
resources:
  cpu-class: {provider: cpu, classes: {gold: {weight: 400}}}
  ulimits: {provider: ulimits, classes: {few-files: {nofile: "64:128"}}}
"""
# What containerd 2 pulls goes another way than what is imported, which has to be told of the snapshotter, too.
UNPACKS = """[[plugins."io.containerd.transfer.v1.local".unpack_config]]
  platform = "linux/amd64"
  snapshotter = "native"
"""
PARENTS = ("k8s.io", "system.slice")
"""Where critest's pods are: containerd's own place, and the one critest takes when it is not told the cgroup driver."""


@contextlib.contextmanager
def runtime(name: str, folder: Path, registry: Registry) -> Iterator[Containerd]:
    """A containerd whose pods have a network, and whose images come from our registry."""
    make, plugin = RUNTIMES[name]
    one = make(folder)
    registry.write_hosts(folder / "certs.d")
    one.more_config = f'[plugins."io.containerd.{plugin}".registry]\n  config_path = "{folder}/certs.d"\n' + UNPACKS
    one.network = NETWORK.format(folder=folder)
    try:
        one.start()
        one.add_image(PAUSE_IMAGE, ["tail", "-f", "/dev/null"])  # critest looks for processes called "sleep"
        yield one
    finally:
        one.stop()


@contextlib.contextmanager
def relay(socket: Path, folder: Path) -> Iterator[Path]:
    folder.mkdir()
    process = RelayProcess(folder, socket, CLASSES)
    process.start()
    try:
        yield process.socket
    finally:
        process.stop()


def critest(socket: Path, folder: Path, focus: str = "") -> Results:
    """Run the cases whose names match, and say what became of each of them."""
    programs = find("critest")
    assert programs is not None, "the test is marked with what it needs"
    report = folder / "report.json"
    report.unlink(missing_ok=True)
    words = [
        *(str(programs[0]), "-runtime-endpoint", f"unix://{socket}", "-image-endpoint", f"unix://{socket}"),
        *("-ginkgo.no-color", "-ginkgo.seed=1", f"-ginkgo.json-report={report}"),
    ]
    if focus:
        words.append(f"-ginkgo.focus={focus}")
    with (folder / "critest.log").open("w") as log:
        subprocess.run(words, stdout=log, stderr=log, cwd=folder, check=False, timeout=1800)
    assert report.exists(), (folder / "critest.log").read_text()[-3000:]
    found = {}
    for one in json.loads(report.read_text())[0]["SpecReports"] or ():
        name = " ".join([*(one["ContainerHierarchyTexts"] or ()), one["LeafNodeText"]])
        # What a focus leaves out, and benchmarks, were not tried; what looked and found nothing to test was.
        if one["LeafNodeType"] == "It" and (one["State"] != "skipped" or one.get("RunTime", 0)):
            said = (one.get("Failure") or {}).get("Message", "")
            told = {"why" if one["State"] == "skipped" else "failure": said}
            found[name.removeprefix("[k8s.io] ")] = Outcome(one["State"], **told)
    return found


def compared(name: str, focus: str = "") -> tuple[Results, Results]:
    """What critest says of a runtime, straight and through the relay.

    In a network of its own: the ports that critest takes are free there, and what network plugins leave goes with it.
    """
    with tempfile.NamedTemporaryFile() as told:
        again = [sys.executable, "-m", "tests.stock.critest", name, focus, told.name]
        words = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *again]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
        straight, through = json.loads(Path(told.name).read_text())
    return _outcomes(straight), _outcomes(through)


def _outcomes(told: dict[str, list[str]]) -> Results:
    return {case: Outcome(*parts) for case, parts in told.items()}


def _compared(name: str, focus: str) -> tuple[Results, Results]:
    folder = Path(tempfile.mkdtemp(prefix="kq-"))
    before = _groups()
    try:
        with running_registry() as registry, runtime(name, folder / "c", registry) as one:
            straight = critest(one.socket, folder, focus)
            with relay(one.socket, folder / "r") as socket:
                return straight, critest(socket, folder, focus)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for group in sorted(_groups() - before, reverse=True):
            with contextlib.suppress(OSError):  # somebody else's, and in use
                group.rmdir()


def _groups() -> set[Path]:
    return {path for parent in PARENTS for path in (*cgroups.below(parent), *cgroups.folders(parent))}


_LATER = "containerd 1.6 answers NotFound; it is asked otherwise since"
REASONS = {
    "Image Manager public image with digest should be pulled and removed [Conformance]": (
        "names an image by its digest, which only the real registry has"
    ),
    "Security Context bucket runtime should support MaskedPaths": (
        "masks a program that Debian's busybox, which the images are made of, runs as a part of itself"
    ),
    "Idempotence StopPodSandbox should not return an error if not found": _LATER,
    "Idempotence StopContainer should not return an error if not found": _LATER,
}
"""Why a case fails with the runtime alone."""
HEAD = """\
# critest, with and without the relay

What the conformance tests of container runtimes
([critest](https://github.com/kubernetes-sigs/cri-tools) {version}) say of containerd, and of the same containerd behind
`kubeqos relay`: the lists are {equal}. `python -m tests.stock.critest` runs them (as root) and writes this page;
`make test-stock` runs a part of them each time, `make test-stock-all` all. Images come from a registry on loopback. A
dash is a case that does not apply, with critest's own reason.

| | {names} |
|---|{lines}|
| passed | {passed} |
| not applicable | {skipped} |
| failed | {failed} |

| case | {names} | |
|---|{lines}|---|
"""


def page(columns: dict[str, Results], version: str) -> str:
    """The page that lists every case beside what became of it in each column."""

    def counted(state: str) -> str:
        return " | ".join(str(sum(one.state == state for one in results.values())) for results in columns.values())

    text = HEAD.format(
        version=version,
        equal="equal" if equal(columns) else "**not** equal",
        names=" | ".join(columns),
        lines="|".join("---" for _ in columns),
        **{state: counted(state) for state in ("passed", "skipped", "failed")},
    )
    for case in sorted({case for results in columns.values() for case in results}):
        outcomes = [results.get(case, Outcome("absent")) for results in columns.values()]
        marks = " | ".join({"passed": "yes", "skipped": "–", "failed": "no"}.get(one.state, "?") for one in outcomes)
        whys = dict.fromkeys(one.why for one in outcomes if one.why) or {REASONS.get(case, ""): None}
        text += f"| {case.replace('|', '/')} | {marks} | {'; '.join(whys).replace('|', '/')} |\n"
    return text


def equal(columns: dict[str, Results]) -> bool:
    """Whether each runtime is followed by the same results through the relay."""
    results = list(columns.values())
    return results[::2] == results[1::2]


def main(words: list[str]) -> int:
    if words:
        name, focus, told = words
        results = [{case: astuple(one) for case, one in each.items()} for each in _compared(name, focus)]
        Path(told).write_text(json.dumps(results))
        return 0
    columns: dict[str, Results] = {}
    for name in RUNTIMES:
        straight, through = compared(name)
        columns |= {name: straight, f"{name} and relay": through}
    PAGE.write_text(page(columns, next(one for one in PROJECTS if one.folder == "critest").version))
    print(f"{PAGE}: the lists are {'equal' if equal(columns) else 'NOT equal'}")
    for name in RUNTIMES:
        straight, through = columns[name], columns[f"{name} and relay"]
        for case in sorted(straight.keys() | through.keys()):
            if (one := straight.get(case)) != (other := through.get(case)):
                print(f"{name}: {case}\n  straight {one}\n  through the relay {other}")
    return 0 if equal(columns) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
