"""Downloads of exact jars by Apache Ivy, the resolver that Spark ships and that knows Maven Central by itself."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.sax.saxutils import quoteattr

from wasmline.errors import ArtifactUnavailable, PrerequisiteMissing
from wasmline.local.installed_spark import INSTALL, packaged_spark, spark_home
from wasmline.local.jar_lock import Jar
from wasmline.local.jvm import find_java

logger = logging.getLogger(__name__)

SETTINGS_VARIABLE = "WASMLINE_IVY_SETTINGS"
DOWNLOAD_TIMEOUT_S = 15 * 60
LOG_LINES = 15

# Jars that Maven has already come first, then Ivy's default for a Maven repository. Without POMs, which exact
# coordinates make superfluous, 46 jars take 9 s instead of 42 s.
SETTINGS = """\
<ivysettings>
  <settings defaultResolver="all"/>
  <timeout-constraints>
    <timeout-constraint name="limits" connectionTimeout="10000" readTimeout="60000"/>
  </timeout-constraints>
  <resolvers>
    <chain name="all" returnFirst="true">
      <filesystem name="maven-local" m2compatible="true">
        <artifact pattern="${user.home}/.m2/repository/[organisation]/[module]/[revision]/[artifact]-[revision].[ext]"/>
      </filesystem>
      <ibiblio name="maven-central" m2compatible="true" usepoms="false" useMavenMetadata="false"
               timeoutConstraint="limits"/>
    </chain>
  </resolvers>
</ivysettings>
"""


def fetch(jars: Iterable[Jar], folder: Path) -> None:
    """Download ``jars`` into ``folder``, unverified.

    For a mirror, set $WASMLINE_IVY_SETTINGS to its ivysettings.xml (the file of Spark's ``spark.jars.ivySettings``).
    Raises ArtifactUnavailable with the end of Ivy's log, PrerequisiteMissing if Spark or Java is missing.
    """
    java = find_java().path
    ivy = _ivy_jar()
    with TemporaryDirectory(prefix="wasmline-ivy-") as name:
        work = Path(name)
        settings = Path(os.environ.get(SETTINGS_VARIABLE) or work / "ivysettings.xml")
        (work / "ivysettings.xml").write_text(SETTINGS)
        (work / "ivy.xml").write_text(_module(jars))
        command: list[str | Path] = [
            java,
            "-jar",
            ivy,
            "-settings",
            settings,
            "-cache",
            work / "cache",
            "-ivy",
            work / "ivy.xml",
        ]
        _run([*command, "-confs", "default", "-retrieve", f"{folder}/[artifact]-[revision].[ext]"], work / "log")


def _run(command: list[str | Path], log: Path) -> None:
    logger.debug("running %s", command)
    with log.open("wb") as stream:
        try:
            status = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT, timeout=DOWNLOAD_TIMEOUT_S
            ).returncode
        except subprocess.TimeoutExpired:
            status = -1
    if status:
        end = "\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:])
        raise ArtifactUnavailable(
            "Ivy could not download the pinned jars. Is the network up? Behind a mirror, name your ivysettings.xml in "
            f"${SETTINGS_VARIABLE}; a proxy goes into $JAVA_TOOL_OPTIONS. The end of its log:\n{end}"
        )


def _ivy_jar() -> Path:
    homes = filter(None, (spark_home(), packaged_spark()))
    found = [jar for home in homes for jar in home.glob("jars/ivy-*.jar")]
    if not found:
        raise PrerequisiteMissing(
            f"the jars are fetched with Spark's Ivy. Install it with: {INSTALL}, or set SPARK_HOME", install=INSTALL
        )
    return found[0]


def _module(jars: Iterable[Jar]) -> str:
    lines = [
        f"<dependency org={quoteattr(jar.organisation)} name={quoteattr(jar.module)} rev={quoteattr(jar.revision)} "
        f'transitive="false" conf="default"><artifact name={quoteattr(jar.module)} type="jar" ext="jar"/></dependency>'
        for jar in jars
    ]
    return "\n".join(
        [
            '<ivy-module version="2.0"><info organisation="wasmline" module="locked"/>',
            '<configurations><conf name="default"/></configurations>',
            "<dependencies>",
            *lines,
            "</dependencies></ivy-module>\n",
        ]
    )
