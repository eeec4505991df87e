"""Kubernetes protobuf bodies, to and from the same plain dicts as JSON.

`kubectl create namespace|quota|deployment|…` and `kubectl auth can-i` send their bodies so and never try JSON instead.
Answers are JSON for everybody who takes it, since that is how objects are stored; who takes nothing but protobuf gets
protobuf. The field numbers in `numbers.txt` are those of the published API (tools/gotypes.py), the types of the fields
come from the schema tables. Fields that only the proposals have are not in protobuf.
"""

from kubeqos.apiserver.protobuf.body import CONTENT_TYPE, MAGIC, decode_body, encode_body, has_protobuf_form
from kubeqos.apiserver.protobuf.writing import watch_frame

__all__ = ["CONTENT_TYPE", "MAGIC", "decode_body", "encode_body", "has_protobuf_form", "watch_frame"]
