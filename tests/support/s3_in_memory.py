"""An S3 server in memory, which checks each request's signature: AWS Signature Version 4, with its payload's digest."""

from __future__ import annotations

import hashlib
import hmac
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.sax.saxutils import escape

REGION = "eu-test-1"


class S3Server:
    """Buckets by name, each with its objects by key. Keys of ``readers`` may not write.

    ``undeletable``: no key may delete.
    """

    def __init__(self, url: str, secrets: dict[str, str], readers: frozenset[str]) -> None:
        self.url = url
        self.secrets = secrets
        self.readers = readers
        self.undeletable = False
        self.buckets: dict[str, dict[str, bytes]] = {"bucket": {}}


@contextmanager
def s3_server(secrets: dict[str, str], readers: frozenset[str] = frozenset()) -> Iterator[S3Server]:
    """Yield a server that knows the access keys of ``secrets``, with their secret keys."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as http:
        http.daemon_threads = True
        server = S3Server(f"http://127.0.0.1:{http.server_port}", secrets, readers)
        http.s3 = server  # type: ignore[attr-defined]
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            http.shutdown()
            thread.join()


class _Refused(Exception):
    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: object) -> None:
        """Log nothing."""

    def do_PUT(self) -> None:
        self._serve()

    do_GET = do_HEAD = do_DELETE = do_PUT  # noqa: N815

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            self._authorize(body)
            status, headers, content = self._answer(body)
        except _Refused as error:
            text = f"<Error><Code>{error}</Code><Message>{error}</Message></Error>"
            status, headers, content = error.status, {"Content-Type": "application/xml"}, text.encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _authorize(self, body: bytes) -> None:
        """Refuse a request whose signature is not that of its access key's secret, or whose body is another one."""
        server: S3Server = self.server.s3  # type: ignore[attr-defined]
        text = self.headers.get("Authorization", "").removeprefix("AWS4-HMAC-SHA256 ")
        parts = dict(part.strip().partition("=")[::2] for part in text.split(","))
        key, *scope = parts.get("Credential", "").split("/")
        if key not in server.secrets:
            raise _Refused(403, "InvalidAccessKeyId" if key else "AccessDenied")
        if "x-amz-security-token" in self.headers:  # no key of this server is a temporary one
            raise _Refused(400, "InvalidToken")
        digest = self.headers["x-amz-content-sha256"]
        names = parts["SignedHeaders"].split(";")
        path, _, query = self.path.partition("?")
        pairs = sorted((quote(k, safe="-_.~"), quote(v, safe="-_.~")) for k, v in parse_qsl(query, True))
        request = [
            self.command,
            path,
            "&".join(f"{name}={value}" for name, value in pairs),
            *(f"{name}:{' '.join(self.headers[name].split())}" for name in names),
            "",
            ";".join(names),
            digest,
        ]
        signed = ["AWS4-HMAC-SHA256", self.headers["x-amz-date"], "/".join(scope), _sha256("\n".join(request).encode())]
        secret = f"AWS4{server.secrets[key]}".encode()
        for each in scope:
            secret = _hmac(secret, each)
        if not hmac.compare_digest(_hmac(secret, "\n".join(signed)).hex(), parts["Signature"]):
            raise _Refused(403, "SignatureDoesNotMatch")
        if scope[1] != REGION or digest not in (_sha256(body), "UNSIGNED-PAYLOAD"):
            raise _Refused(400, "AuthorizationHeaderMalformed")
        if self.command in ("PUT", "DELETE") and key in server.readers:
            raise _Refused(403, "AccessDenied")
        if self.command == "DELETE" and server.undeletable:
            raise _Refused(403, "AccessDenied")

    def _answer(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        server: S3Server = self.server.s3  # type: ignore[attr-defined]
        url = urlsplit(self.path)
        bucket, _, key = unquote(url.path).lstrip("/").partition("/")
        if bucket not in server.buckets:
            raise _Refused(404, "NoSuchBucket")
        objects, query = server.buckets[bucket], dict(parse_qsl(url.query, True))
        if self.command == "PUT" and key:
            if self.headers.get("If-None-Match") == "*" and key in objects:
                raise _Refused(412, "PreconditionFailed")
            objects[key] = body
            return 200, {"ETag": _etag(body)}, b""
        if not key:
            return 200, {"Content-Type": "application/xml"}, _listed(objects, query) if query else b""
        if key not in objects:
            raise _Refused(404, "NoSuchKey")
        if self.command == "DELETE":
            del objects[key]
            return 204, {}, b""
        return self._content(objects[key])

    def _content(self, content: bytes) -> tuple[int, dict[str, str], bytes]:
        headers = {"ETag": _etag(content), "Last-Modified": formatdate(usegmt=True)}
        first, _, last = self.headers.get("Range", "").removeprefix("bytes=").partition("-")
        if not first:
            return 200, headers, content
        end = min(int(last or len(content)), len(content) - 1)
        headers["Content-Range"] = f"bytes {first}-{end}/{len(content)}"
        return 206, headers, content[int(first) : end + 1]


def _listed(objects: dict[str, bytes], query: dict[str, str]) -> bytes:
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    below = [key for key in sorted(objects) if key.startswith(prefix)]
    folders = {
        prefix + rest[: rest.index(delimiter) + 1]
        for rest in (key.removeprefix(prefix) for key in below)
        if delimiter and delimiter in rest
    }
    items = [f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>" for folder in sorted(folders)]
    items += [
        f"<Contents><Key>{escape(key)}</Key><Size>{len(objects[key])}</Size><ETag>{_etag(objects[key])}</ETag>"
        "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
        for key in below
        if not any(key.startswith(folder) for folder in folders)
    ]
    head = f"<KeyCount>{len(items)}</KeyCount><IsTruncated>false</IsTruncated>"
    return f"<ListBucketResult>{head}{''.join(items)}</ListBucketResult>".encode()


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _etag(content: bytes) -> str:
    return f'"{hashlib.md5(content).hexdigest()}"'
