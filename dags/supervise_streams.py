"""### Keep the streams running

Every five minutes, and when the driver of a stream has died: starts each stream of the table below that should run and
does not, adopts those that do, restarts one whose specification was changed here, and reports what stands still. A
stream that a user has stopped (`wasmline stop`) stays stopped: its task is skipped, and goes on once the job is deleted
(`wasmline delete`; its progress stays). To kill a task of this DAG stops no stream.

To copy: put your own streams into `STREAMS`. Their drivers run on the worker's machine, or wherever the Spark
connection says; nothing of a stream ends with a run of this DAG.

*What starts a dead stream between two runs*: the asset `streams.dead`, which the triggerer watches; it fires within
some seconds of a driver's death that was reported, and after half a minute without a heartbeat otherwise. If Airflow
itself is down, nothing does, unless the drivers are started by `wasmline launcher`.

*What makes a run fail*: a stream that still has no driver some minutes after its `ensure_…`, with the end of its
driver's log, and an `ensure_…` that failed, such as for a transform that is not deployed. A cluster that cannot be
reached for some minutes is waited for.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Asset, AssetOrTimeSchedule, AssetWatcher, CronTriggerTimetable, TriggerRule

import demo_settings
from wasmline_provider.operators.check_streams import CheckStreamsOperator
from wasmline_provider.operators.stream import SparkStreamOperator
from wasmline_provider.triggers.dead_stream import DeadStreamTrigger

STREAMS: dict[str, dict[str, Any]] = {
    demo_settings.TRANSFORM: {
        "transform": demo_settings.TRANSFORM,
        "trigger_interval": "1 second",
        "metrics_port": demo_settings.METRICS_PORTS.get(demo_settings.TRANSFORM),
        "launcher": demo_settings.LAUNCHER,
    },
}
"""The parameters of each stream, by its job."""

dead = DeadStreamTrigger(jobs=list(STREAMS), kafka_conn_id=demo_settings.KAFKA)
dead_streams = Asset("streams.dead", group="streams", watchers=[AssetWatcher("dead", dead)])

with DAG(
    "supervise_streams",
    description="Start the streams that should run and do not; report what stands still.",
    doc_md=__doc__,
    schedule=AssetOrTimeSchedule(timetable=CronTriggerTimetable("*/5 * * * *", timezone="UTC"), assets=[dead_streams]),
    catchup=False,
    dagrun_timeout=timedelta(minutes=30),
    default_args={
        "retries": 6,
        "retry_delay": timedelta(seconds=10),
        "retry_exponential_backoff": 2.0,
        "max_retry_delay": timedelta(minutes=2),
    },
    tags=["wasmline", "example"],
) as dag:
    check = CheckStreamsOperator(
        task_id="check",
        jobs=list(STREAMS),
        kafka_conn_id=demo_settings.KAFKA,
        trigger_rule=TriggerRule.ALL_DONE,
        retry_delay=timedelta(seconds=20),
        retry_exponential_backoff=0,
    )
    all_ensured = EmptyOperator(task_id="all_ensured", trigger_rule=TriggerRule.NONE_FAILED)  # else the run fails
    for job, parameters in STREAMS.items():
        ensure = SparkStreamOperator(
            task_id=f"ensure_{job}",
            job=job,
            kafka_conn_id=demo_settings.KAFKA,
            spark_conn_id=demo_settings.SPARK,
            wait_for_completion=False,
            restart_stopped=False,
            pool=demo_settings.STREAM_POOL,
            **parameters,
        )
        ensure >> [check, all_ensured]
