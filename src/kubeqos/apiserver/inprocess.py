"""The API server as a `client.Transport`: components in the same process speak to it without sockets.

They are authenticated as who they say they are, and authorised, admitted and answered like everybody else;
only the bytes between them and the server are saved. Must be used on the server's own event loop.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

from kubeqos.apiserver.app import Application
from kubeqos.apiserver.auth import Identity
from kubeqos.apiserver.requests import Request, Response
from kubeqos.client.api import Answer, Call, TransportApi
from kubeqos.client.errors import ApiError


class InProcessTransport:
    """Carries calls to an `Application` in this process."""

    def __init__(self, application: Application, identity: Identity) -> None:
        self._application = application
        self._identity = identity

    async def send(self, call: Call) -> Answer:
        response = await self._respond(call)
        return Answer(response.code, response.body)

    async def stream(self, call: Call) -> AsyncGenerator[bytes, None]:
        """The chunks of a watch as the server makes them."""
        response = await self._respond(call)
        if response.code >= 400:
            raise ApiError.of(response.code, response.body)
        if response.stream is None:
            yield response.body
            return
        async for chunk in response.stream:
            yield chunk

    async def close(self) -> None:
        """Nothing is held open."""

    async def _respond(self, call: Call) -> Response:
        request = Request(
            call.method,
            call.path,
            {name: [value] for name, value in call.query.items()},
            content_type=call.content_type if call.body else "",
            body=call.body,
            user_agent=self._identity.user,
        )
        return await self._application.answer(request, self._identity)


def in_process_api(application: Application, identity: Identity) -> TransportApi:
    """An `Api` for a component that lives beside the server."""
    return TransportApi(InProcessTransport(application, identity))
