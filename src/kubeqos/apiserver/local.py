"""The API for components that live in the server's own process: the same handlers, no sockets, no TLS.

Controllers and the scheduler of `kubeqos up` get a `TransportApi` over this; they cannot tell the difference, and
authorisation, admission and quota apply to them as to anybody.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from kubeqos.apiserver.app import Application
from kubeqos.apiserver.requests import Request
from kubeqos.client import Answer, ApiError, Call, Unreachable
from kubeqos.web.identity import MASTERS, Identity
from kubeqos.web.messages import JSON

AGENT = "kubeqos"
LOCAL = Identity.authenticated("system:kubeqos", [MASTERS])


class LocalTransport:
    """Carries calls straight to an application."""

    def __init__(self, application: Application, identity: Identity) -> None:
        self._application = application
        self._identity = identity

    def _request(self, call: Call) -> Request:
        query = {name: [value] for name, value in call.query.items()}
        return Request(call.method, call.path, query, JSON, call.content_type, call.body, AGENT, self._identity)

    async def send(self, call: Call) -> Answer:
        _, response = await self._application.answer(self._request(call))
        return Answer(response.code, response.body)

    async def send_all(self, calls: Sequence[Call]) -> list[Answer | Unreachable]:
        answers = await self._application.answer_all(map(self._request, calls))
        return [Answer(response.code, response.body) for response in answers]

    async def stream(self, call: Call) -> AsyncGenerator[bytes, None]:
        """The chunks of a watch; a refusal raises `ApiError`."""
        _, response = await self._application.answer(self._request(call))
        if response.stream is None:
            raise ApiError.of(response.code, response.body)
        try:
            async for chunk in response.stream:
                yield chunk
        finally:
            close = getattr(response.stream, "aclose", None)
            if close is not None:
                await close()

    async def close(self) -> None:
        """Nothing to close: the server owns itself."""
