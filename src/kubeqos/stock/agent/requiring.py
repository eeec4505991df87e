"""Lets this node's runtime require our plugin of pods that ask for it, where the administrator wants that.

The runtime's settings are changed only with a `runtime.yaml` that says so (`stock.validator`), and hold from the
runtime's next start on. What came of it is a condition of the NodeQOS. Called by `agent`.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kubeqos.errors import ConfigurationError, KubeqosError
from kubeqos.logs import logger
from kubeqos.stock import validator
from kubeqos.stock.examination import REQUIRED
from kubeqos.stock.names import CONTAINERD_CONFIG
from kubeqos.stock.validator import RuntimeSettings

RESTART_SECONDS = 10.0
log = logger("kubeqos.agent")


class RequiredPlugin:
    """The validator of one node's runtime."""

    def __init__(self, settings: RuntimeSettings | None, root: Path, changed: Callable[[], None]) -> None:
        """`root` is where the host's files are."""
        self._settings, self._root, self._changed = settings, root, changed
        self._restarted_for: Path | None = None
        self.is_asked = True
        """Whether the runtime's settings are our business at all."""
        self.conditions: dict[str, tuple[str, str, str]] = {}

    @classmethod
    def read(cls, path: Path | None, root: Path, changed: Callable[[], None]) -> RequiredPlugin:
        """What `runtime.yaml` says; one that cannot be read stops the agent."""
        try:
            text = path.read_text() if path is not None else ""
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"cannot read what may be changed of the runtime: {error}") from error
        settings = validator.parse_settings(text, str(path)) if text.strip() else None
        made = cls(settings, root, changed)
        made.is_asked = path is not None
        return made

    async def met(self, name: str, version: str, running: str) -> None:
        """The runtime has said who it is: see to it that it checks, or does not check any more."""
        if not self.is_asked:
            return
        try:
            said = await self._seen_to(name, version, running)
        except (KubeqosError, OSError) as error:
            remedy = error.remedy if isinstance(error, KubeqosError) else None
            what = f"{error}; {remedy}" if remedy else str(error)
            log.warning("the runtime's validator is not on", reason=what)
            said = "False", "NotWritten", what
        self.conditions = {REQUIRED: said} if self._settings is not None else {}
        self._changed()

    async def _seen_to(self, name: str, version: str, running: str) -> tuple[str, str, str]:
        if self._settings is None:
            self._removed(CONTAINERD_CONFIG)  # of an installation that wanted it once
            return "", "", ""
        if lacking := validator.has_validator(name, version):
            return "False", "NotThere", lacking
        config, root = self._settings.config, self._root
        path = validator.write(config, root, running)
        if not validator.waits_for(config, root, running):
            return "True", "Validating", "who asks for something does not start while the agent is away"
        if self._settings.restart and self._restarted_for != path:
            self._restarted_for = path
            await self._restart()
        what = f"{path} is written; {name} reads it when it starts again"
        log.warning("the runtime is to be restarted", reason=what)
        return "False", "RestartNeeded", what

    def remove(self) -> bool:
        """Take away what was written; answers whether there was something."""
        return self._settings is not None and self._removed(self._settings.config)

    def _removed(self, config: Path) -> bool:
        gone = validator.remove(config, self._root)
        if gone:
            log.warning("the runtime is to be restarted: its validator is off then", files=[str(one) for one in gone])
        return bool(gone)

    async def left(self) -> None:
        """Let the runtime read its settings without ours: until it does, who asked is kept from starting."""
        if self._settings is not None and self._settings.restart:
            await self._restart()

    async def _restart(self) -> None:
        assert self._settings is not None
        words: Any = shlex.split(self._settings.restart)
        log.info("restarting the runtime", command=self._settings.restart)
        try:
            process = await asyncio.create_subprocess_exec(*words)
            async with asyncio.timeout(RESTART_SECONDS):
                if code := await process.wait():
                    log.error("the runtime could not be restarted", command=self._settings.restart, code=code)
        except (OSError, ValueError, TimeoutError) as error:
            log.error("the runtime could not be restarted", command=self._settings.restart, error=str(error))
