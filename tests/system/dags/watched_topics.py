"""A DAG that returns the events that started it: the triggers of the provider on a real Airflow."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, Asset, AssetWatcher, get_current_context, task

import demo_settings
from wasmline_provider.triggers.new_records import NewRecordsTrigger
from wasmline_provider.triggers.retrain import RetrainTrigger

TOPIC = "system.progress"

progress = NewRecordsTrigger(topic=TOPIC, every_records=10, poll_seconds=0.5)
conditions = RetrainTrigger(
    model="delivery-eta",
    topic=demo_settings.FEATURES,
    new_records=1_000,
    cooldown_seconds=20,
    poll_seconds=1,
)

with DAG(
    "watched_topics",
    schedule=(
        Asset("system.progress", watchers=[AssetWatcher("progress", progress)])
        | Asset("system.retrain", watchers=[AssetWatcher("conditions", conditions)])
    ),
    catchup=False,
    is_paused_upon_creation=False,
) as dag:

    @task
    def payloads() -> list[dict[str, Any]]:
        """Return the payloads of the events."""
        events = get_current_context()["triggering_asset_events"]
        return [event.extra["payload"] for found in events.values() for event in found]

    payloads()
