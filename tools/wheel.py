"""Tries a built wheel as a user would: in a clean environment, with nothing of this checkout on the path.

    python -m tools.wheel dist        install dist/*.whl into a new venv and run it

Dependencies come from `requirements/run.lock`, so that what is tried is what is locked.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main(words: list[str]) -> int:
    folder = Path(words[0] if words else "dist").resolve()
    wheels = sorted(folder.glob("kubeqos-*.whl"))
    if len(wheels) != 1:
        print(f"one wheel is wanted in {folder}, and there are {len(wheels)}: run make dist", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="kubeqos-wheel-") as made:
        home = Path(made)
        venv.create(home / "venv", with_pip=True)
        python = home / "venv" / "bin" / "python"
        pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        _run([*pip, "-r", str(ROOT / "requirements" / "run.lock")], home)
        _run([*pip, "--no-deps", str(wheels[0])], home)
        told = _run([str(home / "venv" / "bin" / "kubeqos"), "version", "--client"], home).strip()
        named = wheels[0].name.split("-")[1]
        if told != f"Client: {named}":
            print(f"the wheel is {named}, and says {told!r}", file=sys.stderr)
            return 1
        manual = home / "venv" / "share" / "man" / "man1" / "kubeqos.1"
        if not manual.exists():
            print("the wheel has no man page", file=sys.stderr)
            return 1
        _run([str(home / "venv" / "bin" / "kubeqos"), "map", "--machine", "laptop8"], home)  # its data files came along
    print(f"{wheels[0].name} runs in a clean environment")
    return 0


def _run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.stderr or done.stdout}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
