"""The kit that judges class providers: what it says of the skeleton, and of those that do not keep to the protocol."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from kubeqos.cri.providers.edge import edit_problems, offer_problems, sample_problems
from kubeqos.cri.providers.kit.conformance import Kit
from kubeqos.cri.providers.kit.skeleton import write_skeleton
from kubeqos.cri.providers.protocol import (
    Advertisement,
    ClassInfo,
    ClassProvider,
    ClassRefusal,
    Edit,
    Level,
    Place,
    Sample,
    Subject,
)
from kubeqos.cri.providers.remote import RemoteProvider, serve
from kubeqos.errors import InputError, RemoteError

OFFER = Advertisement("example.com/turbo", Level.CONTAINER, True, (ClassInfo("high", 2), ClassInfo("low")))


class Provider(ClassProvider):
    def __init__(self, *offers: Advertisement) -> None:
        self.offers = offers or (OFFER,)

    async def advertise(self) -> Sequence[Advertisement]:
        return self.offers

    async def check(self, subject: Subject, resource: str, class_name: str) -> ClassRefusal | None:
        known = any(offer.name == resource and offer.find(class_name) for offer in self.offers)
        return None if known else ClassRefusal("no such class")


@pytest.fixture
def short() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="kq-") as folder:
        yield Path(folder)


async def wrong_with(provider: ClassProvider, folder: Path) -> dict[str, str]:
    server = await serve(provider, f"{folder}/p.sock")
    try:
        report = await Kit(folder / "p.sock").run()
    finally:
        await server.stop(0)
    return {check.name: check.detail for check in report if check.passed is False}


async def test_a_provider_that_keeps_to_the_protocol_passes(short: Path) -> None:
    assert await wrong_with(Provider(), short) == {}


async def test_nobody_at_the_socket_is_one_line(short: Path) -> None:
    report = await Kit(short / "none.sock").run()
    assert [check.passed for check in report] == [False]


class Agreeable(Provider):
    """Takes whatever it is asked."""

    async def check(self, subject: Subject, resource: str, class_name: str) -> ClassRefusal | None:
        return None


class Forgetful(Provider):
    """Fails where it has been before."""

    def __init__(self) -> None:
        super().__init__()
        self.there: set[str] = set()

    async def enter(self, subject: Subject, place: Place, resource: str, class_name: str) -> None:
        if subject.id in self.there:
            raise RemoteError("entered twice")
        self.there.add(subject.id)


class Restless(Provider):
    async def apply(self, subject: Subject, resource: str, class_name: str) -> Edit:
        self.count = getattr(self, "count", 0) + 1
        return Edit({"turbo": str(self.count)})


class Wild(Provider):
    async def apply(self, subject: Subject, resource: str, class_name: str) -> Edit:
        return Edit(resources={"cpu_sharez": 3})


@pytest.mark.parametrize(
    ("provider", "check", "detail"),
    [
        (Agreeable(), "hostile: a class that is not offered is refused", "was given"),
        (Forgetful(), "Enter can be repeated", "entered twice"),
        (Restless(), "Apply gives edits that can be made, and the same again", "became"),
        (Wild(), "Apply gives edits that can be made, and the same again", "cpu_sharez"),
        (
            Provider(Advertisement("Not A Name", Level.CONTAINER, True, (ClassInfo("a"), ClassInfo("a")))),
            "Advertise says what is on offer, and can be believed",
            "it offers what cannot be",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_what_is_wrong_is_named(provider: Provider, check: str, detail: str, short: Path) -> None:
    assert detail in (await wrong_with(provider, short))[check]


def test_what_the_edge_does_not_believe() -> None:
    twice = Advertisement("a", Level.POD, True, (ClassInfo("x"), ClassInfo("x")), default="y")
    assert list(offer_problems([twice, twice])) == [
        "resource 'a' is offered twice",
        *["class 'x' of 'a' is named twice", "default 'y' of 'a' is not one of its classes"] * 2,
    ]
    assert "belongs to Kubernetes" in next(
        offer_problems([Advertisement("pod-qos", Level.POD, True, (ClassInfo("x"),))])
    )
    assert list(edit_problems(Edit({"io.x/y": "1"}, {"cpu_shares": 2, "cpuset_cpus": "0"}, {"cpu.idle": "1"}))) == []
    assert list(edit_problems(Edit(resources={"cpu_shares": "2"}, unified={"../x": "1"}))) == [
        "'cpu_shares' is a number",
        "'../x' is not a file of a cgroup",
    ]
    assert list(sample_problems([Sample("a b", "", {}, 1)])) == ["'a b' is not a name that Prometheus takes"]


async def test_a_later_offer_that_cannot_be_believed_changes_nothing(short: Path) -> None:
    provider = Provider()
    server = await serve(provider, f"{short}/p.sock")
    seen = RemoteProvider("turbo", f"unix://{short}/p.sock", None)
    assert await seen.advertise() == (OFFER,)
    provider.offers, provider.news = (Advertisement("Not A Name", Level.POD, True, ()),), 1
    await asyncio.sleep(0.5)
    assert await seen.advertise() == (OFFER,)
    await seen.close()
    await server.stop(0)


def test_the_skeleton_passes_its_own_tests(tmp_path: Path) -> None:
    files = write_skeleton("turbo-boost", tmp_path)
    assert [file.name for file in files] == ["turbo_boost.py", "test_turbo_boost.py"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path / "turbo-boost")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    with pytest.raises(InputError, match="exists already"):
        write_skeleton("turbo-boost", tmp_path)
    with pytest.raises(InputError, match="cannot be a provider's name"):
        write_skeleton("Turbo", tmp_path)
