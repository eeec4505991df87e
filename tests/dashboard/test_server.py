"""The dashboard through a real socket: logging in, what is seen by whom, streams, and what is refused."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest
import yaml

from kubeqos.codec import decode_json
from kubeqos.dashboard import server as served
from kubeqos.dashboard.present.data import ANSWERS
from kubeqos.dashboard.server import Dashboard
from kubeqos.web.identity import Identity
from tests.apiserver.live import LiveServer
from tests.dashboard.conftest import API, Visitor
from tests.dashboard.objects import HOSTILE, assignments, node, pod
from tests.shared import commands

BOB = Identity.authenticated("bob")
MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture(scope="module", autouse=True)
def cluster(live: LiveServer, dashboard: Dashboard) -> None:
    """One node with a machine, a namespace of bob's, a pod in each."""
    made = node(placed=assignments(hpc="!4-7"))
    assert live.call("POST", "/api/v1/nodes", made).code == 201
    untaint = {"spec": {"taints": None}}  # a new node is tainted until a controller sees that it is ready
    patched = live.call("PATCH", "/api/v1/nodes/n1", untaint, {"Content-Type": "application/merge-patch+json"})
    assert patched.code == 200
    for place in ("bobs", "secret"):
        assert live.call("POST", "/api/v1/namespaces", {"metadata": {"name": place}}).code == 201
        raw = pod("web", namespace=place)
        raw.pop("status")
        raw["metadata"].pop("uid")
        assert live.call("POST", f"/api/v1/namespaces/{place}/pods", raw).code == 201
    rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/bobs"
    binding = {
        "metadata": {"name": "bob"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": "bob", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    assert live.call("POST", f"{rbac}/rolebindings", binding).code == 201


def until(visitor: Visitor, path: str, true: Any) -> Any:
    """Ask again until it is so; the feed follows by a watch."""
    deadline = time.monotonic() + 30
    while not true(told := visitor.get(path)):
        assert time.monotonic() < deadline, told
        time.sleep(0.05)
    return told


def test_nothing_is_told_without_a_session(visitor: Visitor) -> None:
    for path in (*("session", "cluster", "pods", "timeline", "nodes/n1", "stream?view=cluster"),):
        answer = visitor.ask("GET", f"{API}/{path}")
        assert (answer.code, "not logged in" in answer.body["error"]) == (401, True)
    visitor.cookie = f"{visitor.dashboard._cookie}=invented"
    assert visitor.ask("GET", f"{API}/cluster").code == 401


def test_a_link_logs_in_once_and_its_code_is_in_no_request(visitor: Visitor) -> None:
    link = visitor.dashboard.link(BOB)
    assert "/dashboard/#/login/" in link  # a fragment: browsers keep it to themselves
    code = link.rpartition("/")[2]
    assert visitor.ask("POST", f"{API}/login", {"code": code}).code == 204
    again = visitor.ask("POST", f"{API}/login", {"code": code})
    assert (again.code, again.body["remedy"]) == (401, "ask for a new one: kubeqos dashboard --link")
    assert "set-cookie" not in again.headers


def test_an_expired_link_and_session_are_refused(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    code = visitor.dashboard.link(BOB).rpartition("/")[2]
    visitor.log_in()
    real = time.time
    monkeypatch.setattr(visitor.dashboard, "clock", lambda: real() + 16 * 60)
    assert visitor.ask("POST", f"{API}/login", {"code": code}).code == 401
    assert visitor.ask("GET", f"{API}/session").code == 200
    monkeypatch.setattr(visitor.dashboard, "clock", lambda: real() + 13 * 3600)
    assert visitor.ask("GET", f"{API}/session").code == 401


def test_the_cookie_is_the_hosts_alone_and_no_scripts(visitor: Visitor) -> None:
    code = visitor.dashboard.link(BOB).rpartition("/")[2]
    cookie = visitor.ask("POST", f"{API}/login", {"code": code}).headers["set-cookie"]
    assert cookie.startswith("__Host-kubeqos-")
    assert {"HttpOnly", "Secure", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))


def test_logging_out_ends_the_session(visitor: Visitor) -> None:
    visitor.log_in()
    assert visitor.ask("POST", f"{API}/logout", {}).code == 204
    assert visitor.ask("GET", f"{API}/session").code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Content_Type": "text/plain"},
        {"Content_Type": "application/x-www-form-urlencoded"},
    ],
)
def test_a_post_of_another_page_is_refused(visitor: Visitor, headers: dict[str, str]) -> None:
    visitor.log_in()
    assert visitor.ask("POST", f"{API}/logout", {}, **headers).code == 403
    assert visitor.ask("GET", f"{API}/session").code == 200


def test_every_answer_forbids_what_the_page_does_not_need(visitor: Visitor) -> None:
    for path in ("/dashboard/", f"{API}/cluster", f"{API}/schema", "/dashboard/static/nothing.js"):
        headers = visitor.ask("GET", path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
    assert visitor.ask("GET", f"{API}/cluster").headers["cache-control"] == "no-store"


def test_files_beside_the_page_are_not_served(visitor: Visitor) -> None:
    for path in ("../server.py", "..%2fserver.py", "%2e%2e/server.py", ".hidden", "x/../../server.py"):
        assert visitor.ask("GET", f"/dashboard/static/{path}").code == 404
    assert visitor.ask("DELETE", f"{API}/session").code == 405
    assert visitor.ask("POST", "/dashboard/", {}).code == 405


def test_the_administrator_sees_the_cluster(visitor: Visitor) -> None:
    visitor.log_in()
    told = until(visitor, "cluster", lambda told: told["counts"]["pods"] >= 2)
    assert told["nodes"]["n1"]["exclusive"] == 4
    assert visitor.get("session")["sees"] == {"nodes": "all", "pods": "all", "quotas": "all", "events": "all"}
    owners = visitor.get("nodes/n1")["owners"]
    assert [one["cpus"] for one in owners if one["how"] == "exclusive"] == ["4-7"]
    waiting = visitor.get("pods/bobs/web")
    assert (waiting["phase"], waiting["now"]) == ("Pending", "n1 would take it now")


def test_the_plan_to_defragment_is_told_to_who_may_see_its_pods(live: LiveServer, dashboard: Dashboard) -> None:
    admin, bob = Visitor(live, dashboard), Visitor(live, dashboard)
    admin.log_in()
    bob.log_in(BOB)
    told = admin.get("nodes/n1/defrag")
    assert told["moves"] == []
    assert told["measures"][0] == {"what": "free CPUs in one NUMA node", "now": 40, "then": 40}
    assert told["staying"] == [{"what": "default/hpc/main", "because": "its pod is not known"}]
    assert {one["name"] for one in told["owners"]} == {"reserved", "shared", "default/hpc/main"}
    assert bob.ask("GET", f"{API}/nodes/n1/defrag").code == 404


def test_answers_are_as_the_schema_says(visitor: Visitor) -> None:
    visitor.log_in()
    places = {"{node}": "n1", "{namespace}": "bobs", "{pod}": "web"}
    for path, kind in ANSWERS.items():
        method, _, rest = path.partition(" ")
        if method == "GET":
            for place, name in places.items():
                rest = rest.replace(place, name)
            msgspec.convert(visitor.get(rest), kind, strict=True, str_keys=True)


def test_an_identity_of_one_namespace_sees_that_one_alone(visitor: Visitor) -> None:
    visitor.log_in(BOB)
    told = until(visitor, "cluster", lambda told: told["counts"]["pods"] == 1)
    assert told["nodes"] == {}
    assert visitor.get("session")["sees"] == {"nodes": "none", "pods": "bobs", "quotas": "bobs", "events": "bobs"}
    assert visitor.get("pods")["pods"].keys() == {"bobs/web"}
    assert visitor.get("pods/bobs/web")["leftOut"]
    for path in ("nodes/n1", "pods/secret/web", "pods/secret/nobody", "stream?view=pods/secret/web"):
        assert visitor.ask("GET", f"{API}/{path}").code == 404
    refused = visitor.ask("POST", f"{API}/whatif", {"manifest": "kind: Pod"})
    assert (refused.code, "may not list nodes" in refused.body["error"]) == (422, True)


def test_a_role_that_names_single_objects_shows_these_alone(live: LiveServer, visitor: Visitor) -> None:
    assert live.call("POST", "/api/v1/namespaces/secret/pods", pod("other", namespace="secret")).code == 201
    rbac, group = "/apis/rbac.authorization.k8s.io/v1/namespaces/secret", "rbac.authorization.k8s.io"
    rules = [{"apiGroups": [""], "resources": ["pods"], "resourceNames": ["other", "nobody"], "verbs": ["get"]}]
    assert live.call("POST", f"{rbac}/roles", {"metadata": {"name": "one"}, "rules": rules}).code == 201
    binding = {
        "metadata": {"name": "uma"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "one"},
        "subjects": [{"kind": "User", "name": "uma", "apiGroup": group}],
    }
    assert live.call("POST", f"{rbac}/rolebindings", binding).code == 201
    visitor.log_in(Identity.authenticated("uma"))
    until(visitor, "pods", lambda told: told["pods"].keys() == {"secret/other"})
    assert visitor.get("session")["sees"]["pods"] == "secret/nobody, secret/other"
    assert visitor.get("pods/secret/other")["name"] == "other"
    assert visitor.get("cluster")["counts"]["pods"] == 1
    for path in ("pods/secret/web", "pods/secret/nobody", "pods/bobs/web", "nodes/n1"):
        assert visitor.ask("GET", f"{API}/{path}").code == 404
    assert live.call("DELETE", "/api/v1/namespaces/secret/pods/other").code == 200


def test_a_right_that_is_taken_away_is_missed_soon(live: LiveServer, visitor: Visitor) -> None:
    visitor.log_in(Identity.authenticated("eve"))
    assert visitor.get("pods")["pods"] == {}
    rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/secret/rolebindings"
    binding = {
        "metadata": {"name": "eve"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": "eve", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    assert live.call("POST", rbac, binding).code == 201
    until(visitor, "pods", lambda told: told["pods"].keys() == {"secret/web"})
    assert live.call("DELETE", f"{rbac}/eve").code == 200
    until(visitor, "pods", lambda told: told["pods"] == {})


def test_a_link_for_whoever_asks_with_credentials(live: LiveServer, visitor: Visitor) -> None:
    made = live.call("POST", f"{API}/links", {}, {"Impersonate-User": "bob"})
    assert (made.code, made.body["user"]) == (201, "bob")
    assert visitor.ask("POST", f"{API}/login", {"code": made.body["link"].rpartition("/")[2]}).code == 204
    assert visitor.ask("POST", f"{API}/links", {}).code == 401
    assert visitor.ask("POST", f"{API}/links", {}, Authorization="Bearer wrong").code == 401


def test_the_past_comes_back(live: LiveServer, visitor: Visitor) -> None:
    visitor.log_in()
    until(visitor, "cluster", lambda told: "n1" in told["nodes"])
    before = time.time()
    time.sleep(0.05)
    assert live.call("POST", "/api/v1/nodes", node("later")).code == 201
    until(visitor, "cluster", lambda told: "later" in told["nodes"])
    assert "later" not in visitor.get(f"cluster?at={before}")["nodes"]
    assert visitor.get(f"nodes/n1?at={before}")["owners"]
    assert visitor.ask("GET", f"{API}/nodes/later?at={before}").code == 404
    assert live.call("DELETE", "/api/v1/nodes/later").code == 200
    after = until(visitor, "timeline", lambda told: told["last"] > before)
    assert after["first"] <= before
    refused = visitor.ask("GET", f"{API}/cluster?at=1")
    assert (refused.code, "the past is known since" in refused.body["error"]) == (422, True)


def test_a_stream_tells_the_whole_and_then_what_changed(live: LiveServer, visitor: Visitor) -> None:
    stream = visitor.log_in().stream("cluster")
    try:
        assert stream.getheader("content-type") == "text/event-stream"
        name, whole = _event(stream)
        assert (name, "n1" in whole["nodes"]) == ("view", True)
        assert live.call("POST", "/api/v1/nodes", node("streamed")).code == 201
        while "streamed" not in (told := _event(stream)[1]).get("tables", {}).get("nodes", {}).get("set", {}):
            assert "members" in told
        assert live.call("DELETE", "/api/v1/nodes/streamed").code == 200
    finally:
        stream.close()


def _event(stream: Any) -> tuple[str, Any]:
    name = ""
    while line := stream.readline().decode().rstrip("\n"):
        kind, _, text = line.partition(": ")
        if kind == "event":
            name = text
        elif kind == "data":
            told = decode_json(text.encode())
            stream.readline()
            return name, told
    return _event(stream)


def test_hostile_texts_stay_texts(live: LiveServer, visitor: Visitor) -> None:
    visitor.log_in()
    raw = {
        "metadata": {"generateName": "x", "namespace": "bobs"},
        "involvedObject": {"kind": "Pod", "namespace": "bobs", "name": "web"},
        "reason": "Evicted",
        "message": HOSTILE,
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
    assert live.call("POST", "/api/v1/namespaces/bobs/events", raw).code == 201
    told = until(visitor, "pods/bobs/web", lambda told: told["happenings"])
    assert told["happenings"][-1]["message"] == HOSTILE
    answer = visitor.ask("GET", f"{API}/nodes/{HOSTILE.replace('/', '%2f')}")
    assert (answer.code, answer.content_type) == (404, "application/json")


def test_what_if_tells_where_a_pod_would_go_and_changes_nothing(live: LiveServer, visitor: Visitor) -> None:
    visitor.log_in()
    until(visitor, "cluster", lambda told: "n1" in told["nodes"])
    manifest = (
        "kind: Pod\nmetadata: {name: new}\nspec:\n  containers:\n  - {name: a, resources: {requests: {cpu: %s}}}\n"
    )
    told = visitor.ask("POST", f"{API}/whatif", {"manifest": manifest % "2"}).body["answers"]
    assert [(one["pod"], one["node"]) for one in told] == [("default/new", "n1")]
    told = visitor.ask("POST", f"{API}/whatif", {"manifest": manifest % "2000"}).body["answers"]
    assert (told[0]["fits"], "Insufficient cpu" in told[0]["because"]) == (False, True)
    assert live.call("GET", "/api/v1/namespaces/default/pods").body["items"] == []
    wrong = visitor.ask("POST", f"{API}/whatif", {"manifest": "kind: ["})
    assert (wrong.code, "not valid YAML" in wrong.body["error"]) == (422, True)
    unread = visitor.ask("POST", f"{API}/whatif", {"manifesto": ""})
    assert unread.code == 400


def test_what_if_looks_at_volumes(live: LiveServer, visitor: Visitor) -> None:
    """The same claims, volumes and classes as the scheduler looks at; a volume goes to one pod of a manifest only."""
    visitor.log_in()
    until(visitor, "cluster", lambda told: "n1" in told["nodes"])
    lazy = {"metadata": {"name": "local"}, "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer"}  # fmt: skip
    assert live.call("POST", "/apis/storage.k8s.io/v1/storageclasses", lazy).code == 201
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "local"}
    disk = {**spec, "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/disk"}}
    claim = {**spec, "resources": {"requests": {"storage": "1Gi"}}}
    assert live.call("POST", "/api/v1/persistentvolumes", {"metadata": {"name": "disk"}, "spec": disk}).code == 201
    made = live.call("PATCH", "/api/v1/persistentvolumes/disk/status", {"status": {"phase": "Available"}}, MERGE)
    assert made.code == 200
    pods = []
    for name in ("one", "two"):
        body = {"metadata": {"name": name}, "spec": claim}
        assert live.call("POST", "/api/v1/namespaces/default/persistentvolumeclaims", body).code == 201
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]
        asked = {"containers": [{"name": "a"}], "volumes": volumes}
        pods.append({"kind": "Pod", "metadata": {"name": name}, "spec": asked})
    gone = [{"name": "v", "persistentVolumeClaim": {"claimName": "nobodys"}}]
    spec = {"containers": [{"name": "a", "image": "x"}], "volumes": gone}
    lost = {"kind": "Pod", "metadata": {"name": "lost"}, "spec": spec}
    told = visitor.ask("POST", f"{API}/whatif", {"manifest": yaml.safe_dump_all([*pods, lost])}).body["answers"]
    assert [one["node"] for one in told] == ["n1", "", ""]
    assert "didn't find available persistent volumes to bind" in told[1]["because"]
    assert told[2]["because"] == 'persistentvolumeclaim "nobodys" not found'
    assert live.call("POST", "/api/v1/namespaces/default/pods", {**lost, "metadata": {"name": "waits"}}).code == 201
    until(visitor, "pods", lambda told: any("waits" in key for key in told["pods"]))
    assert visitor.get("pods/default/waits")["nearest"] == ['persistentvolumeclaim "nobodys" not found']
    live.call("DELETE", "/api/v1/namespaces/default/pods/waits?gracePeriodSeconds=0")


def test_the_cluster_itself_is_a_scenario_that_can_be_changed_and_played(live: LiveServer, visitor: Visitor) -> None:
    visitor.log_in()
    until(visitor, "cluster", lambda told: "n1" in told["nodes"])
    told = visitor.get("scenario")
    scenario = yaml.safe_load(told["scenario"])
    assert [one["name"] for one in scenario["nodes"]] == ["n1"]
    assert told["commands"]["scenario"].startswith("kubeqos import")
    scenario["workloads"] += [
        {"name": "many", "template": _asking("30"), "arrivals": {"at": ["0s", "1m", "2m"]}},
        {"name": "first", "template": _asking("60", priority=100), "arrivals": {"at": ["10m"]}},
    ]
    question = {"scenario": yaml.safe_dump(scenario), "policies": {"default": ""}}
    played = visitor.ask("POST", f"{API}/compare", question).body
    of = {one["cells"][0]: one for one in played["workloads"]}
    names = played["columns"]
    assert of["first"]["nodes"] == {"n1": 1}
    assert dict(zip(names, of["many"]["cells"], strict=True))["pods"] == "3"
    assert dict(zip(names, of["many"]["cells"], strict=True))["evicted"] == "2"
    assert any("Insufficient cpu" in one["because"] for one in played["reasons"])
    charts = {one["title"]: one["series"]["default"] for one in played["charts"]}
    assert charts.keys() == {"CPU requested", "pods pending", "pods evicted"}
    assert charts["pods evicted"][0] == [0.0, 0.0] and charts["pods evicted"][-1][1] == 2.0
    visitor.log_in(BOB)
    assert visitor.ask("GET", f"{API}/scenario").code == 404


def _asking(cpu: str, priority: int = 0) -> dict[str, Any]:
    container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
    return {"spec": {"priority": priority, "containers": [container]}}


def test_what_kubeqos_import_prints_can_be_pasted(visitor: Visitor) -> None:
    """Of a cluster that another program described."""
    printed = commands.run("import", "-f", "examples/simulate/cluster.json").stdout
    visitor.log_in()
    played = visitor.ask("POST", f"{API}/compare", {"scenario": printed, "policies": {"default": ""}}).body
    assert {one["cells"][0]: one["nodes"] for one in played["workloads"]}["db"] == {"worker-2": 1}
    assert ["pods placed", "5/6"] in played["rows"]
    assert [one["pods"] for one in played["reasons"]] == [1]


def test_a_question_may_not_be_endless(visitor: Visitor) -> None:
    visitor.log_in()
    assert visitor.ask("POST", f"{API}/whatif", {"manifest": "x" * (served.MAX_BODY + 1)}).code == 413
