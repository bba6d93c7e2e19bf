"""The jars of a local Kafka and of Spark's Kafka connector: exactly those of the lock files, downloaded once.

A jar is code, so its digest is verified at each use, not only when it is stored: a tenth of a second.
"""

from __future__ import annotations

import fcntl
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from wasmline.disk_cache import cache_root
from wasmline.errors import ArtifactUnavailable, PrerequisiteMissing
from wasmline.local import ivy, jar_lock
from wasmline.local.installed_spark import INSTALL as SPARK_INSTALL
from wasmline.local.installed_spark import spark_release
from wasmline.local.jar_lock import JarSet

logger = logging.getLogger(__name__)

KAFKA = Path(__file__).with_name("kafka.lock")
CONNECTORS = {lock.stem.removeprefix("connector-"): lock for lock in sorted(KAFKA.parent.glob("connector-*.lock"))}
"""The locks of Spark's Kafka connector, by the minor release of Spark."""


def kafka_jars() -> list[Path]:
    """Return the class path of a Kafka broker 4.3.1. The first call downloads 44 MB; raises ArtifactUnavailable."""
    return cached(jar_lock.read(KAFKA))


def connector_jars() -> list[Path]:
    """Return the jars of the Kafka source and sink for this machine's Spark, 10 MB, like ``kafka_jars``.

    Raises PrerequisiteMissing without a Spark, or for one of another minor release than those with a lock.
    """
    release = spark_release()
    lock = CONNECTORS.get(release.rpartition(".")[0])
    if lock is None:
        raise PrerequisiteMissing(
            f"there is no Kafka connector here for Spark {release}, only for {', '.join(CONNECTORS)}: {SPARK_INSTALL}, "
            "or name its jars yourself",
            install=SPARK_INSTALL,
        )
    return cached(jar_lock.read(lock))


def kafka_version() -> str:
    """Return the version of the broker of ``kafka_jars``."""
    return next(jar.revision for jar in jar_lock.read(KAFKA).jars if jar.module.startswith("kafka_"))


def jar_cache() -> Path:
    """Return ``jars`` in the cache folder; raises ArtifactUnavailable if there is none."""
    root = cache_root()
    if root is None:
        raise ArtifactUnavailable("no cache folder for jars: set WASMLINE_CACHE to an absolute path")
    return root / "jars"


def cached(jars: JarSet) -> list[Path]:
    """Return the jars of a set in the lock's order, each verified against its digest.

    A jar that is missing or has other bytes is fetched again. Safe to call from several processes at once: the first
    one downloads and the others wait.
    """
    folder = jar_cache() / f"{jars.name}-{jars.digest[:12]}"
    if not _is_complete(folder, jars):
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder):
            if not _is_complete(folder, jars):
                _fill(folder, jars)
    return [folder / jar.file for jar in jars.jars]


def _is_complete(folder: Path, jars: JarSet) -> bool:
    return all(jar.matches(folder / jar.file) for jar in jars.jars)


def _fill(folder: Path, jars: JarSet) -> None:
    """Fetch missing or damaged jars; a jar appears under its name only after its bytes were verified."""
    missing = [jar for jar in jars.jars if not jar.matches(folder / jar.file)]
    logger.info("downloading %d %s jars into %s, once", len(missing), jars.name, folder)
    with TemporaryDirectory(dir=folder, prefix="incoming-") as name:
        incoming = Path(name)
        ivy.fetch(missing, incoming)
        for jar in missing:
            if not jar.matches(incoming / jar.file):
                raise ArtifactUnavailable(
                    f"{jar.coordinate} arrived with other bytes than the locked sha256 {jar.sha256}: "
                    "a local Maven repository or a mirror holds a damaged copy; remove it there and retry"
                )
        for jar in missing:
            (incoming / jar.file).replace(folder / jar.file)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, which the kernel releases when its holder ends."""
    with (folder / "lock").open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logger.info("another process is filling %s; waiting for it", folder)
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield
