"""The words of field errors, and the Status that joins them."""

import pytest

from kubeqos.model.quantity import Quantity
from kubeqos.rules import fielderror as fe


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (fe.required("spec.x"), "spec.x: Required value"),
        (fe.required("spec.x", "must not be empty"), "spec.x: Required value: must not be empty"),
        (fe.invalid("spec.x", "v", "is bad"), 'spec.x: Invalid value: "v": is bad'),
        (fe.invalid("spec.x", -1, "is bad"), "spec.x: Invalid value: -1: is bad"),
        (fe.invalid("spec.x", True, "is bad"), "spec.x: Invalid value: true: is bad"),
        (fe.invalid("spec.x", None, "is bad"), "spec.x: Invalid value: null: is bad"),
        (fe.invalid("spec.x", ["a", ""], "is bad"), 'spec.x: Invalid value: ["a",""]: is bad'),
        (fe.invalid("spec.x", {"A": None}, "is bad"), 'spec.x: Invalid value: {"A":null}: is bad'),
        (fe.invalid("spec.x", Quantity.parse("1.5"), "is bad"), 'spec.x: Invalid value: "1500m": is bad'),
        (fe.invalid("spec.x", 'a"\x07\u200b', "is bad"), r'spec.x: Invalid value: "a\"\a\u200b": is bad'),
        (fe.not_supported("x", "b", ["", "All"]), 'x: Unsupported value: "b": supported values: "", "All"'),
        (fe.not_found("x", "b"), 'x: Not found: "b"'),
        (fe.duplicate("x", "b"), 'x: Duplicate value: "b"'),
        (fe.forbidden("x", "not now"), "x: Forbidden: not now"),
        (fe.too_long("x", 128), "x: Too long: may not be more than 128 bytes"),
        (fe.too_many("x", 7, 4), "x: Too many: 7: must have at most 4 items"),
        (fe.internal("x", "oops"), "x: Internal error: oops"),
    ],
)
def test_the_message_names_the_field_the_value_and_the_rule(error, message):
    assert error.message == message
    assert error.cause()["field"] + ": " + error.cause()["message"] == message


def test_one_error_stands_alone_and_several_are_joined():
    one = fe.Invalid("Pod", "", "a", [fe.required("spec.containers")])
    assert one.message == 'Pod "a" is invalid: spec.containers: Required value'
    two = fe.Invalid("PriorityClass", "scheduling.k8s.io", "p", [fe.required("a"), fe.required("b"), fe.required("a")])
    assert two.message == 'PriorityClass.scheduling.k8s.io "p" is invalid: [a: Required value, b: Required value]'
    assert [cause["field"] for cause in two.details["causes"]] == ["a", "b"]


def test_the_details_leave_out_what_is_empty():
    refusal = fe.Invalid("Pod", "", "", [fe.required("metadata.name", "name or generateName is required")])
    assert refusal.code == 422
    assert refusal.details == {
        "kind": "Pod",
        "causes": [
            {
                "reason": "FieldValueRequired",
                "message": "Required value: name or generateName is required",
                "field": "metadata.name",
            }
        ],
    }


def test_a_hundred_thousand_errors_are_not_all_told():
    """An object of three megabytes can be wrong in every place, and an error may show the whole of a long list."""
    owners = [{"name": "x" * 50}] * 20_000
    errors = [fe.invalid("metadata.ownerReferences", owners, f"and {number} too") for number in range(10_000)]
    refusal = fe.Invalid("Pod", "", "p", errors)
    assert refusal.message.endswith(", and 9999 more]")
    assert len(refusal.details["causes"]) == 1
    same = fe.Invalid("Pod", "", "p", [fe.invalid("spec.scopes", owners, "unsupported scope")] * 100_000)
    assert len(same.details["causes"]) == 1
    assert "more" not in same.message[-20:]
