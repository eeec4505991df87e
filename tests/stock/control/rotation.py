"""A webhook's certificates that grow old: a clock that first renews what is served, then replaces the authority.

The replicas' clock starts two days ago and ends now, so that everything that is ever served is valid to anybody.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress

from kubeqos.client import Api
from kubeqos.client.resources import SECRETS
from kubeqos.stock.control.certificates import (
    AUTHORITY_DAYS,
    AUTHORITY_RENEW_DAYS,
    NAME,
    SERVING_DAYS,
    SERVING_RENEW_DAYS,
    Certificates,
)
from kubeqos.stock.control.controller import SECRET
from kubeqos.stock.control.registration import MUTATING, VALIDATING, published
from kubeqos.web.authority import Authority, new_key_pem, pem
from tests.qrm.harness import until
from tests.stock.control.replicas import NAMESPACE, asked, utc

DAY, HOUR = datetime.timedelta(days=1), datetime.timedelta(hours=1)


class Rotation:
    """The Secret of one installation, and the clock of its replicas."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.behind = 2 * DAY

    def now(self) -> datetime.datetime:
        return utc() - self.behind

    async def begin(self) -> None:
        """Certificates as they are in their last days: those served are due a day ago, their authority is due now."""
        made = utc() - (AUTHORITY_DAYS - AUTHORITY_RENEW_DAYS) * DAY - HOUR
        authority = Authority.of_key(new_key_pem(), f"{NAME}-ca", made, AUTHORITY_DAYS)
        issued = utc() - (SERVING_DAYS - SERVING_RENEW_DAYS + 1) * DAY - HOUR
        serving = authority.issue(NAME, issued, hosts=["127.0.0.1"], days=SERVING_DAYS)
        old = Certificates(pem(authority.certificate), authority.key_pem, serving)
        metadata = {"name": SECRET, "namespace": NAMESPACE}
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": old.data()}
        await self._api.create(SECRETS, body)

    async def bundle(self) -> bytes:
        """What API servers trust at this moment."""
        return published(await self._api.get(MUTATING, "kubeqos"))

    async def served(self) -> bytes:
        return base64.b64decode((await self._api.get(SECRETS, SECRET, NAMESPACE))["data"]["tls.crt"])

    async def pass_by(self, shown: Callable[[bytes], Awaitable[bool]]) -> None:
        """Renew what is served, then replace its authority; each time until `shown` says that all replicas show it."""
        first, old = await self.served(), await self.bundle()
        assert await shown(first)
        self.behind = DAY
        await until("the serving certificate is renewed", lambda: self._is_other(first))
        second = await self.served()
        await until("it is shown", lambda: shown(second))
        assert await self.bundle() == old
        self.behind = datetime.timedelta()
        await until("the new authority signs", lambda: self._is_other(second))
        third, new = await self.served(), await self.bundle()
        await until("it is shown", lambda: shown(third))
        assert new != old and old in new, "the former authority is trusted as well"
        assert published(await self._api.get(VALIDATING, "kubeqos")) == new

    async def _is_other(self, than: bytes) -> bool:
        return await self.served() != than


class Client:
    """Asks webhooks again and again, through TLS, and trusts what is published and nothing else."""

    def __init__(self, rotation: Rotation, *ports: int) -> None:
        self._rotation = rotation
        self._ports = ports
        self.shown: dict[int, bytes] = {}
        self.handshakes = 0
        self.failed: list[str] = []

    async def run(self) -> None:
        while True:
            for port in self._ports:
                await self._ask(port)
            await asyncio.sleep(0.02)

    async def sees(self, certificate: bytes) -> bool:
        """Whether every webhook has shown this one."""
        wanted = ssl.PEM_cert_to_DER_cert(certificate.decode())
        return all(self.shown.get(port) == wanted for port in self._ports)

    async def _ask(self, port: int) -> None:
        bundle = await self._rotation.bundle()
        tls = ssl.create_default_context(cadata=bundle.decode())
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
            self.shown[port] = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            answer = await asked(port, "/validate", bundle, {"operation": "CREATE", "namespace": "x", "object": {}})
            self.handshakes += 2
            assert answer["uid"] == "u"
        except (OSError, ValueError) as error:
            if bundle == await self._rotation.bundle():  # else somebody has just published another: it is read again
                self.failed.append(f"{port}: {error!r}")
