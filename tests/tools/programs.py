"""Programs that a test puts on a machine: small scripts."""

from __future__ import annotations

from pathlib import Path

GO_THAT_BUILDS = """
if [ "$1" = env ]; then echo go1.99.0; exit; fi
while [ "$1" != -o ]; do shift; done
echo "#!/bin/sh" > "$2"; /bin/chmod 755 "$2"
"""


def program(path: Path, script: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path
