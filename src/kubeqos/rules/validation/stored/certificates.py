"""What Kubernetes says about the fields of requests for certificates, for pods and for others, and of bundles."""

from __future__ import annotations

from typing import Any

from kubeqos.model import names
from kubeqos.rules.fielderror import OMITTED, invalid, required, too_long
from kubeqos.rules.validation.common import NO_MAP, Errors, Raw, complain
from kubeqos.rules.validation.meta import meta_of
from kubeqos.rules.validation.stored.checks import Fields, if_set, judged, least, longest, needed, unique, within, word
from kubeqos.rules.validation.stored.signing import check_request, check_stub_request, check_trust_bundle

_USAGES = (
    "any", "cert sign", "client auth", "code signing", "content commitment", "crl sign", "data encipherment",
    "decipher only", "digital signature", "email protection", "encipher only", "ipsec end system", "ipsec tunnel",
    "ipsec user", "key agreement", "key encipherment", "microsoft sgc", "netscape sgc", "ocsp signing", "s/mime",
    "server auth", "signing", "timestamping",
)  # fmt: skip
_LEGACY_SIGNER = "kubernetes.io/legacy-unknown"
_OWN_DOMAIN = "kubernetes.io"
_LONGEST_DOMAIN, _LONGEST_SIGNER, _LONGEST_UID = 253, 253 + 1 + 253 + 63 + 1, 128
_HOUR, _DAY = 3600, 86400
_MOST_ANNOTATIONS = 256 * 1024


def _check_signer(out: Errors, path: str, value: Any) -> None:
    """Who signs, as `domain/name`."""
    if not value:
        out.append(required(path))
        return
    domain, _, name = value.partition("/")
    if value.count("/") != 1:
        why = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        out.append(invalid(path, value, why))
        return
    if len(domain.encode()) > _LONGEST_DOMAIN:
        out.append(too_long(path, _LONGEST_DOMAIN))
    _check_parts(out, path, domain, names.dns_label)
    if "." not in domain:
        out.append(invalid(path, domain, "should be a domain with at least two segments separated by dots"))
    _check_parts(out, path, name, names.dns_subdomain)
    if len(value.encode()) > _LONGEST_SIGNER:
        out.append(too_long(path, _LONGEST_SIGNER))


def _check_parts(out: Errors, path: str, text: str, rule: names.NameRule) -> None:
    """What lies between the dots; the first part that is wrong speaks for all."""
    for part in text.split("."):
        if wrong := rule(part):
            complain(out, path, text, (f'validating label "{part}": {one}' for one in wrong))
            return


def _check_requested_signer(out: Errors, path: str, value: Any) -> None:
    if value == _LEGACY_SIGNER:
        out.append(invalid(path, value, "the legacy signerName is not allowed via this API version"))
    _check_signer(out, path, value)


def _check_uid(out: Errors, path: str, value: Any) -> None:
    if not value:
        out.append(invalid(path, "", "must not be empty"))
    longest(_LONGEST_UID)(out, path, value)


def _check_annotations(out: Errors, path: str, value: Any) -> None:
    """What a pod's author wants the signer to know, by keys that say whose they are."""
    for key in map(str.lower, value or ()):
        if not key:
            out.append(required(path))
        elif wrong := names.qualified_name(key):
            complain(out, path, key, wrong)
        elif "/" not in key:
            out.append(invalid(path, key, 'must be a domain-prefixed key (such as "acme.io/foo")'))
    if sum(len(key.encode()) + len(text.encode()) for key, text in (value or NO_MAP).items()) > _MOST_ANNOTATIONS:
        out.append(too_long(path, _MOST_ANNOTATIONS))


def _check_pod_request(out: Errors, path: str, spec: Raw) -> None:
    """How long at most, which depends on the signer; and the request itself."""
    seconds = spec.get("maxExpirationSeconds")
    if seconds is None:
        out.append(required(f"{path}.maxExpirationSeconds", "must be set"))
        return
    domain = spec.get("signerName", "").partition("/")[0]
    most = _DAY if domain == _OWN_DOMAIN or domain.endswith(f".{_OWN_DOMAIN}") else 91 * _DAY
    if not _HOUR <= seconds <= most:
        out.append(invalid(f"{path}.maxExpirationSeconds", seconds, f"must be in the range [{_HOUR}, {most}]"))
    if request := spec.get("stubPKCS10Request"):
        check_stub_request(out, f"{path}.stubPKCS10Request", request)
    else:
        why = "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set"
        out.append(invalid(path, OMITTED, why))


def _check_bundle_name(out: Errors, path: str, bundle: Raw) -> None:
    """A signer's bundle begins with the signer's name, whose slash is a colon there."""
    name, signer = meta_of(bundle).get("name", ""), (bundle.get("spec") or NO_MAP).get("signerName", "")
    prefix = f"{signer.replace('/', ':')}:" if signer else ""
    if not name:
        return
    if not name.startswith(prefix):
        why = f"ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}"
        out.append(invalid("metadata.name", name, why))
    elif not signer and ":" in name:
        out.append(
            invalid("metadata.name", name, 'ClusterTrustBundle without signer name must not have ":" in its name')
        )
    else:
        complain(out, "metadata.name", name, names.dns_subdomain(name.removeprefix(prefix)))


_NAME = judged(names.dns_subdomain, unset=False)
TYPES: dict[str, Fields] = {
    "certificates/v1.CertificateSigningRequestSpec": {
        "request": check_request,
        "signerName": _check_requested_signer,
        "usages": (needed(), within(word(*_USAGES)), unique()),
        "expirationSeconds": least(600, "may not specify a duration less than 600 seconds (10 minutes)"),
    },
    "certificates/v1.ClusterTrustBundle": {"": _check_bundle_name},
    "certificates/v1.ClusterTrustBundleSpec": {
        "signerName": if_set(_check_signer),
        "trustBundle": check_trust_bundle,
    },
    "certificates/v1.PodCertificateRequestSpec": {
        "signerName": _check_signer,
        "unverifiedUserAnnotations": _check_annotations,
        "podName": _NAME,
        "podUID": _check_uid,
        "serviceAccountName": _NAME,
        "serviceAccountUID": _check_uid,
        "nodeName": _NAME,
        "nodeUID": _check_uid,
        "stubPKCS10Request": (),
        "": _check_pod_request,
    },
}
