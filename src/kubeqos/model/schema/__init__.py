"""What every API type looks like: fields, types, and how two versions of an object are merged.

The tables are text files made by tools/schemagen.py from the published Kubernetes models plus the fields of KEP-3008
and KEP-3675. Strict decoding, patches, server-side apply, protobuf bodies and OpenAPI all read them from here.
"""

from kubeqos.model.schema.decode import Findings, check, duplicate_fields, unknown_fields
from kubeqos.model.schema.normal import may_be_null, normalise
from kubeqos.model.schema.structural import structural_type
from kubeqos.model.schema.types import Field, Shape, TypeSchema, description, kind, kinds, type_named

__all__ = [
    "Field",
    "Findings",
    "Shape",
    "TypeSchema",
    "check",
    "description",
    "duplicate_fields",
    "kind",
    "kinds",
    "may_be_null",
    "normalise",
    "structural_type",
    "type_named",
    "unknown_fields",
]
