"""`kubeqos classify` and `kubeqos check`: the proposals' own examples, and input that is wrong."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kubeqos.codec import decode_json, decode_yaml
from tests.shared import commands

EXAMPLES = Path(__file__).parents[3] / "examples"


def kubeqos(*words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return commands.run(*words, text=text)


def answers(*files: str) -> dict[str, str]:
    done = kubeqos("check", "-o", "json", *(word for name in files for word in ("-f", str(EXAMPLES / name))))
    return {each["name"]: each["answer"] for each in decode_json(done.stdout.encode())}


class TestExamples:
    """Every example manifest of the proposals, checked."""

    @pytest.mark.parametrize(
        ("file", "expected"),
        [
            ("qos-classes/noisy-neighbors.yaml", {"qos-resource-example": "pod/qos-resource-example created"}),
            ("qos-classes/pod.yaml", {"qos-resource-example": "pod/qos-resource-example created"}),
            ("qos-classes/limit-range.yaml", {"qos-defaults": "limitrange/qos-defaults created"}),
            ("qos-classes/quota.yaml", {"qos-constraints": "resourcequota/qos-constraints created"}),
            ("qos-classes/node.yaml", {"qos-node": "node/qos-node created"}),
            (
                "pod-qos/pods.yaml",
                {name: f"pod/{name} created" for name in ("guaranteed", "burstable", "best-effort")},
            ),
            ("quota-scoping/quota.yaml", {"quota": "resourcequota/quota created"}),
            ("quota-scoping/quota-best-effort.yaml", {"quota-best-effort": "resourcequota/quota-best-effort created"}),
        ],
    )
    def test_is_accepted(self, file: str, expected: dict[str, str]) -> None:
        assert answers(file) == expected

    @pytest.mark.parametrize("name", ["quota-longrunning", "quota-terminating"])
    def test_the_proposals_own_quota_names_are_refused_with_the_right_ones(self, name: str) -> None:
        (answer,) = answers(f"quota-scoping/{name}.yaml").values()
        assert answer.startswith("Error from server (Invalid)")
        assert "use limits.memory" in answer
        assert "use limits.cpu" in answer

    def test_scenario_1_of_quota_scoping(self) -> None:
        created = answers("quota-scoping/scenario-1.yaml", "quota-scoping/pods.yaml")
        assert all(answer.endswith("created") for answer in created.values())
        assert {"quota-best-effort", "quota-terminating", "quota-longrunning", "quota", "web"} <= set(created)

    def test_class_defaults_and_class_quota_act_on_pods(self) -> None:
        spec = "spec: {qosResources: [{name: network, class: high}], containers: [{name: c, image: app}]}"
        pod = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: greedy}}\n{spec}\n"
        folder = EXAMPLES / "qos-classes"
        done = kubeqos(
            *("check", "-f", str(folder / "limit-range.yaml"), "-f", str(folder / "quota.yaml"), "-f", "-"), text=pod
        )
        assert done.returncode == 1
        assert 'pods "greedy" is forbidden' in done.stdout
        assert "high" in done.stdout


class TestClassify:
    def test_each_class_with_its_reason(self) -> None:
        done = kubeqos("classify", "-f", str(EXAMPLES / "pod-qos/pods.yaml"), "-o", "json")
        reports = {each["pod"]: each for each in decode_json(done.stdout.encode())}
        assert {name: report["qosClass"] for name, report in reports.items()} == {
            "guaranteed": "Guaranteed",
            "burstable": "Burstable",
            "best-effort": "BestEffort",
        }
        assert reports["burstable"]["because"] == "container 'app': memory request 128Mi ≠ limit 512Mi"
        assert reports["guaranteed"]["containers"][0]["oomScoreAdj"] == -997

    def test_node_memory_decides_scores_and_throttling(self) -> None:
        file = str(EXAMPLES / "pod-qos/pods.yaml")
        small = kubeqos("classify", "-f", file, "--node-memory", "1Gi", "-o", "yaml").stdout
        assert decode_yaml(small)[1]["containers"][0]["oomScoreAdj"] == 875

    def test_cgroups_of_containers_and_of_the_pod_are_told(self) -> None:
        amounts = "{cpu: 500m, memory: 64Mi, hugepages-2Mi: 8Mi}"
        one = f"{{resources: {{requests: {amounts}, limits: {amounts}}}}}"
        text = f"kind: Pod\nmetadata: {{name: p}}\nspec: {{containers: [{one}, {one}]}}"
        told = decode_json(kubeqos("classify", "-f", "-", "-o", "json", text=text).stdout.encode())
        wanted = [(512, 50_000, 64 << 20, {"2MB": 8 << 20})] * 2 + [(1024, 100_000, 128 << 20, {"2MB": 16 << 20})]
        keys = ("cpuShares", "cpuQuotaUs", "memoryLimit", "hugepages")
        assert [tuple(each[key] for key in keys) for each in (*told["containers"], told["podCgroup"])] == wanted

    def test_the_table_names_class_demand(self) -> None:
        done = kubeqos("classify", "-f", str(EXAMPLES / "qos-classes/pod.yaml"))
        assert "pod         network        fast    1" in done.stdout
        assert "container   rdt            gold    1" in done.stdout

    def test_a_workload_is_classified_by_its_template(self) -> None:
        text = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {template: {spec: {containers: []}}}"
        assert "BestEffort" in kubeqos("classify", "-f", "-", text=text).stdout


class TestWrongInput:
    @pytest.mark.parametrize(
        ("words", "text", "message"),
        [
            (("check", "-f", "/does/not/exist"), "", "cannot read /does/not/exist: No such file or directory"),
            (("check", "-f", "-"), "a: [", "not valid YAML"),
            (("check", "-f", "-"), "just text", "a manifest must be an object"),
            (("check", "-f", "-"), "apiVersion: v1", "Object 'Kind' is missing"),
            (("check", "-f", "-"), "kind: Pod", "apiVersion is missing"),
            (("check", "-f", "-"), "", "no objects found"),
            (("check", "-f", "-", "--feature-gates", "X=true"), "", "unrecognized feature gate: X"),
            (("classify", "-f", "-"), "apiVersion: v1\nkind: Secret", "cannot classify a Secret"),
            (("classify", "-f", "-", "--node-memory", "lots"), "", "--node-memory lots"),
            (
                ("classify", "-f", "-"),
                "kind: Pod\nmetadata: {name: p}\nspec: {containers: [{resources: {requests: {cpu: 1KiKi}}}]}",
                "unable to parse quantity's suffix",
            ),
            (("classify", "-f", "-"), "kind: Pod\nspec: {containers: 5}", "not well-formed"),
        ],
    )
    def test_is_said_in_a_line_or_two(self, words: tuple[str, ...], text: str, message: str) -> None:
        done = kubeqos(*words, text=text)
        assert done.returncode == 1
        assert message in done.stderr
        assert done.stdout == ""
        assert "Traceback" not in done.stderr
        assert len(done.stderr.splitlines()) <= 3

    def test_an_unknown_kind_is_refused_like_the_server_does(self) -> None:
        done = kubeqos("check", "-f", "-", text="apiVersion: v1\nkind: Nope\nmetadata: {name: x}")
        assert done.returncode == 1
        assert 'no matches for kind "Nope" in version "v1"' in done.stdout

    def test_kinds_are_those_that_the_server_serves(self) -> None:
        role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: read}\n"
        role += "roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: r}\n"
        event = "apiVersion: events.k8s.io/v1beta1\nkind: Event\nmetadata: {name: e}\n"
        review = "apiVersion: authentication.k8s.io/v1\nkind: TokenReview\nmetadata: {name: t}\n"
        done = kubeqos("check", "-f", "-", text="---\n".join([role, event, review]))
        assert "rolebinding/read created" in done.stdout
        assert 'no matches for kind "Event" in version "events.k8s.io/v1beta1"' in done.stdout
        assert 'no matches for kind "TokenReview" in version "authentication.k8s.io/v1"' in done.stdout
