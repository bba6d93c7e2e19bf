"""Fires when a model should be trained again, and says why."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from wasmline.errors import InvalidTrainSpec
from wasmline.retrain_conditions import RetrainConditions
from wasmline_provider.argument_checks import require_absolute, require_set
from wasmline_provider.hooks.kafka import KafkaHook
from wasmline_provider.hooks.wasmline import Locations, WasmlineHook
from wasmline_provider.triggers.polling import Poller, PollingEventTrigger

if TYPE_CHECKING:
    from wasmline.kafka import KafkaConfig

POLL_INTERVAL_S = 60.0


class RetrainTrigger(PollingEventTrigger):
    """Fires on new records, drift of the features, the live error or the age of a model's champion.

    Its state of record are the recorded slices and the topic's offsets: it keeps no counter, so that a triggerer may be
    killed at any time. It may fire twice, or for records that a run has trained on meanwhile: such a run has no slice
    and is skipped. Why it does not fire is in the triggerer's log, once for each change, and in the status that it
    writes to the cluster. For a DAG that is scheduled on an asset::

        retrain = Asset(
            "delivery-eta.retrain",
            watchers=[
                AssetWatcher(
                    "conditions",
                    RetrainTrigger(
                        model="delivery-eta",
                        topic="deliveries.features",
                        new_records=20_000,
                        max_psi=0.25,
                    ),
                )
            ],
        )

    The payload is ``why`` in one sentence, ``reasons`` with their figures, ``model``, ``champion``, ``topic``,
    ``topic_id``, ``until`` with the topic's end by partition, ``slice``, the number of the newest recorded slice, and
    ``observed_ms``. The run reads it from ``triggering_asset_events``.

    :param model: the model's name.
    :param models: the folder or fsspec URL of the model registry, with the recorded slices; None for that of the
        connection.
    :param topic: the topic that the model is trained on.
    :param min_new_records: fire for nothing with fewer records since the newest slice.
    :param new_records: fire with so many records since the newest slice.
    :param max_psi: fire if the population stability index of a feature, of the newest records beside the champion's
        held-out rows, is above it; 0.25 is a large shift.
    :param max_error_growth: fire if the RMSE of labelled predictions exceeds the champion's forward error, or that on
        its held-out rows if it has none, by more than this share.
    :param max_age_hours: fire if the champion was trained, and the newest slice recorded, longer ago.
    :param predictions: the topic of predictions, for the live error.
    :param labels: the topic of labels; by default the one that the model is trained on.
    :param label_delay_seconds: how long a label may take: only predictions that are as old are measured.
    :param cooldown_seconds: the least time from a recorded slice or an event to the next event. A condition that stays
        met, because the run is skipped or the champion is kept, waits twice as long after each event, up to a day.
    :param kafka_conn_id: the connection of the cluster.
    :param poll_seconds: the time between two polls.
    :param wasmline_conn_id: the connection with the models, if they are not given, and the login to their store.
    """

    def __init__(
        self,
        *,
        model: str,
        topic: str,
        models: str | None = None,
        min_new_records: int = 1,
        new_records: int | None = None,
        max_psi: float | None = None,
        max_error_growth: float | None = None,
        max_age_hours: float | None = None,
        predictions: str | None = None,
        labels: str | None = None,
        label_delay_seconds: float = 0.0,
        cooldown_seconds: float = 600.0,
        kafka_conn_id: str = KafkaHook.default_conn_name,
        poll_seconds: float = POLL_INTERVAL_S,
        wasmline_conn_id: str = WasmlineHook.default_conn_name,
    ) -> None:
        super().__init__(kafka_conn_id=kafka_conn_id, poll_seconds=poll_seconds)
        if models is not None:
            require_set(InvalidTrainSpec, models=models)
            require_absolute(InvalidTrainSpec, "models", models)
        self.models = models
        self.wasmline_conn_id = wasmline_conn_id
        self._hook = WasmlineHook(wasmline_conn_id)
        self.conditions = RetrainConditions(
            model=model,
            models=models or "",
            topic=topic,
            min_new_records=min_new_records,
            new_records=new_records,
            max_psi=max_psi,
            max_error_growth=max_error_growth,
            max_age_hours=max_age_hours,
            predictions=predictions,
            labels=labels,
            label_delay_seconds=label_delay_seconds,
            cooldown_seconds=cooldown_seconds,
        )

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return (
            "wasmline_provider.triggers.retrain.RetrainTrigger",
            {
                **asdict(self.conditions),
                "models": self.models,
                "kafka_conn_id": self.kafka_conn_id,
                "poll_seconds": self.poll_seconds,
                "wasmline_conn_id": self.wasmline_conn_id,
            },
        )

    async def locations(self) -> Locations:
        return await self._hook.alocate(models=self.models)

    def poller(self, config: KafkaConfig, locations: Locations) -> Poller:
        from wasmline.documents import plain
        from wasmline.training import RetrainMonitor

        monitor = RetrainMonitor(config, replace(self.conditions, models=locations.models))

        def poll() -> dict[str, Any] | None:
            event = monitor.poll()
            return None if event is None else {"why": event.why, **plain(event)}

        return Poller(poll, monitor.close)
