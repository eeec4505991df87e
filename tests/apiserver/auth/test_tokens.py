"""Bearer tokens, static and signed, and the order in which credentials count."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeqos.apiserver.auth import Authenticator, StaticTokens, TokenSigner, Unauthenticated
from kubeqos.apiserver.auth.tokens import Bound
from kubeqos.codec import encode_json
from kubeqos.errors import ConfigurationError
from kubeqos.web.identity import ANONYMOUS, Identity

ALICE = Identity.authenticated("alice")
SIGNER = TokenSigner(b"k" * 32, lambda: 1000.0)


def test_a_static_token_file(tmp_path: Path) -> None:
    path = tmp_path / "tokens.csv"
    path.write_text('# comment\nt0ken,alice,u1,"dev, ops"\n\nother,bob,u2\n')
    tokens = StaticTokens.read(path)
    assert tokens.identify("t0ken") == Identity("alice", ("dev", "ops", "system:authenticated"), "u1")
    assert tokens.identify("other") == Identity("bob", ("system:authenticated",), "u2")
    assert tokens.identify("") is None


@pytest.mark.parametrize("line", ["token", "token,alice", ",alice,u", "token,,u", "a,b,c,d,e", "x,alice,1\nx,bob,2"])
def test_a_bad_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "tokens.csv"
    path.write_text(line)
    with pytest.raises(ConfigurationError) as error:
        StaticTokens.read(path)
    assert error.value.where == f"{path}:{1 + line.count(chr(10))}"


def test_a_signed_token_names_its_service_account() -> None:
    identity = SIGNER.identify(SIGNER.issue("ci", "builder", uid="u1"))
    assert identity == Identity.service_account("ci", "builder", "u1")
    assert identity.groups == ("system:serviceaccounts", "system:serviceaccounts:ci", "system:authenticated")


@pytest.mark.parametrize(("now", "valid"), [(900, False), (1000, True), (1059, True), (1060, False)])
def test_a_signed_token_expires(now: float, valid: bool) -> None:
    token = SIGNER.issue("ci", "builder", seconds=60)
    assert (TokenSigner(b"k" * 32, lambda: now).identify(token) is not None) is valid


def test_a_token_ends_with_its_account() -> None:
    accounts = {("ServiceAccount", "ci", "builder", "u1")}
    signer = TokenSigner(b"k" * 32, lambda: 1000.0, lambda *account: account in accounts)
    token = signer.issue("ci", "builder", uid="u1")
    assert signer.identify(token) is not None
    accounts.clear()
    accounts.add(("ServiceAccount", "ci", "builder", "u2"))  # a namesake
    assert signer.identify(token) is None


def test_a_token_ends_with_what_it_is_bound_to() -> None:
    there = {("ServiceAccount", "ci", "builder", "u1"), ("Pod", "ci", "build-1", "p1")}
    signer = TokenSigner(b"k" * 32, lambda: 1000.0, lambda *one: one in there)
    token = signer.issue("ci", "builder", uid="u1", bound=Bound("Pod", "build-1", "p1"))
    assert signer.identify(token) is not None
    there.remove(("Pod", "ci", "build-1", "p1"))
    assert signer.identify(token) is None


def test_a_token_is_for_its_audiences_alone() -> None:
    token = SIGNER.issue("ci", "builder", audiences=["vault", "other"])
    assert SIGNER.identify(token) is None, "it is not for the API server"
    found = SIGNER.review(token, ["vault", "third"])
    assert found is not None and found[1] == ["vault"]


def test_another_key_or_algorithm_is_not_ours() -> None:
    token = SIGNER.issue("ci", "builder")
    assert TokenSigner(b"x" * 32, lambda: 1000.0).identify(token) is None
    none = base64.urlsafe_b64encode(encode_json({"alg": "none", "typ": "JWT"})).rstrip(b"=").decode()
    assert SIGNER.identify(f"{none}.{token.split('.')[1]}.") is None


@given(st.integers(0, 200), st.characters(codec="utf-8"))
def test_a_changed_token_is_refused(place: int, character: str) -> None:
    token = SIGNER.issue("ci", "builder")
    place %= len(token)
    changed = token[:place] + character + token[place + 1 :]
    if changed != token:
        # The last character of a signature carries two unused bits, which base64 readers ignore; ours compares text.
        assert SIGNER.identify(changed) is None


@given(st.text(max_size=40))
def test_garbage_is_nobody(token: str) -> None:
    assert SIGNER.identify(token) is None
    assert StaticTokens({"t": ALICE}).identify(token) == (ALICE if token == "t" else None)


@pytest.mark.parametrize(
    ("peer", "header", "who"),
    [
        (None, b"Bearer t", ALICE),
        (None, b"bearer  t ", ALICE),
        (Identity("bob"), b"Bearer t", Identity("bob")),
        (Identity("bob"), b"Bearer wrong", Identity("bob")),
        (None, b"Bearer wrong", None),
        (None, b"Bearer", None),
        (None, b"Basic eDp5", None),
        (None, b"\xff\xfe", None),
        (None, None, None),
    ],
)
def test_which_credential_counts(peer: Identity | None, header: bytes | None, who: Identity | None) -> None:
    found = Authenticator([SIGNER, StaticTokens({"t": ALICE})]).identify(peer, header)
    assert found == who if who else isinstance(found, Unauthenticated)


def test_anonymous_is_a_setting_and_never_covers_a_wrong_token() -> None:
    open_door = Authenticator([StaticTokens({"t": ALICE})], anonymous=True)
    assert open_door.identify(None, None) == ANONYMOUS
    assert isinstance(open_door.identify(None, b"Bearer wrong"), Unauthenticated)
