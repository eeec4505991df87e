"""Full objects of every family of kinds with one thing wrong at a time: a real kube-apiserver and ours say the same.

`tests/stock/samples.py` holds the objects; what can be wrong with them is drawn from their shape, so a new field of a
sample is asked about without another line. Kinds with rules of their own (jobs, services, roles) are in it too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.stock import samples
from tests.stock.needs import needs_stock
from tests.stock.pair import Ours, Reply, Stock, both_servers

pytestmark = needs_stock("kube-apiserver", "etcd")

NOT_READ = re.compile(r"""\S*[eE]xpression = ['"].+""", re.DOTALL)
"""CEL is not read here: what is no expression is taken as one (docs/objects.md)."""
NOT_ANSWERED = {
    # A real server panics at an indexed job whose success policy has nothing to count against: it hangs up.
    ("Job", "spec.completions is missing"),
    # Where two ports of a service that is there are one, it fails (500) and tells nobody what is wrong.
    ("Service", "spec.ports ="),
}
OTHER_WORDS = {
    # Where a real server would take the strategy Webhook, ours says that None is all there is.
    ("CustomResourceDefinition", "spec.conversion.strategy ="),
    # A real server has other words for these on create ("bytes") than on update, where they are judged by older rules.
    ("VolumeAttachment", "spec.attacher ="),
    ("RuntimeClass", "handler ="),
}
_VALUE = re.compile(r'(?<=value: )(null|""|[{\[].*[}\]])(?=: |$)', re.DOTALL)
_SHOWN_CHANGE = re.compile(r"\n@@.*|(?<=previously negative\))\n.*", re.DOTALL)


def told(kind: str, what: str, body: Any) -> set[tuple[str, str, str]]:
    """Why something was refused: of each mistake its reason, field and words.

    But for a value that is more than a word: a real server prints its own Go structs, in their order of fields and with
    names that no API has, and compares two of them line by line.
    """
    words = not any(kind == one and what.startswith(begin) for one, begin in OTHER_WORDS)
    return {
        (
            cause.get("reason", ""),
            cause.get("field", ""),
            _VALUE.sub("<value>", _SHOWN_CHANGE.sub("", cause.get("message", ""))) if words else "",
        )
        for cause in (body.get("details") or {}).get("causes") or ()
    }


def unanswered(kind: str, what: str) -> bool:
    unread = NOT_READ.fullmatch(what) is not None and not what.endswith("= ''")
    return unread or any(kind == one and what.startswith(begin) for one, begin in NOT_ANSWERED)


def different(kind: str, what: str, theirs: Reply, ours: Reply) -> list[str]:
    """What two answers do not agree on, if anything."""
    one, other = told(kind, what, theirs[1]), told(kind, what, ours[1])
    if (theirs[0], one) == (ours[0], other):
        return []
    return [f"{what}: theirs {theirs[0]} {sorted(one - other)}, ours {ours[0]} {sorted(other - one)}"]


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
        if unanswered(kind, what):
            continue
        wrong += different(kind, what, stock.call("POST", path, one), our.call("POST", path, one))
    assert not wrong, f"{len(wrong)} differ:\n" + "\n".join(wrong[:10])


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
    for what, one in [("as it is", obj), *samples.variants(obj)]:
        if unanswered(kind, what) or what.startswith("metadata"):  # test_same_changes is about that
            continue
        theirs, ours = (changed(server, f"{path}/{name}", one) for server in servers)
        wrong += different(kind, what, theirs, ours)
    assert not wrong, f"{len(wrong)} differ:\n" + "\n".join(wrong[:10])


def changed(server: Stock | Ours, path: str, wanted: samples.Raw) -> Reply:
    """What a server says of a change of the object as it is now; a controller of its own may write it meanwhile."""
    while True:
        now = server.call("GET", path)[1]["metadata"]
        sent = {**wanted, "metadata": {"name": now["name"], "resourceVersion": now["resourceVersion"]}}
        answer = server.call("PUT", f"{path}?dryRun=All", sent)
        if answer[0] != 409:
            return answer
