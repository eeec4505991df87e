"""`kubeqos simulate run` as data: the first members come before it is played, and are one object with the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeqos.codec import decode_json, decode_yaml
from tests.cli.rehearse.test_offline import EXAMPLES, kubeqos

SCENARIO = str(EXAMPLES / "simulate/scenario.yaml")


def test_both_forms_are_one_object_with_the_same_members() -> None:
    told = kubeqos("simulate", "run", SCENARIO, "-o", "json").stdout
    json, yaml = decode_json(told.encode()), kubeqos("simulate", "run", SCENARIO, "-o", "yaml").stdout
    assert json == decode_yaml(yaml.encode())
    assert list(json)[:2] == ["policy", "durationSeconds"] and json["pods"]["submitted"] == 200
    assert told.startswith('{\n  "policy": "default",\n') and told.endswith("\n}\n")


def test_a_comparison_is_one_list_of_what_each_run_says() -> None:
    files = [str(EXAMPLES / f"simulate/{name}.yaml") for name in ("spread", "pack")]
    words = ("simulate", "compare", SCENARIO, *(word for file in files for word in ("--policy", file)))
    json, yaml = (kubeqos(*words, "-o", form).stdout.encode() for form in ("json", "yaml"))
    alone = [kubeqos("simulate", "run", SCENARIO, "--policy", file, "-o", "json").stdout for file in files]
    assert decode_json(json) == decode_yaml(yaml) == [decode_json(one.encode()) for one in alone]


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("profiles: [{schedulerName: other}]", "no profile answers to schedulerName 'default-scheduler'"),
        ("profiles: [{schedulerName: default-scheduler, wieghts: {}}]", "wieghts"),
    ],
)
def test_nothing_is_begun_under_a_policy_that_is_wrong(tmp_path: Path, policy: str, message: str) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(f"apiVersion: kubeqos.io/v1alpha1\nkind: SchedulerConfiguration\n{policy}\n")
    failed = kubeqos("simulate", "run", SCENARIO, "--policy", str(file), "-o", "json")
    assert failed.returncode == 1 and failed.stdout == "" and message in failed.stderr
