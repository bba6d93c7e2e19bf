"""The Spark session of a job."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from wasmline.errors import PrerequisiteMissing
from wasmline.spark.spark_releases import checkpoint_file_manager

logger = logging.getLogger(__name__)

SETTINGS = {
    # Without libhadoop the default manager forks chmod for each checkpoint file, which doubles the cost of a small
    # batch. This one's rename is weaker against two drivers on one checkpoint; the driver's claim excludes that.
    "spark.sql.streaming.checkpointFileManagerClass": checkpoint_file_manager(),
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "4",
    # Two attempts at once would write outputs twice; of a lease, the second would fence the first one, and Spark would
    # take the first one's end for success.
    "spark.speculation": "false",
}


LEASE_SETTINGS = {
    # A silent executor withholds its partitions from other tasks, and delays the next lease of all of them.
    "spark.network.timeout": "30s",
    "spark.network.timeoutInterval": "10s",
}
"""Settings that lease tasks need in addition to SETTINGS."""

REQUIRED_SETTINGS = ("spark.sql.session.timeZone", "spark.speculation")
"""Settings that override those of spark-submit; for the others the user's configuration wins."""

LOCAL_MASTER = re.compile(r"local(?:\[([\d*]+)\])?")

EXECUTORS_TIMEOUT_S = 30.0
"""Seconds to wait for an application's executors; without one, it is planned for one slot."""

EXECUTOR_PAUSE_S = 2.0
"""Seconds without another executor after which no more are expected: those of one application start together."""

POLL_INTERVAL_S = 0.25

STANDALONE = "spark://"
"""Begin of the URL of a standalone master."""

TASK_ATTEMPTS = 4
"""Attempts of a task before Spark fails the job, as on a cluster; a plain local master tries once."""


def retrying(master: str) -> str:
    """Return a local master that retries failed tasks; return any other master unchanged."""
    local = LOCAL_MASTER.fullmatch(master)
    return f"local[{local[1] or 1},{TASK_ATTEMPTS}]" if local else master


def session(app_name: str, settings: Mapping[str, str], slots: Callable[[], int | None] = lambda: None) -> SparkSession:
    """Return the session of this application; spark-submit sets master and resources.

    On a standalone master, where an application takes all cores by default, it takes ``slots()`` task slots at most,
    unless ``spark.cores.max`` is set.
    """
    builder = SparkSession.builder.appName(app_name)
    SparkContext._ensure_initialized()  # a SparkConf has the settings of spark-submit once the JVM runs
    conf = SparkConf()
    if master := conf.get("spark.master"):
        builder = builder.master(retrying(master))
        if master.startswith(STANDALONE) and not conf.contains("spark.cores.max") and (limit := slots()):
            builder = builder.config("spark.cores.max", str(_cores_of(limit, conf)))
    for key, value in {**SETTINGS, **settings}.items():
        if key in REQUIRED_SETTINGS or not conf.contains(key):
            builder = builder.config(key, value)
    spark = _started(builder)
    spark.sparkContext.setLogLevel("WARN")
    return spark


def _started(builder: SparkSession.Builder) -> SparkSession:
    """Return the session. Raises PrerequisiteMissing as ``require_same_release`` does, and leaves no new session."""
    is_new = SparkContext._active_spark_context is None
    spark = builder.getOrCreate()
    try:
        require_same_release(pyspark.__version__, spark.version)
    except PrerequisiteMissing:
        if is_new:
            spark.stop()
        raise
    return spark


def require_same_release(python: str, jars: str) -> None:
    """Raise PrerequisiteMissing if PySpark is of another minor release than Spark's jars; warn of another patch.

    A vendor's suffix may differ.
    """
    ours, theirs = (re.findall(r"\d+", each)[:3] for each in (python, jars))
    if ours == theirs:
        return
    install = f"pip install --force-reinstall --no-deps pyspark=={'.'.join(theirs)}"
    text = f"PySpark is {python} and its Spark is {jars}: {install}"
    if ours[:2] != theirs[:2]:
        raise PrerequisiteMissing(text, install=install)
    logger.warning(text)


def _cores_of(slots: int, conf: SparkConf) -> int:
    executor = conf.get("spark.executor.cores")
    return whole_executors(slots, int(conf.get("spark.task.cpus") or 1), int(executor) if executor else None)


def whole_executors(slots: int, task_cpus: int, executor_cores: int | None) -> int:
    """Return the cores of ``slots`` task slots, in whole executors: a master starts none with fewer cores."""
    if executor_cores is None:
        return slots * task_cpus
    return -(-slots // max(1, executor_cores // task_cpus)) * executor_cores


def local_session(app_name: str, jars: Iterable[Path]) -> SparkSession:
    """Return a session on all cores of this machine, with jars such as the connector's. It ends with the process.

    It listens on the loopback address only, unless ``SPARK_LOCAL_IP`` is set.
    """
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master("local[*]").appName(app_name)
    settings = {**SETTINGS, "spark.jars": ",".join(map(str, jars)), "spark.ui.enabled": "false"}
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = _started(builder)
    spark.sparkContext.setLogLevel("ERROR")
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # it repeats errors, with the plan of Java
    return spark


def registered_slots(context: SparkContext) -> int:
    """Return how many tasks the executors that are there run at once; 0 before the first has started."""
    spark = context._jsc.sc()
    return int(spark.maxNumConcurrentTasks(spark.resourceProfileManager().defaultResourceProfile()))


def task_slots(context: SparkContext) -> int:
    """Return how many tasks the application's executors run at once, including executors requested but not yet started.

    An executor that starts later counts if ``spark.executor.instances`` is configured. If it is not, this waits for the
    executors for up to EXECUTORS_TIMEOUT_S: ``spark.cores.max`` is a limit, which a cluster need not have.
    """
    conf = context.getConf()
    cpus = int(conf.get("spark.task.cpus", "1"))
    instances = int(conf.get("spark.executor.instances", "0"))
    if instances or context._jsc.sc().isLocal():
        ordered = instances * int(conf.get("spark.executor.cores", "1")) // cpus
        return max(1, registered_slots(context), ordered)
    limit = int(conf.get("spark.cores.max", "0")) // cpus
    return max(1, settled_slots(lambda: registered_slots(context), limit))


def settled_slots(
    registered: Callable[[], int],
    limit: int,
    *,
    pause_s: float = EXECUTOR_PAUSE_S,
    timeout_s: float = EXECUTORS_TIMEOUT_S,
) -> int:
    """Return the number of slots once it is ``limit``, or has stayed the same for ``pause_s``; 0 is no limit.

    Returns 0 if no executor has registered within ``timeout_s``.
    """
    deadline = time.monotonic() + timeout_s
    slots, since = registered(), time.monotonic()
    while not 0 < limit <= slots and (now := time.monotonic()) < deadline and not (slots and now - since >= pause_s):
        time.sleep(POLL_INTERVAL_S)
        if (found := registered()) != slots:
            slots, since = found, time.monotonic()
    return slots
