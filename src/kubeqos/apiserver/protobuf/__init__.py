"""Kubernetes protobuf request bodies, decoded to the same plain dicts as JSON.

`kubectl create namespace|quota|deployment|…` and `kubectl auth can-i` send their bodies so and never try JSON instead.
Answers are always JSON, which every client accepts. The field numbers in `numbers.txt` are those of the
published generated.proto files of k8s.io/api 1.32; the types of the fields come from the schema tables.
"""

from kubeqos.apiserver.protobuf.body import CONTENT_TYPE, MAGIC, decode_body

__all__ = ["CONTENT_TYPE", "MAGIC", "decode_body"]
