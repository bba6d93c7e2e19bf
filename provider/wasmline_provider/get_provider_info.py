"""The provider's entry point for Airflow, called before Airflow is configured: imports nothing."""

from __future__ import annotations

from typing import Any

CONNECTION_FIELDS = {
    "registry": (
        "Registry",
        "Modules: an absolute folder that all workers mount, or a URL of fsspec.",
        ["s3://bucket/registry", "/var/lib/wasmline/registry"],
    ),
    "models": (
        "Models",
        "Models, their slices and decisions: an absolute folder that all workers mount, or a URL of fsspec.",
        ["s3://bucket/models", "/var/lib/wasmline/models"],
    ),
    "storage": (
        "Storage",
        "Checkpoints of jobs: a folder that all of Spark mounts at this path, or a URL of Hadoop.",
        ["s3a://bucket/wasmline", "/var/lib/wasmline/storage"],
    ),
    "object_store_conn_id": (
        "Object-store connection",
        "The id of an aws connection with the keys of the URLs above; empty for the login that the machines have.",
        ["aws_default"],
    ),
}
"""The fields of the form of a ``wasmline`` connection: label, description and examples, which the form suggests."""


def get_provider_info() -> dict[str, Any]:
    """Return the provider's metadata in the format of ``airflow/provider_info.schema.json``."""
    name = "Wasmline"
    return {
        "package-name": "wasmline",
        "name": name,
        "description": "Build, version and deploy WebAssembly transforms on Kafka, run them on Spark, "
        "retrain on what they emit.",
        "integrations": [
            {
                "integration-name": name,
                "how-to-guide": [
                    "/docs/installation.md",
                    "/docs/connections.md",
                    "/docs/tutorial.md",
                    "/docs/operators.md",
                    "/docs/supervising.md",
                    "/docs/retraining.md",
                    "/docs/models.md",
                    "/docs/executors.md",
                    "/docs/airflow.md",
                ],
                "tags": ["software"],
            }
        ],
        "connection-types": [
            {
                "connection-type": "wasmline",
                "hook-class-name": "wasmline_provider.hooks.wasmline.WasmlineHook",
                "hook-name": name,
                "ui-field-behaviour": {
                    "hidden-fields": ["host", "schema", "login", "password", "port"],
                    "relabeling": {},
                    "placeholders": {field: examples[0] for field, (_, _, examples) in CONNECTION_FIELDS.items()},
                },
                "conn-fields": {
                    field: {
                        "label": label,
                        "description": description,
                        "schema": {"type": ["string", "null"], "examples": examples},
                    }
                    for field, (label, description, examples) in CONNECTION_FIELDS.items()
                },
            }
        ],
        "config": {
            "wasmline": {
                "description": "The page of Wasmline in Airflow's UI.",
                "options": {
                    "kafka_conn_id": {
                        "description": "The connection of the cluster that the page shows.",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": None,
                        "default": "kafka_default",
                    },
                    "wasmline_conn_id": {
                        "description": "The connection with the registries of modules and models that the page shows.",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": None,
                        "default": "wasmline_default",
                    },
                    "page_payloads": {
                        "description": "Whether the page shows keys, values and headers of records to whoever may "
                        "read it.",
                        "version_added": "0.1.0",
                        "type": "boolean",
                        "example": None,
                        "default": "True",
                    },
                    "page_action_permission": {
                        "description": "A custom view of the auth manager on which PUT permits all actions of the "
                        "page, also to users who may not edit DAGs. The simple auth manager has none.",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "Wasmline",
                        "default": "",
                    },
                },
            }
        },
        "plugins": [{"name": "wasmline", "plugin-class": "wasmline_provider.plugin.WasmlinePlugin"}],
        "extra-links": ["wasmline_provider.links.JobStatusLink", "wasmline_provider.links.SparkUiLink"],
        "asset-uris": [
            {
                "schemes": [scheme],
                "handler": "wasmline_provider.asset_uris.sanitize_uri",
                "factory": f"wasmline_provider.asset_uris.{factory}",
                "to_openlineage_converter": "wasmline_provider.asset_uris.to_openlineage_dataset",
            }
            for scheme, factory in (("wasm", "transform_asset"), ("model", "model_asset"))
        ],
        "operators": [
            {
                "integration-name": name,
                "python-modules": [
                    "wasmline_provider.operators.build",
                    "wasmline_provider.operators.check_streams",
                    "wasmline_provider.operators.cluster_views",
                    "wasmline_provider.operators.deploy",
                    "wasmline_provider.operators.job",
                    "wasmline_provider.operators.job_actions",
                    "wasmline_provider.operators.model",
                    "wasmline_provider.operators.modules",
                    "wasmline_provider.operators.multiple_outputs",
                    "wasmline_provider.operators.redrive",
                    "wasmline_provider.operators.stream",
                    "wasmline_provider.operators.user_action",
                ],
            }
        ],
        "sensors": [{"integration-name": name, "python-modules": ["wasmline_provider.sensors.deployment"]}],
        "hooks": [
            {
                "integration-name": name,
                "python-modules": [
                    "wasmline_provider.hooks.kafka",
                    "wasmline_provider.hooks.spark",
                    "wasmline_provider.hooks.wasmline",
                ],
            }
        ],
        "triggers": [
            {
                "integration-name": name,
                "python-modules": [
                    "wasmline_provider.triggers.dead_stream",
                    "wasmline_provider.triggers.job",
                    "wasmline_provider.triggers.new_records",
                    "wasmline_provider.triggers.polling",
                    "wasmline_provider.triggers.retrain",
                ],
            }
        ],
    }
