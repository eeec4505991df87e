"""QOSResources is turned on, off and on again (KEP-3008, Feature Enablement and Rollback): nothing stored is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kubeqos.gates import FeatureGates
from tests.apiserver.live import LiveServer, live_server

ON, OFF = (FeatureGates.parse(f"QOSResources={state}") for state in ("true", "false"))
ROOM = "/api/v1/namespaces/default"
ASKED = [{"name": "rdt", "class": "gold"}]
QUOTA = {"container": [{"name": "rdt", "classes": [{"name": "gold", "capacity": 1}]}]}


def pod(name: str) -> dict[str, Any]:
    asking = {"name": "c", "image": "i", "resources": {"qosResources": ASKED}}
    return {"metadata": {"name": name}, "spec": {"qosResources": ASKED, "containers": [asking]}}


def stored(live: LiveServer) -> tuple[Any, Any, Any]:
    spec = live.call("GET", f"{ROOM}/pods/before").body["spec"]
    quota = live.call("GET", f"{ROOM}/resourcequotas/classes").body["spec"].get("qosResources")
    return spec.get("qosResources"), spec["containers"][0]["resources"].get("qosResources"), quota


def test_what_was_stored_is_kept_while_the_feature_is_off(tmp_path: Path) -> None:
    data = tmp_path / "data"
    quota = {"metadata": {"name": "classes"}, "spec": {"qosResources": QUOTA}}
    with live_server(data, ON) as live:
        assert live.call("POST", f"{ROOM}/resourcequotas", quota).code == 201
        assert live.call("POST", f"{ROOM}/pods", pod("before")).code == 201
    with live_server(data, OFF) as live:
        assert stored(live) == (ASKED, ASKED, QUOTA)
        assert live.call("POST", f"{ROOM}/pods", pod("between")).code == 422
        read = live.call("GET", f"{ROOM}/pods/before").body
        read["metadata"]["labels"] = {"seen": "off"}
        assert live.call("PUT", f"{ROOM}/pods/before", read).code == 200
        assert stored(live) == (ASKED, ASKED, QUOTA)
    with live_server(data, ON) as live:
        assert stored(live) == (ASKED, ASKED, QUOTA)
        refused = live.call("POST", f"{ROOM}/pods", pod("after"))
        assert refused.code == 403 and "exceeded quota: classes" in refused.body["message"]
