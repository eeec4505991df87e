"""Runs inside the guest (Debian's own Python, its library and PyYAML): does what the host asks, one at a time.

The host writes one line of JSON to a serial port of virtio and reads one line back: `run` a command, `write` a file,
or ask the API server (`api`) as the admin whose kubeconfig lies at KUBECONFIG.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import ssl
import subprocess
import tempfile
import traceback
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

PORT = "/dev/virtio-ports/kubeqos"
KUBECONFIG = "/run/cluster/kubeconfig"


def run(words: list[str], text: str | None, seconds: float) -> dict[str, Any]:
    """Run a command to its end; what it says on both channels is one text."""
    try:
        done = subprocess.run(
            words,
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        said = late.stdout.decode(errors="replace") if isinstance(late.stdout, bytes) else late.stdout or ""
        return {"code": 124, "out": f"{said}\n(ended after {seconds:.0f} s)"}
    except OSError as error:
        return {"code": 127, "out": str(error)}
    return {"code": done.returncode, "out": done.stdout}


def write(path: str, text: str) -> dict[str, Any]:
    """Write a file, and the folders above it."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)
    return {}


def api(method: str, path: str, body: Any, kind: str) -> dict[str, Any]:
    """One request to the API server: its status code and its answer."""
    import yaml

    config = yaml.safe_load(Path(KUBECONFIG).read_text())
    server, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    context = ssl.create_default_context(cadata=base64.b64decode(server["certificate-authority-data"]).decode())
    headers = {"Content-Type": kind, "Accept": "application/json"}
    if "token" in user:
        headers["Authorization"] = f"Bearer {user['token']}"
    else:
        with tempfile.NamedTemporaryFile() as pair:
            pair.write(base64.b64decode(user["client-certificate-data"]) + b"\n")
            pair.write(base64.b64decode(user["client-key-data"]))
            pair.flush()
            context.load_cert_chain(pair.name)
    address = urlsplit(server["server"])
    connection = http.client.HTTPSConnection(address.hostname or "", address.port, timeout=60, context=context)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read().decode()
    finally:
        connection.close()
    try:
        return {"code": answer.status, "body": json.loads(text)}
    except ValueError:
        return {"code": answer.status, "body": text}


OPERATIONS = {"run": run, "write": write, "api": api}


def main() -> None:
    """Answer until the machine goes down."""
    port = os.open(PORT, os.O_RDWR)
    waiting = b""
    while True:
        waiting += os.read(port, 1 << 16)
        while b"\n" in waiting:
            line, _, waiting = waiting.partition(b"\n")
            if not line:
                continue
            try:
                asked = json.loads(line)
                answer = OPERATIONS[asked.pop("do")](**asked)
            except Exception:  # noqa: BLE001 - the host is to see it, and the next request is to be answered
                answer = {"failed": traceback.format_exc()}
            left = json.dumps(answer).encode() + b"\n"
            while left:
                left = left[os.write(port, left) :]


if __name__ == "__main__":
    main()
