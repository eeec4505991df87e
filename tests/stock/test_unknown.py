"""How tests of Kubernetes' parts notice that a part asked for something that is not served."""

from __future__ import annotations

from pathlib import Path

from tests.apiserver.live import live_server
from tests.stock.parts import not_served

GONE = (
    "/api/v1/namespaces/default/pods/gone", "/api/v1/namespaces/default/pods/gone/status", "/api/v1/nodes/gone/status",
    "/api/v1/namespaces/gone/status", "/api/v1/namespaces/gone/finalize", "/api/v1/namespaces/gone",
    "/api/v1/namespaces/default/pods/gone/eviction", "/api/v1/namespaces/default/serviceaccounts/gone/token",
    "/api/v1/nodes/gone/proxy/stats/summary", "/apis/apps/v1/namespaces/default/deployments/gone/scale",
)  # fmt: skip


def test_what_is_gone_is_no_kind_or_subresource_that_is_missing(tmp_path: Path) -> None:
    with live_server(tmp_path / "data") as live:
        assert not_served(live, GONE) == []


def test_kinds_and_subresources_that_are_not_served(tmp_path: Path) -> None:
    with live_server(tmp_path / "data") as live:
        live.call("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "there"}})
        missed = [
            "/api/v1/namespaces/default/configmaps/there/status",
            "/api/v1/namespaces/default/configmaps/gone/status",
            "/apis/storage.k8s.io/v1/storageclasses/gone/status",
            "/apis/apps/v1/namespaces/default/gizmos/gone",
            "/apis/gizmos.example.com/v1/gizmos",
            "/apis/gizmos.example.com/v1",
        ]
        assert not_served(live, missed) == [
            "/api/v1/namespaces/default/configmaps/any/status",
            "/apis/apps/v1/namespaces/default/gizmos",
            "/apis/gizmos.example.com/v1",
            "/apis/gizmos.example.com/v1/gizmos",
            "/apis/storage.k8s.io/v1/storageclasses/any/status",
        ]
