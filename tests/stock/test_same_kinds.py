"""Full objects of every family of kinds with one thing wrong at a time: a real kube-apiserver and ours say the same.

`tests/stock/samples.py` holds the objects; what can be wrong with them is drawn from their shape, so a new field of a
sample is asked about without another line. Kinds with rules of their own (jobs, services, roles) are in it too.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.stock import samples
from tests.stock.needs import needs_stock
from tests.stock.pair import Ours, Reply, Stock, both_servers, causes

pytestmark = needs_stock("kube-apiserver", "etcd")

NOT_READ = ("spec.validations[0].expression", "spec.selectors[0].cel.expression")
"""CEL is not read here: what is no expression is taken as one (docs/objects.md)."""
NOT_ANSWERED = ("Job", "spec.completions is missing")
"""A real server panics at an indexed job whose success policy has nothing to count against: it hangs up."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stock, Ours]]:
    with both_servers(tmp_path_factory.mktemp("stock"), tmp_path_factory.mktemp("ours")) as both:
        yield both


@pytest.mark.parametrize(("api_version", "kind", "body"), samples.SAMPLES, ids=[one[1] for one in samples.SAMPLES])
def test_both_find_the_same_wrong(servers: tuple[Stock, Ours], api_version: str, kind: str, body: samples.Raw) -> None:
    stock, our = servers
    obj = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}, **body}
    path = f"{samples.collection(api_version, kind)}?dryRun=All"
    assert stock.call("POST", path, obj)[0] == 201, "what is changed below is right as it is"
    wrong = []
    for what, one in [("as it is", obj), *samples.variants(obj)]:
        if (kind, what) == NOT_ANSWERED or (what.startswith(NOT_READ) and not what.endswith(("missing", "''"))):
            continue
        theirs, ours = stock.call("POST", path, one), our.call("POST", path, one)
        if theirs[0] != ours[0] or causes(theirs[1]) != causes(ours[1]):
            wrong.append(f"{what}: theirs {theirs[0]} {sorted(causes(theirs[1]))}, ours {ours[0]} {causes(ours[1])}")
    assert not wrong, f"{len(wrong)} differ:\n" + "\n".join(wrong[:10])


EACH = 3
"""Every so-manieth change is tried on an object that is there: most is judged as on a new one."""
CHANGED_THERE = {
    "Service": ("spec.ports =",),  # a real server fails (500) where two ports are one
    "PersistentVolumeClaim": ("spec.dataSource",),  # and forgets a source that it has no driver for
}


@pytest.mark.parametrize(("api_version", "kind", "body"), samples.SAMPLES, ids=[one[1] for one in samples.SAMPLES])
def test_both_take_and_refuse_the_same_changes(
    servers: tuple[Stock, Ours], api_version: str, kind: str, body: samples.Raw
) -> None:
    name = (body.get("metadata") or {}).get("name", f"x{samples.SAMPLES.index((api_version, kind, body))}")
    obj = {"apiVersion": api_version, "kind": kind, **body, "metadata": {"name": name}}
    path = samples.collection(api_version, kind)
    for server in servers:
        assert server.call("POST", path, obj)[0] == 201
    wrong = []
    left_out = (*NOT_READ, "metadata", *CHANGED_THERE.get(kind, ()))
    for what, one in [("as it is", obj), *list(samples.variants(obj))[::EACH]]:
        if (kind, what) == NOT_ANSWERED or what.startswith(left_out):
            continue
        answers = [changed(server, f"{path}/{name}", one) for server in servers]
        if answers[0][0] != answers[1][0]:
            wrong.append(f"{what}: theirs {answers[0][0]} {causes(answers[0][1])}, ours {answers[1]}")
    assert not wrong, f"{len(wrong)} differ:\n" + "\n".join(wrong[:10])


def changed(server: Stock | Ours, path: str, wanted: samples.Raw) -> Reply:
    """What a server says of a change of the object as it is now; a controller of its own may write it meanwhile."""
    while True:
        now = server.call("GET", path)[1]["metadata"]
        sent = {**wanted, "metadata": {"name": now["name"], "resourceVersion": now["resourceVersion"]}}
        answer = server.call("PUT", f"{path}?dryRun=All", sent)
        if answer[0] != 409:
            return answer
