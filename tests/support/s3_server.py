"""Runs a real S3 server on this machine: it checks signatures, and stores each object as a file.

It is S3Proxy, with those of its jars that its storage on a disk needs, locked as the product's own. It refuses a wrong
secret, and takes a conditional write as one step.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

from wasmline.errors import ServiceFailed
from wasmline.local import find_java, jars, service_folder
from wasmline.local.jar_lock import read
from wasmline.local.ports import HOST, free_port
from wasmline.local.process import Service, wait_until

LOCK = Path(__file__).with_name("s3proxy.lock")
START_TIMEOUT_S = 60.0
LOG_LINES = 30

JVM_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

LOGGING = """\
<configuration>
  <appender name="log" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %level %logger{0} %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="log"/></root>
</configuration>
"""


@dataclass(kw_only=True)
class S3Server:
    """A server with its objects in ``folder / "buckets"``, and one user. Ends with this process.

    Entering it raises ArtifactUnavailable or PrerequisiteMissing where the server cannot be had.
    """

    folder: Path
    access_key: str = "wasmline-tests"
    secret_key: str = field(default_factory=lambda: secrets.token_urlsafe(30), repr=False)
    port: int = 0

    def __enter__(self) -> S3Server:
        java: list[str | Path] = [find_java().path, *JVM_OPTIONS, "-cp", ":".join(map(str, jars.cached(read(LOCK))))]
        self.port = free_port(set())
        self.buckets.mkdir(parents=True)
        settings, logging = self.folder / "s3proxy.properties", self.folder / "logback.xml"
        service_folder.write(settings, self._properties(), private=True)
        logging.write_text(LOGGING)
        command = [*java, f"-Dlogback.configurationFile={logging}", "org.gaul.s3proxy.Main", "--properties", settings]
        log = self.folder / "s3proxy.log"
        self._service = Service.start(command, str(settings), log)
        wait_until(lambda: self._answers() or not self._service.alive(), START_TIMEOUT_S)
        if not self._answers():
            self._service.kill()
            end = "\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:])
            raise ServiceFailed(f"the S3 server did not start:\n{end}", log=end)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._service.kill()

    @property
    def buckets(self) -> Path:
        """The folder with a folder for each bucket, and in that a file for each object."""
        return self.folder / "buckets"

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def driver_options(self) -> dict[str, Any]:
        """Those of s3fs."""
        return {"key": self.access_key, "secret": self.secret_key, "endpoint_url": self.url}

    @property
    def environment(self) -> dict[str, str]:
        """The variables of AWS's clients."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.url,
        }

    def bucket(self) -> str:
        """Create a bucket with a unique name, and return the name."""
        name = f"bucket-{secrets.token_hex(6)}"
        (self.buckets / name).mkdir()
        return name

    def _answers(self) -> bool:
        """Return whether the server refuses a request without a signature."""
        try:
            urlopen(f"{self.url}/", timeout=5).close()
        except HTTPError as error:
            error.close()
            return error.code == 403
        except OSError:
            return False
        return False

    def _properties(self) -> str:
        return "\n".join(
            [
                f"s3proxy.endpoint={self.url}",
                "s3proxy.authorization=aws-v4",
                f"s3proxy.identity={self.access_key}",
                f"s3proxy.credential={self.secret_key}",
                "s3proxy.ignore-unknown-headers=true",  # that of a session token
                "jclouds.provider=filesystem-nio2",
                f"jclouds.filesystem.basedir={self.buckets}",
                "",
            ]
        )
