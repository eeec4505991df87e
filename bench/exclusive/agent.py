"""`kubeqos node` for a machine, simulated or this one, whose runtime is a process of its own: containers outlive it.

    python -m bench.exclusive.agent KUBECONFIG MACHINE ENDPOINT FLAG=VALUE…

Flags are those of `kubeqos node`. Started by `bench.exclusive.house`, which kills it.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from kubeqos import logs
from kubeqos.client.http import HttpApi
from kubeqos.cri.client import CriClient
from kubeqos.model.hardware.loading import load_machine
from kubeqos.node.config.assembly import Hosting, node_parts
from kubeqos.node.config.configuration import load
from kubeqos.node.run import running_node


async def run(kubeconfig: str, machine: str, endpoint: str, *words: str) -> None:
    flags = dict(word.split("=", 1) for word in words)
    config = load(None, flags | {"container-runtime-endpoint": endpoint})
    hosting = Hosting(api=HttpApi.from_kubeconfig(Path(kubeconfig)))
    parts = node_parts(config, CriClient(endpoint), load_machine(machine or None), hosting)
    async with running_node(parts) as (agent, _):
        await agent.run()


if __name__ == "__main__":
    logs.to_stream(sys.stderr)
    asyncio.run(run(*sys.argv[1:]))
