"""The settings of the page: the section ``wasmline`` of Airflow's configuration."""

from __future__ import annotations

from dataclasses import dataclass

from airflow.configuration import conf

from wasmline_provider.hooks.kafka import KafkaHook
from wasmline_provider.hooks.wasmline import WasmlineHook

SECTION = "wasmline"


@dataclass(frozen=True, kw_only=True)
class PageSettings:
    """What the page shows, and to whom.

    kafka_conn_id: the connection of the cluster. wasmline_conn_id: that with the registries of modules and models.
    shows_payloads: whether keys, values and headers of records are shown.
    action_permission: the custom view of the auth manager on which PUT permits actions; "" for none.
    """

    kafka_conn_id: str = KafkaHook.default_conn_name
    wasmline_conn_id: str = WasmlineHook.default_conn_name
    shows_payloads: bool = True
    action_permission: str = ""

    @classmethod
    def read(cls) -> PageSettings:
        """Return the settings of Airflow's configuration."""
        return cls(
            kafka_conn_id=conf.get(SECTION, "kafka_conn_id", fallback=cls.kafka_conn_id),
            wasmline_conn_id=conf.get(SECTION, "wasmline_conn_id", fallback=cls.wasmline_conn_id),
            shows_payloads=conf.getboolean(SECTION, "page_payloads", fallback=True),
            action_permission=conf.get(SECTION, "page_action_permission", fallback=""),
        )
