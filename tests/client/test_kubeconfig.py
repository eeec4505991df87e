"""Where the kubeconfig comes from, and what a bad one says."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeqos.client.http import HttpApi
from kubeqos.client.kubeconfig import files, load
from kubeqos.codec import encode_yaml
from kubeqos.errors import ConfigurationError


def write(path: Path, name: str, *, current: str = "", **cluster: str) -> Path:
    content = {
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}.example.org", **cluster}}],
        "users": [{"name": name, "user": {"token": "t"}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": f"ns-{name}"}}],
        **({"current-context": current} if current else {}),
    }
    path.write_text(encode_yaml(content))
    return path


def test_a_given_file_comes_before_the_environment(tmp_path: Path) -> None:
    one, two = write(tmp_path / "one", "one", current="one"), write(tmp_path / "two", "two", current="two")
    assert load(one, env={"KUBECONFIG": str(two)}).cluster.server == "https://one.example.org"
    assert load(env={"KUBECONFIG": str(two)}).namespace == "ns-two"


def test_several_files_are_one_and_the_first_wins(tmp_path: Path) -> None:
    one, two = write(tmp_path / "one", "one"), write(tmp_path / "two", "two", current="two")
    env = {"KUBECONFIG": f"{one}:{tmp_path / 'missing'}:{two}"}
    assert load(env=env).context_name == "two"
    assert load(context="one", env=env).cluster.server == "https://one.example.org"


def test_file_names_are_relative_to_their_file(tmp_path: Path) -> None:
    path = write(tmp_path / "one", "one", current="one", **{"certificate-authority": "ca.crt"})
    assert load(path).cluster.certificate_authority == str(tmp_path.resolve() / "ca.crt")
    with pytest.raises(ConfigurationError, match="credentials cannot be used"):
        HttpApi.from_kubeconfig(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "not a mapping"),
        ("a: b: c", "cannot be read"),
        ("{}", "no current context"),
        ("current-context: x", "context was not found for specified context: x"),
        (
            "contexts: [{name: x, context: {cluster: gone}}]\ncurrent-context: x",
            "cluster was not found for specified cluster: gone",
        ),
        ("clusters: [{cluster: {}}]", "an entry of clusters has no name"),
        ("clusters: [3]", "an entry of clusters has no name"),
    ],
)
def test_a_bad_kubeconfig_is_explained(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(ConfigurationError, match=message) as error:
        load(path)
    assert error.value.where == str(path)
    assert error.value.remedy


def test_a_missing_kubeconfig_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file") as error:
        load(env={"KUBECONFIG": str(tmp_path / "nowhere")})
    assert error.value.where == str(tmp_path / "nowhere")


def test_without_one_of_ones_own_the_local_cluster_is_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    usual, local, elsewhere = tmp_path / ".kube/config", tmp_path / ".kubeqos/kubeconfig", tmp_path / "data/kubeconfig"
    assert files(None, {}) == [usual]
    for path in (local, elsewhere):
        path.parent.mkdir()
        path.touch()
    assert files(None, {}) == [local]
    assert files(None, {"KUBEQOS_DATA_DIR": str(elsewhere.parent)}) == [elsewhere]
    assert files(None, {"KUBECONFIG": "/named"}) == [Path("/named")]
    usual.parent.mkdir()
    usual.touch()
    assert files(None, {}) == [usual]
