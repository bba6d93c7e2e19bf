from __future__ import annotations

pytest_plugins = ["wasmline.testing.kafka", "wasmline.testing.spark", "wasmline_provider.testing"]
