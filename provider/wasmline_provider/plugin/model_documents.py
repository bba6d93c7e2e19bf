"""The documents of the page about models, as JSON-able values."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from wasmline.control import Deployment, RetrainStatus
from wasmline_provider.asset_uris import model_asset
from wasmline_provider.hooks.wasmline import Locations, WasmlineHook

if TYPE_CHECKING:
    from wasmline.training import DecisionOverview, ModelOverview, ModelReader, ModelVersionOverview

VERSION_FIELDS = ("version", "created_ms", "digest", "rmse", "baseline_rmse", "forward_rmse", "rows", "run")

DECISION_FIELDS = (
    *("number", "decision", "version", "champion", "reason", "refusal", "rmse", "champion_rmse", "by", "run"),
)


class ModelSource:
    """Reads the models of a connection. What was stored is read once, for as long as the connection stays the same."""

    def __init__(self, wasmline_conn_id: str) -> None:
        self._conn_id = wasmline_conn_id
        self._opened: tuple[Locations, ModelReader] | None = None

    def rows(self, deployments: Collection[Deployment]) -> list[dict[str, Any]]:
        """Return the row of each model, without that of its trigger. Raises RegistryUnavailable."""
        _, reader = self._open()
        return [_row(each) for each in reader.read(deployments)]

    def details(self, name: str) -> dict[str, Any]:
        """Return the versions of a model and the decisions on it. Raises RegistryError, UnsupportedSpecVersion."""
        at, reader = self._open()
        return {
            "asset_uri": model_asset(models=at.models, name=name).uri,
            "versions": [_version(each) for each in reader.versions(name)],
            "decisions": [_decision(each) for each in reversed(reader.decisions(name))],
        }

    def _open(self) -> tuple[Locations, ModelReader]:
        from wasmline.training import ModelReader

        at = WasmlineHook(self._conn_id).locate(registry=None, models=None)
        if self._opened is None or self._opened[0] != at:
            with at.opened():
                self._opened = at, ModelReader(at.models, at.registry)
        return self._opened


def trigger_document(status: RetrainStatus) -> dict[str, Any]:
    """Return what the trigger of a model has observed last."""
    return {
        "observed_ms": status.observed_ms,
        "topic": status.topic,
        "new_records": status.new_records,
        "age_s": status.age_s,
        "checks": [{"condition": each.condition, "text": each.text, "is_met": each.is_met} for each in status.checks],
    }


def with_trigger(row: dict[str, Any], status: RetrainStatus | None) -> dict[str, Any]:
    """Return the row of a model with what its trigger has observed last."""
    trigger = None if status is None else {"state_text": status.text, "observed_ms": status.observed_ms}
    return {**row, "trigger": trigger}


def with_live_errors(versions: Sequence[dict[str, Any]], status: RetrainStatus | None) -> list[dict[str, Any]]:
    """Return the versions of a model with the live errors that its trigger has measured."""
    errors = {} if status is None else status.live_errors
    return [{**each, "live_rmse": errors.get(each["version"])} for each in versions]


def _row(model: ModelOverview) -> dict[str, Any]:
    serving = model.serving
    return {
        "model": model.model,
        "champion": model.champion,
        "versions": len(model.versions),
        "rmse": model.rmse,
        "serving": None if serving is None else ("agrees" if serving.agrees else serving.state),
        "serving_text": "" if serving is None else serving.explanation,
        "problem": model.problem,
    }


def _version(version: ModelVersionOverview) -> dict[str, Any]:
    return {name: getattr(version, name) for name in VERSION_FIELDS}


def _decision(decision: DecisionOverview) -> dict[str, Any]:
    return {**{name: getattr(decision, name) for name in DECISION_FIELDS}, "time_ms": decision.decided_ms}
