"""Serves the page of the plugin with its content security policy, and a canned cluster as its data.

At a terminal, from the folder ``tests``: ``python -m support.plugin_page.canned_server --port 8123``.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from support.plugin_page.canned_cluster import HOSTILE, CannedCluster, large_cluster, now_ms, small_cluster

STATIC = Path(__file__).parents[3] / "provider/wasmline_provider/plugin/static"

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)

MEDIA_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}

FRAME = """<!doctype html><html lang="en"><title>Airflow</title>
<style>html, body { margin: 0; height: 100% } iframe { border: 0; width: 100%; height: 100% }</style>
<iframe title="Wasmline" sandbox="allow-scripts allow-same-origin allow-forms allow-downloads"></iframe>
<script>
window.moves = [];
addEventListener("popstate", () => moves.push(location.pathname));
const inner = location.pathname.slice("/plugin/wasmline".length) || "/wasmline/page";
document.querySelector("iframe").src = inner + location.search + location.hash;
history.replaceState(null, "", "/plugin/wasmline" + inner + location.search + location.hash);
</script>
"""
"""What Airflow is for the page: a frame with its sandbox, whose document is named by the address bar, and a router that
hears of changes of its history."""


class CannedServer:
    """The address of a server, what it serves, and what it was asked.

    requests: the paths with their queries. posts: path, headers and body of each POST and PATCH.
    delay_s: of each answer with data.
    most_at_once: for each path without its query, the requests of it that were on their way together.
    """

    def __init__(self, cluster: CannedCluster) -> None:
        self.cluster = cluster
        self.requests: list[str] = []
        self.posts: list[tuple[str, dict[str, str], Any]] = []
        self.url = ""
        self.delay_s = 0.0
        self.version_reads = 0
        self.most_at_once: Counter[str] = Counter()
        self._now: Counter[str] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def delayed(self, path: str) -> Iterator[None]:
        with self._lock:
            self._now[path] += 1
            self.most_at_once[path] = max(self.most_at_once[path], self._now[path])
        time.sleep(self.delay_s)
        with self._lock:
            self._now[path] -= 1
        yield

    def data(self, parts: list[str], query: dict[str, list[str]]) -> Any:
        """Return the answer to a GET below ``api/``; None is a 404."""
        cluster = self.cluster
        match parts:
            case ["state"]:
                return cluster.told(query.get("since", [None])[0])
            case ["lines"]:
                return cluster.all_lines()
            case ["permissions"]:
                return cluster.permissions(query["dag"])
            case ["transforms", _, "logs"]:
                lines = [{"time_ms": now_ms() - 1_000 * (40 - at), "text": f"line {at}: {HOSTILE}"} for at in range(40)]
                return {"lines": lines, "dropped": 12}
            case ["versions", _]:
                self.version_reads += 1
                versions = [] if self.version_reads == 1 else ["1.5.0", "1.4.0", "1.3.0"]
                return {"state": "ready" if versions else "reading", "versions": versions, "problem": ""}
            case [kind, *names]:
                answers: dict[str, Callable[..., Any]] = {
                    "transforms": cluster.transform, "jobs": cluster.job, "models": cluster.model,
                    "dead-letters": cluster.letters, "records": cluster.record, "runs": cluster.run,
                }  # fmt: skip
                return answers[kind](*names) if kind in answers else None
        return None

    def airflow_data(self, parts: list[str], query: dict[str, list[str]]) -> Any:
        """Return the answer of Airflow to a GET below ``api/v2/``; None is a 404."""
        cluster = self.cluster
        match parts:
            case ["assets"]:
                return cluster.assets()
            case ["dags", dag]:
                return cluster.dag(dag)
            case ["dags", dag, "tasks"]:
                return cluster.tasks(dag)
            case ["dags", dag, "dagRuns", "~", "hitlDetails"]:
                return cluster.approvals(dag)
            case ["dags", _, "dagRuns", _, "taskInstances"]:
                return cluster.task_instances(query)
        return None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, canned: CannedServer, *args: Any) -> None:
        self.canned = canned
        super().__init__(*args)

    def do_GET(self) -> None:
        self.canned.requests.append(self.path)
        address = urlsplit(self.path)
        parts = [unquote(part) for part in address.path.strip("/").split("/")]
        match parts:
            case ["wasmline", "page"]:
                self._file("page.html")
            case ["wasmline", "static", *names]:
                self._file("/".join(names))
            case ["wasmline", "api", *names]:
                with self.canned.delayed(address.path):
                    self._json(names[-1], lambda: self.canned.data(names, parse_qs(address.query)))
            case ["api", "v2", *names]:
                self._json(names[-1], lambda: self.canned.airflow_data(names, parse_qs(address.query)))
            case ["plugin", "wasmline", *_]:
                self._send(200, "text/html", FRAME.encode())
            case _:
                self._send(200, "text/html", b"<!doctype html><title>another page</title>")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.canned.posts.append((self.path, dict(self.headers), body))
        if self.path.startswith("/api/v2/"):
            return self._json("run", lambda: {"dag_run_id": "manual__2"})
        kind, action = self.path.rsplit("/", 2)[1:]
        answer = self.canned.cluster.plan if kind == "plans" else self.canned.cluster.act
        return self._json(action, lambda: answer(action, body))

    def do_PATCH(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.canned.posts.append((self.path, dict(self.headers), body))
        [self.canned.cluster.chosen] = body["chosen_options"]
        self._json("answer", lambda: {"chosen_options": body["chosen_options"]})

    def _json(self, name: str, answer: Callable[[], Any]) -> None:
        status, body = self.canned.cluster.failing, {"detail": "the server fails, as the test wants it"}
        if not status:
            found = answer()
            status, body = (404, {"detail": f"there is no {name}"}) if found is None else (200, found)
        self._send(status, "application/json", json.dumps(body).encode())

    def _file(self, name: str) -> None:
        path = (STATIC / name).resolve()
        if path.is_relative_to(STATIC) and path.is_file():
            self._send(200, MEDIA_TYPES[path.suffix], path.read_bytes())
        else:
            self._send(404, "text/plain", b"no such file")

    def _send(self, status: int, media_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{media_type}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        if self.path.startswith("/wasmline/"):
            self.send_header("Content-Security-Policy", CONTENT_SECURITY_POLICY)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Log nothing: the requests are kept."""


class _Server(ThreadingHTTPServer):
    def handle_error(self, *request: Any) -> None:
        """Print the error of a request, unless the browser has left the page meanwhile."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(*request)


@contextmanager
def canned_server(cluster: CannedCluster, *, port: int = 0) -> Iterator[CannedServer]:
    server = CannedServer(cluster)
    with _Server(("127.0.0.1", port), functools.partial(_Handler, server)) as http:
        server.url = f"http://127.0.0.1:{http.server_address[1]}"
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        http.shutdown()
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--cluster", choices=["small", "large", "empty"], default="small")
    parser.add_argument("--away", action="store_true")
    parser.add_argument("--viewer", action="store_true")
    options = parser.parse_args()
    clusters = {"small": small_cluster, "large": large_cluster, "empty": CannedCluster}
    cluster = clusters[options.cluster]()
    cluster.may_act = not options.viewer
    if options.away:
        cluster.state, cluster.error = "away", "broker-1:9092: connection refused"
        cluster.read_ms = (cluster.read_ms or 0) - 190_000
    with canned_server(cluster, port=options.port) as server:
        print(f"{server.url}/wasmline/page, in a frame: {server.url}/plugin/wasmline", flush=True)  # noqa: T201
        threading.Event().wait()


if __name__ == "__main__":
    main()
