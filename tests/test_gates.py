"""Feature gates in Kubernetes' syntax and words."""

from __future__ import annotations

import pytest

from kubeqos.errors import ConfigurationError
from kubeqos.gates import CCI, MEMORY_QOS, QOS_RESOURCES, QRM, STRICT_NAMES, FeatureGates


def test_alpha_is_off_and_beta_is_on() -> None:
    gates = FeatureGates.default()
    assert not gates.enabled(QOS_RESOURCES)
    assert gates.enabled(MEMORY_QOS)


def test_a_named_gate_wins_over_its_group() -> None:
    gates = FeatureGates.parse("CCIResourceManager=f, AllAlpha=true")
    assert gates.enabled(QRM)
    assert not gates.enabled(CCI)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Nope=true", "unrecognized feature gate: Nope"),
        ("QOSResources", "missing bool value for QOSResources"),
        (
            "QOSResources=yes",
            'invalid value of QOSResources=yes, err: strconv.ParseBool: parsing "yes": invalid syntax',
        ),
        (
            "QOSResourcesStrictNames=true",
            "QOSResourcesStrictNames is enabled, but depends on features that are disabled: [QOSResources]",
        ),
    ],
)
def test_mistakes_in_kubernetes_words(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        FeatureGates.parse(text)
    assert caught.value.what == message


def test_dependencies_together_are_fine() -> None:
    assert FeatureGates.parse("QOSResources=1,QOSResourcesStrictNames=1").enabled(STRICT_NAMES)
