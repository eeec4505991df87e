"""`kubeqos controllers` as a process of its own."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from tests.apiserver.live import live_server

COMMAND = [sys.executable, "-m", "kubeqos.cli.main", "controllers"]


def page(port: int, path: str) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return str(answer.read().decode())
    except (urllib.error.URLError, ConnectionError) as error:
        return str(error)


def test_it_works_tells_about_itself_and_stops_when_asked(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with live_server(tmp_path / "data") as live:
        running = subprocess.Popen([*COMMAND, "--kubeconfig", str(live.kubeconfig), "--port", str(port)])
        try:
            deadline = time.monotonic() + 60
            while page(port, "/readyz") != "ok" and time.monotonic() < deadline:
                time.sleep(0.05)
            assert page(port, "/readyz") == "ok"
            accounts = "/api/v1/namespaces/default/serviceaccounts/default"
            while live.call("GET", accounts).code != 200 and time.monotonic() < deadline:
                time.sleep(0.05)
            assert live.call("GET", accounts).code == 200
            metrics = page(port, "/metrics")
            assert "kubeqos_quota_drift 0.0" in metrics
            assert 'workqueue_work_duration_seconds_count{name="serviceaccount"}' in metrics
        finally:
            running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 0


def test_one_of_two_works_and_the_other_takes_over(tmp_path: Path) -> None:
    """Both are ready, one holds the lease; when it goes the other makes what is asked for."""
    lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kubeqos-controllers"
    with live_server(tmp_path / "data") as live:

        def holder() -> str:
            return str(((live.call("GET", lease).body or {}).get("spec") or {}).get("holderIdentity") or "")

        words = [*COMMAND, "--kubeconfig", str(live.kubeconfig), "--port", "0", "--leader-elect"]
        first = subprocess.Popen(words)
        second = None
        try:
            eventually(holder)
            led_by = holder()
            second = subprocess.Popen(words)
            first.send_signal(signal.SIGTERM)
            assert first.wait(60) == 0
            eventually(lambda: holder() not in ("", led_by))
            live.call("POST", "/api/v1/namespaces", {"metadata": {"name": "later"}})
            accounts = "/api/v1/namespaces/later/serviceaccounts/default"
            eventually(lambda: live.call("GET", accounts).code == 200)
        finally:
            for one in (first, second):
                if one is not None and one.poll() is None:
                    one.send_signal(signal.SIGTERM)
                    one.wait(60)
        assert second.returncode == 0


def eventually(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, "never happened"
        time.sleep(0.05)


def test_a_kubeconfig_that_is_not_there_is_one_clear_message(tmp_path: Path) -> None:
    words = [*COMMAND, "--kubeconfig", str(tmp_path / "missing")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: ")
    assert "Traceback" not in done.stderr


def test_a_taken_port_is_one_clear_message(tmp_path: Path) -> None:
    with socket.socket() as holder, live_server(tmp_path / "data") as live:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        words = [*COMMAND, "--kubeconfig", str(live.kubeconfig), "--port", str(port)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: cannot listen: Address already in use")
    assert "--port" in done.stderr
    assert "Traceback" not in done.stderr
