"""Whom a real kube-apiserver lets in, identity by verb by kind: recorded for the quick test of ours, and compared.

Roles are put together by a real kube-controller-manager, nodes are judged by the node authorizer and NodeRestriction.
`KUBEQOS_RECORD=1` writes `tests/conformance/data/access.jsonl.gz` anew.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tools.stock import find

from kubeqos.web.pki import Pki
from tests.conformance.access import CALLERS, Allowed, Question, collected, questions, read, written
from tests.conformance.credentials import Caller, caller, expired, foreign, let_in, make_world
from tests.stock.kube_apiserver import kube_apiserver, process
from tests.stock.needs import needs_stock
from tests.stock.pair import Stock

pytestmark = needs_stock("kube-apiserver", "kube-controller-manager", "etcd")
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
ASKERS = 3


@dataclass
class Real:
    """A real server whose roles are complete."""

    folder: Path
    kubeconfig: Path
    pki: Pki

    def __post_init__(self) -> None:
        self.admin = Stock(self.kubeconfig)
        self.address = f"{self.admin.connection.host}:{self.admin.connection.port}"

    def call(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        return self.admin.call(method, path, body)

    def reviewed(self, asked: list[Question]) -> list[tuple[Question, bool]]:
        stock, found = Stock(self.kubeconfig), []
        for question in asked:
            review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": question.review}
            code, answer = stock.call("POST", REVIEWS, review)
            assert code == 201, answer
            found.append((question, bool(answer["status"]["allowed"])))
        return found


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    folder = tmp_path_factory.mktemp("stock")
    programs = find("kube-controller-manager")
    assert programs is not None, "see needs_stock"
    with kube_apiserver(folder, "Node,RBAC") as kubeconfig:
        words = [str(programs[0]), "--kubeconfig", str(kubeconfig), "--leader-elect=false", "--secure-port", "0"]
        words += ["--controllers", "clusterrole-aggregation-controller"]
        with process(words, folder, "kube-controller-manager"):
            made = Real(folder, kubeconfig, Pki(folder / "cluster-pki"))
            wait_until_aggregated(made)
        make_world(made.call)
        yield made


def wait_until_aggregated(real: Real, seconds: float = 60) -> None:
    """Until each of the roles that are put together holds what its parts hold."""
    roles, deadline = "/apis/rbac.authorization.k8s.io/v1/clusterroles/", time.monotonic() + seconds

    def rules(role: str) -> list[Any]:
        return real.call("GET", roles + role, None)[1]["rules"] or []

    parts: list[Any] = []
    for role in ("view", "edit", "admin"):
        parts += rules(f"system:aggregate-to-{role}")
        while not all(rule in rules(role) for rule in parts):
            assert time.monotonic() < deadline, "the roles were never put together"
            time.sleep(0.2)


def same_as_recorded(name: str, found: Allowed) -> None:
    if os.environ.get("KUBEQOS_RECORD"):
        written(name, found)
    assert read(name) == found, (
        "recorded from another version: KUBEQOS_RECORD=1 writes it anew, then run the quick test"
    )


def test_who_may_do_what(real: Real) -> None:
    asked = list(questions())
    with ThreadPoolExecutor(ASKERS) as pool:
        parts = pool.map(real.reviewed, [asked[number::ASKERS] for number in range(ASKERS)])
        same_as_recorded("access", collected(answer for part in parts for answer in part))


def test_who_is_let_in(real: Real) -> None:
    found: Allowed = {}
    for who in CALLERS:
        found |= let_in(who, caller(who, real.address, real.pki, real.folder, real.call))
    same_as_recorded("access_http", found)


def test_certificates_that_do_not_count(real: Real) -> None:
    for pair in (expired(real.pki), foreign(real.folder)):
        assert Caller(real.address, real.pki.ca_file, real.folder, pair).request("GET", "/api/v1/nodes")[0] == 401
