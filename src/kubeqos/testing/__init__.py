"""An API server for other people's tests of operators and controllers. Nothing in this house imports it."""

from kubeqos.testing.server import TestServer, api_server

__all__ = ["TestServer", "api_server"]
