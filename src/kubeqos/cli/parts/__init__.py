"""Commands that run one part of the system: API server, scheduler, controllers, node, relay, plugins, drivers."""
