"""The relay: a CRI endpoint in front of any runtime that adds QoS-class resources (KEP-3008).

From the wire up: `hpack` and `http2` speak HTTP/2 on asyncio, `proxy` joins a client's connection to one of the
runtime and passes every call through as bytes except the few that have a hook. Who gets a class is decided in
`cri.classes`; `messages` reads and patches CRI messages; `service` turns calls into what is decided there, `starting`
what belongs to a container's start, and `undo` knows the way back of an update; `gate` serves the OCI `hook` that holds
a new container back; `server` puts it together for `kubeqos relay`.

The relay speaks HTTP/2 itself because passing a call through a gRPC library costs two full parses of the call: frames
are spliced here instead, so methods nobody knew when this was written keep working, with their metadata, deadlines,
streams and errors unchanged.
"""
