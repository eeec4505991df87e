"""One function per verb: from a routed request to an answer.

No HTTP mechanics here (that is `app`), no storage mechanics (`reads`, `writes`, `deletes`): a handler reads options,
picks the operation and puts the result into the form the client asked for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from kubeqos.apiserver.admission.chain import Chain
from kubeqos.apiserver.auth.access import Access, attributes
from kubeqos.apiserver.hooks import Hooks
from kubeqos.apiserver.present.bodies import object_body
from kubeqos.apiserver.present.negotiation import Form, form_of
from kubeqos.apiserver.present.options import (
    DeleteOptions,
    ListOptions,
    check_options,
    delete_options,
    dry_run,
    field_manager,
    list_options,
)
from kubeqos.apiserver.present.tables import include, list_response, object_response
from kubeqos.apiserver.registry.binding import bind
from kubeqos.apiserver.registry.core import Core
from kubeqos.apiserver.registry.deletes import delete, delete_collection
from kubeqos.apiserver.registry.kinds import Kind
from kubeqos.apiserver.registry.patching import patch_object
from kubeqos.apiserver.registry.reads import check_not_future, list_objects
from kubeqos.apiserver.registry.subresources import Subresources
from kubeqos.apiserver.registry.writes import Write, Written, create, replace
from kubeqos.apiserver.requests import Request, Route
from kubeqos.apiserver.watch.watcher import Watcher, Watching
from kubeqos.model.selectors import FieldSelector, LabelSelector
from kubeqos.web.messages import Response

try:
    from kubeqos.apiserver.shortcuts import register as register_shortcuts
except ModuleNotFoundError as error:  # their folder was taken away; a module that one of them misses is an error
    if error.name != "kubeqos.apiserver.shortcuts":
        raise
    register_shortcuts = None  # type: ignore[assignment]

Handler = Callable[[Request, Route, Kind], Awaitable[Response]]


def hooks_of(core: Core, chain: Chain) -> Hooks:
    """The faster ways that this server has: none where there is no folder of shortcuts."""
    hooks = Hooks()
    if register_shortcuts is not None:
        register_shortcuts(hooks, core, chain)
    return hooks


@dataclass
class Handlers:
    """The verbs of the API over one core."""

    core: Core
    access: Access
    watching: Watching
    subresources: Subresources
    hooks: Hooks = field(default_factory=Hooks)

    def table(self) -> dict[str, Handler]:
        return {
            "get": self.get,
            "list": self.list,
            "watch": self.watch,
            "create": self.create,
            "update": self.update,
            "patch": self.patch,
            "delete": self.delete,
            "deletecollection": self.delete_collection,
        }

    async def get(self, request: Request, route: Route, kind: Kind) -> Response:
        form = form_of(request, kind)
        version = request.first("resourceVersion") if request.query else None
        if version and version != "0":
            check_not_future(self.core, version)
        stored = self.core.stored(kind, route.namespace, route.name)
        if form.plain and kind.view is None:
            return Response(200, stored.value)
        return object_response(kind, stored.value, form, request, self.core.clock())

    async def list(self, request: Request, route: Route, kind: Kind) -> Response:
        form = form_of(request, kind, collection=True)
        listing = list_objects(self.core, kind, route.namespace, list_options(request.query, kind))
        return list_response(kind, listing, form, request, self.core.clock())

    async def watch(self, request: Request, route: Route, kind: Kind) -> Response:
        form = form_of(request, kind, collection=True)
        options = list_options(request.query, kind, watch=True)
        if route.name:
            options.fields = FieldSelector((*options.fields.terms, ("metadata.name", route.name, True)))
        return Watcher(self.watching, kind, route.namespace, options, form, include(request)).open()

    async def create(self, request: Request, route: Route, kind: Kind) -> Response:
        form = form_of(request, kind)
        write = self._write(request, route, kind, "CreateOptions")
        shortcut = self.hooks.create.get(kind.kind) if kind.view is None and self.core.hooks is None else None
        written = await shortcut(write, request) if shortcut is not None else None
        if written is None:
            body = object_body(request, kind)
            if kind.lifecycle.on_request is not None:
                kind.lifecycle.on_request(body, request.identity)
            written = await create(self.core, write, body)
        return self._written(kind, written, form, request)

    async def update(self, request: Request, route: Route, kind: Kind) -> Response:
        form = form_of(request, kind)
        write = self._write(request, route, kind, "UpdateOptions")
        written = await replace(self.core, write, object_body(request, kind))
        return self._written(kind, written, form, request)

    async def patch(self, request: Request, route: Route, kind: Kind) -> Response:
        form = form_of(request, kind)
        written = await patch_object(self.core, self._write(request, route, kind, "PatchOptions"), request)
        return self._written(kind, written, form, request)

    async def delete(self, request: Request, route: Route, kind: Kind) -> Response:
        form = form_of(request, kind)
        options = delete_options(request)
        if kind.kind == "CustomResourceDefinition" and not options.dry_run:
            await self._delete_defined(route.name)
        written = await delete(self.core, kind.storage, route.namespace, route.name, options, request)
        if written.value.startswith(b'{"kind":"Status"'):
            return Response(200, written.value)
        code = 202 if written.pending and options.cascading else 200
        return object_response(kind, written.value, form, request, self.core.clock(), code)

    async def _delete_defined(self, name: str) -> None:
        """The objects of a kind go before the definition that made it one."""
        for kind in self.core.catalog.definitions.get(name, ()):
            if kind.view is None:
                await delete_collection(
                    self.core, kind, "", ListOptions(LabelSelector(), FieldSelector()), DeleteOptions()
                )

    async def delete_collection(self, request: Request, route: Route, kind: Kind) -> Response:
        form = form_of(request, kind, collection=True)
        selection = list_options(request.query, kind)
        options = delete_options(request)
        listing = await delete_collection(self.core, kind.storage, route.namespace, selection, options, request)
        return list_response(kind, listing, form, request, self.core.clock())

    async def bind(self, request: Request, route: Route) -> Response:
        """A Binding, below its pod or by itself."""
        shortcut = self.hooks.bind if self.core.hooks is None else None
        done = await shortcut(request, route.namespace, route.name) if shortcut is not None else None
        return done if done is not None else await bind(self.core, request, route.namespace, route.name)

    async def subresource(self, request: Request, route: Route, kind: Kind) -> Response:
        if route.subresource == "binding":
            return await self.bind(request, route)
        return await self.subresources.handle(request, route, kind)

    def _write(self, request: Request, route: Route, kind: Kind, options_kind: str) -> Write:
        check_options(request, options_kind)
        return Write(
            kind if kind.view is None else kind.storage,
            route.namespace,
            route.name,
            route.subresource,
            view=None if kind.view is None else kind,
            dry_run=dry_run(request, options_kind) if request.query else False,
            manager=field_manager(request),
            warnings=request.warnings,
            guard=lambda obj: self.access.check_write(request.identity, attributes(route), obj),
            asked=request,
        )

    def _written(self, kind: Kind, written: Written, form: Form, request: Request) -> Response:
        code = 201 if written.created else 200
        return object_response(kind, written.value, form, request, self.core.clock(), code)
