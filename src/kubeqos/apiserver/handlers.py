"""One function per verb: from a routed request to an answer.

No HTTP mechanics here (that is `app`), no storage mechanics (`reads`, `writes`, `deletes`): a handler reads options,
picks the operation and puts the result into the form the client asked for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from kubeqos.apiserver.auth.access import Access, attributes
from kubeqos.apiserver.present.bodies import object_body
from kubeqos.apiserver.present.negotiation import Form, form_of
from kubeqos.apiserver.present.options import check_options, delete_options, dry_run, field_manager, list_options
from kubeqos.apiserver.present.tables import include, list_response, object_response
from kubeqos.apiserver.registry.core import Core
from kubeqos.apiserver.registry.deletes import delete, delete_collection
from kubeqos.apiserver.registry.kinds import Kind
from kubeqos.apiserver.registry.patching import patch_object
from kubeqos.apiserver.registry.reads import check_not_future, list_objects
from kubeqos.apiserver.registry.subresources import Subresources
from kubeqos.apiserver.registry.writes import Write, Written, create, create_stamped, replace
from kubeqos.apiserver.requests import Request, Route
from kubeqos.apiserver.shortcuts.eventstencils import EventStencils
from kubeqos.apiserver.shortcuts.podstencils import PodStencils
from kubeqos.apiserver.watch.watcher import Watcher, Watching
from kubeqos.model.selectors import FieldSelector
from kubeqos.web.messages import Response

Handler = Callable[[Request, Route, Kind], Awaitable[Response]]


def new_stencils() -> Mapping[str, PodStencils | EventStencils]:
    return {"Pod": PodStencils(), "Event": EventStencils()}


@dataclass
class Handlers:
    """The verbs of the API over one core."""

    core: Core
    access: Access
    watching: Watching
    subresources: Subresources
    stencils: Mapping[str, PodStencils | EventStencils] = field(default_factory=new_stencils)
    """Of the kinds that are created by the hundred."""

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
        form = form_of(request)
        version = request.first("resourceVersion") if request.query else None
        if version and version != "0":
            check_not_future(self.core, version)
        stored = self.core.stored(kind, route.namespace, route.name)
        if form.plain:
            return Response(200, stored.value)
        return object_response(kind, stored.value, form, request, self.core.clock())

    async def list(self, request: Request, route: Route, kind: Kind) -> Response:
        form = form_of(request, collection=True)
        listing = list_objects(self.core, kind, route.namespace, list_options(request.query, kind))
        return list_response(kind, listing, form, request, self.core.clock())

    async def watch(self, request: Request, route: Route, kind: Kind) -> Response:
        form = form_of(request, collection=True)
        options = list_options(request.query, kind, watch=True)
        if route.name:
            options.fields = FieldSelector((*options.fields.terms, ("metadata.name", route.name, True)))
        return Watcher(self.watching, kind, route.namespace, options, form, include(request)).open()

    async def create(self, request: Request, route: Route, kind: Kind) -> Response:
        form = form_of(request)
        write = self._write(request, route, kind, "CreateOptions")
        stencils = self.stencils.get(kind.kind) if not write.dry_run else None
        stamp = stencils.stamp(self.core, write, request) if stencils is not None else None
        written = None
        if stamp is not None:
            written = await create_stamped(self.core, write, stamp.name, stamp.tail, stamp.charge)
        if written is None:
            written = await create(self.core, write, object_body(request, kind))
        return self._written(kind, written, form, request)

    async def update(self, request: Request, route: Route, kind: Kind) -> Response:
        form = form_of(request)
        write = self._write(request, route, kind, "UpdateOptions")
        written = await replace(self.core, write, object_body(request, kind))
        return self._written(kind, written, form, request)

    async def patch(self, request: Request, route: Route, kind: Kind) -> Response:
        form = form_of(request)
        written = await patch_object(self.core, self._write(request, route, kind, "PatchOptions"), request)
        return self._written(kind, written, form, request)

    async def delete(self, request: Request, route: Route, kind: Kind) -> Response:
        form = form_of(request)
        options = delete_options(request)
        written = await delete(self.core, kind, route.namespace, route.name, options)
        if written.value.startswith(b'{"kind":"Status"'):
            return Response(200, written.value)
        code = 202 if written.pending and options.cascading else 200
        return object_response(kind, written.value, form, request, self.core.clock(), code)

    async def delete_collection(self, request: Request, route: Route, kind: Kind) -> Response:
        form = form_of(request, collection=True)
        selection = list_options(request.query, kind)
        listing = await delete_collection(self.core, kind, route.namespace, selection, delete_options(request))
        return list_response(kind, listing, form, request, self.core.clock())

    def _write(self, request: Request, route: Route, kind: Kind, options_kind: str) -> Write:
        check_options(request, options_kind)
        return Write(
            kind,
            route.namespace,
            route.name,
            route.subresource,
            dry_run=dry_run(request, options_kind) if request.query else False,
            manager=field_manager(request),
            warnings=request.warnings,
            guard=lambda obj: self.access.check_write(request.identity, attributes(route), obj),
        )

    def _written(self, kind: Kind, written: Written, form: Form, request: Request) -> Response:
        code = 201 if written.created else 200
        return object_response(kind, written.value, form, request, self.core.clock(), code)
