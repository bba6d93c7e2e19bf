"""### Many HTTP calls at a time, each customer's orders in order

Reads `orders`, requests the customer of each from a slow service, and writes `orders.enriched`. A plain consumer of a
topic of three partitions makes three calls at a time. Mode `parallel` makes up to `max_concurrency` in each of Spark's
tasks; the orders of one customer, which share a key, wait for each other, and for no others.

Patterns for other DAGs:

* the handler is a module of its own, `enrichment_handler.py`, shipped with the job by `py_files`;
* its settings are in the environment of Spark's tasks (`spark.executorEnv.…`); the service's address is that of an
  Airflow connection;
* `max_attempts` and `retry_delay_ms` apply to each record; a dead-lettered one goes to the dead-letter topic with its
  reason, while the others continue;
* with `delivery="exactly_once"` the enriched orders and the job's progress share transactions: a consumer with
  `isolation.level=read_committed` reads each order once. The calls themselves are made at least once.

Connections: `kafka_default`, `spark_default`, `wasmline_default`, and `customers`, of type HTTP, with the service's
host and port.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG, Param, task

import demo_settings
from wasmline_provider.asset_uris import topic_asset
from wasmline_provider.hooks.kafka import KafkaHook
from wasmline_provider.operators.stream import SparkStreamOperator

HANDLER = Path(__file__).with_name("enrichment_handler.py")
SERVICE = "{{ conn.customers.schema or 'http' }}://{{ conn.customers.host }}:{{ conn.customers.port }}"
PARTITIONS = 3

with DAG(
    "enrich_over_http",
    description="Call a slow service for each record of a topic, key by key, beyond the number of partitions.",
    doc_md=__doc__,
    schedule=None,
    catchup=False,
    max_active_runs=1,
    is_paused_upon_creation=False,
    tags=["wasmline", "example"],
    params={
        "pause": Param(
            None,
            type=["null", "string"],
            examples=["1 second"],
            title="For ever",
            description="The pause between leases, such as '1 second', for a stream that is stopped by hand; none for "
            "one that ends once all is done that the topic holds.",
        ),
        "max_concurrency": Param(
            32, type="integer", minimum=1, title="Calls at a time", description="How many, in each of Spark's tasks."
        ),
    },
) as dag:

    @task
    def topics() -> list[str]:
        """Create the missing topics: a job never creates any."""
        from wasmline.kafka import Topics

        names = [demo_settings.ORDERS, demo_settings.ENRICHED, demo_settings.UNENRICHED]
        cluster = Topics(KafkaHook(demo_settings.KAFKA).get_conn())
        for name in names:
            cluster.create(name, PARTITIONS, exist_ok=True)
        return names

    enrich = SparkStreamOperator(
        task_id="enrich",
        job=demo_settings.ENRICH_JOB,
        function="enrichment_handler:with_customer",
        topic=demo_settings.ORDERS,
        dead_letter_topic=demo_settings.UNENRICHED,
        max_attempts=5,
        retry_delay_ms=500,
        mode="parallel",
        ordering="key",
        max_concurrency="{{ params.max_concurrency }}",
        delivery="exactly_once",
        trigger_interval="{{ params.pause }}",
        kafka_conn_id=demo_settings.KAFKA,
        spark_conn_id=demo_settings.SPARK,
        launcher=demo_settings.LAUNCHER,
        metrics_port=demo_settings.METRICS_PORTS.get(demo_settings.ENRICH_JOB),
        pool=demo_settings.STREAM_POOL,
        spark_options={"py_files": str(HANDLER)},
        conf={
            "spark.executorEnv.CUSTOMERS_URL": SERVICE,
            "spark.executorEnv.ENRICHED_TOPIC": demo_settings.ENRICHED,
        },
        deferrable=True,
        retries=1,  # a retry finds the running run
        retry_delay=timedelta(seconds=10),
        outlets=[topic_asset(server=demo_settings.KAFKA_SERVER, topic=demo_settings.ENRICHED)],
    )

    topics() >> enrich
