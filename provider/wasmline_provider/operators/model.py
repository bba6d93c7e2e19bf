"""Operators that train models, promote them, make them transforms, and roll them back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowSkipException

from wasmline.errors import InvalidTrainSpec
from wasmline_provider.hooks.kafka import KafkaHook
from wasmline_provider.operators.failures import fail_at_once
from wasmline_provider.operators.job import SparkJobOperator
from wasmline_provider.operators.multiple_outputs import MultipleOutputsOperator
from wasmline_provider.operators.slice_bounds import slice_since, slice_until
from wasmline_provider.run_identity import USER_TEMPLATE, run_name

if TYPE_CHECKING:
    from airflow.sdk import Context

    from wasmline.job_specs import JobReport, JobSpec

TOO_LARGE = ("sample", "residuals", "correlations")
"""Data for plots: in the job's report, not in XCom."""

SLICE_KEY = (
    "{{ dag_run.dag_id }}/{{ dag_run.run_id }}{% if ti.map_index >= 0 %}/{{ ti.task_id }}/{{ ti.map_index }}{% endif %}"
)
"""The default ``slice_key``: each task instance of a mapped task has a slice of its own."""


class TrainModelOperator(SparkJobOperator):
    """Trains a model on an exact slice of a topic, stores it as a version, and compares it with the live one.

    Example::

        TrainModelOperator(
            task_id="train",
            job="delivery-eta",
            storage="s3://bucket/wasmline",
            train={
                "model": "delivery-eta",
                "topic": "deliveries.features",
                "models": "s3://bucket/models",
                "fields": {"id": "string", "distance_km": "double", "time_min": "double"},
                "features": ["distance_km"],
                "target": "time_min",
                "identity": "id",
                "windows": ["all", "last 7"],
                "min_new_rows": 500,
            },
            since="previous",
            until="{{ data_interval_end }}",
        )

    Returns ``model``, ``version``, ``digest``, ``size``, ``target``, ``columns``, ``dataset`` with the offsets,
    ``dataset_digest``, ``rows``, ``metrics``, the ``champion`` and ``champion_metrics`` on the same holdout, the gate's
    ``decision`` and ``policy``, ``window`` and ``candidates``, ``slice`` and ``new_rows``, ``warnings``, ``seconds``,
    ``spec_version``, and ``job``, ``run``, ``state`` and ``action``. Nothing is promoted yet. With fewer than
    ``min_new_rows`` usable rows in its slice, the task is skipped. For the other parameters see SparkJobOperator.

    A DAG run that is cleared, or a task that is tried again, trains on the slice that the run recorded first.

    A skipped task pushes the XCom ``skipped``: the ``reason``, and the counts of ``SkipResult``.

    :param train: the fields of ``wasmline.job_specs.TrainSpec``; numbers may be text, as rendered by templates.
    :param since: train on a slice that begins at the end of the one before (``previous``), at the ``beginning`` of the
        topic, or at a time: Unix milliseconds, or a date and time with a UTC offset. None: no slice.
    :param until: where the slice ends: ``now``, a time, or the end offset of each partition.
    :param slice_key: the identity of the run that the slice belongs to; by default its DAG's id and its own, and of a
        mapped task, its task's id and index. Tasks with one key share a slice of a model.
    """

    template_fields: Sequence[str] = (*SparkJobOperator.template_fields, "train", "since", "until", "slice_key")
    template_fields_renderers = {**SparkJobOperator.template_fields_renderers, "train": "json", "until": "json"}
    output_keys = (
        *SparkJobOperator.output_keys,
        *("model", "version", "digest", "size", "target", "columns", "dataset", "dataset_digest", "rows", "metrics"),
        *("champion", "champion_metrics", "decision", "policy", "window", "candidates", "slice", "new_rows"),
        *("warnings", "seconds", "spec_version", "skipped"),
    )

    def __init__(
        self,
        *,
        train: Mapping[str, Any],
        since: Any = None,
        until: Any = "now",
        slice_key: str = SLICE_KEY,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.train = train
        self.since = since
        self.until = until
        self.slice_key = slice_key

    def spec(self, context: Context) -> JobSpec:
        import msgspec

        from wasmline.job_specs import JobSpec, TrainSpec

        train = dict(self.train)
        _require_known(train)
        if self.since is not None:
            since, until = slice_since(self.since), slice_until(self.until)
            train["slice"] = {"run": self.slice_key, "since": since, "until": until}
        elif self.until != "now":
            raise InvalidTrainSpec("until needs since: set since, such as since='previous'", field="slice")
        try:
            training = msgspec.convert(train, TrainSpec, strict=False)
        except msgspec.ValidationError as error:
            raise InvalidTrainSpec(
                f"the training of job {self.job} cannot be ordered: {error}", field="train"
            ) from error
        return JobSpec(job=self.job, run="", storage=self.storage, train=training)

    def is_reusable(self, report: JobReport) -> bool:
        return not report.result.get("skipped")  # more may be new by now

    def result(self, report: JobReport, context: Context) -> dict[str, Any]:
        if report.result.get("skipped"):
            context["ti"].xcom_push("skipped", {"reason": report.message, **report.result})
            raise AirflowSkipException(report.message)
        return {name: value for name, value in report.result.items() if name not in (*TOO_LARGE, "run")}


def _require_known(train: Mapping[str, Any]) -> None:
    """Raise InvalidTrainSpec for a key that TrainSpec does not have."""
    from wasmline.job_specs import TrainSpec

    known = [each.name for each in fields(TrainSpec)]
    for unknown in train.keys() - set(known):
        close = get_close_matches(unknown, known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}"
        raise InvalidTrainSpec(f"train has {unknown!r}, which is no field of TrainSpec; {hint}", field=unknown)


class PromoteModelOperator(MultipleOutputsOperator):
    """Promotes a trained model to champion, or keeps the live one: the decision is recorded with its reason.

    The training measured both on the same held-out rows. If another model was promoted since then, one that was to be
    promoted is compared with that one by the same rules, and decided on anew. The task fails with Conflict after a
    rollback, and if a user decided to promote: the user has not seen the other model, and has to be asked again.

    Example::

        PromoteModelOperator(task_id="promote", trained=train.output, models="s3://bucket/models")

    Returns ``model``, ``version``, ``decision`` (promote or keep), ``reason``, the ``champion`` before, ``live`` after.

    :param trained: the result of TrainModelOperator.
    :param models: the folder or fsspec URL of the model registry.
    :param rejection_reason: why the model is not promoted, such as a user's answer; None or empty for the gate's
        decision.
    :param by: the user who decided on the result of the training; None or empty if no user did. A promotion is then
        that of the user who triggered the run, if there is one.
    """

    template_fields: Sequence[str] = ("trained", "models", "rejection_reason", "by")
    template_fields_renderers = {"trained": "json"}
    output_keys = ("model", "version", "decision", "reason", "champion", "live")
    ui_color = "#e4f7ea"

    def __init__(
        self, *, trained: Any, models: str, rejection_reason: str | None = None, by: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.trained = trained
        self.models = models
        self.rejection_reason = rejection_reason
        self.by = by

    @fail_at_once
    def execute(self, context: Context) -> dict[str, Any]:
        import msgspec

        from wasmline.training import Decision, GatePolicy, Metrics, promote
        from wasmline.training.decision_record import USER
        from wasmline_provider.asset_events import record

        trained = self.trained
        decision = msgspec.convert(trained["decision"], Decision)
        by = self.by or context["dag_run"].triggering_user_name
        if self.rejection_reason:
            decision, by = decision.rejected(USER, self.rejection_reason), self.by
        promotion = promote(
            self.models,
            trained["model"],
            trained["version"],
            decision,
            champion=trained["champion"],
            metrics=msgspec.convert(trained["metrics"], Metrics),
            champion_metrics=msgspec.convert(trained["champion_metrics"], Metrics | None),
            policy=None if self.by else msgspec.convert(trained.get("policy"), GatePolicy | None),
            run=trained["run"],
            by=by or "",
        )
        self.log.info("%s@%s: %s. %s", promotion.model, promotion.version, promotion.decision, promotion.reason)
        result = {
            "model": promotion.model,
            "version": promotion.version,
            "decision": promotion.decision,
            "reason": promotion.reason,
            "champion": promotion.champion,
            "live": promotion.live,
        }
        record(context, self.outlets, {**result, "digest": trained.get("digest"), "metrics": trained["metrics"]})
        return result


class CompileModelOperator(MultipleOutputsOperator):
    """Compiles a model version to a transform, proves that it predicts what XGBoost does, and publishes it.

    The transform has the version of the model. WasmDeployOperator deploys it. A version that is published already is
    proven again: a repeated run changes nothing.

    Example::

        CompileModelOperator(
            task_id="compile",
            models="s3://bucket/models",
            model="delivery-eta",
            version=promote.output["live"],
            registry="s3://bucket/registry",
            input_topic="deliveries.features",
            output_topic="deliveries.eta",
            dead_letter_topic="deliveries.eta.dlq",
        )

    Returns ``name``, ``version``, ``digest`` and ``size_bytes`` of the transform, ``is_new`` (false if it was
    there), the ``model`` with its digest and its dataset's, the ``proof``: the number of records by kind, and
    ``seconds``. Raises
    ModelProofFailed with the first record that differs, InvalidModel, VersionNotFound, VersionExists for another
    transform of that name and version, ToolchainMissing and BuildFailed.

    :param models: the folder or fsspec URL of the model registry.
    :param model: the model's name.
    :param version: its version; None or empty for the champion.
    :param registry: the folder or fsspec URL of the registry of transforms.
    :param input_topic: the topic of the records to predict from, which a deployment reads by default.
    :param output_topic: the topic of predictions.
    :param dead_letter_topic: the topic of records that the model cannot predict from, with their reasons.
    :param transform: the transform's name; None for the model's.
    """

    template_fields: Sequence[str] = (
        "models",
        "model",
        "version",
        "registry",
        "input_topic",
        "output_topic",
        "dead_letter_topic",
        "transform",
    )
    output_keys = ("name", "version", "digest", "size_bytes", "model", "proof", "seconds", "is_new")
    ui_color = "#e4f7ea"

    def __init__(
        self,
        *,
        models: str,
        model: str,
        registry: str,
        input_topic: str,
        output_topic: str,
        dead_letter_topic: str,
        version: str | None = None,
        transform: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.models = models
        self.model = model
        self.version = version
        self.registry = registry
        self.input_topic = input_topic
        self.output_topic = output_topic
        self.dead_letter_topic = dead_letter_topic
        self.transform = transform

    @fail_at_once
    def execute(self, context: Context) -> dict[str, Any]:
        from wasmline.documents import plain
        from wasmline.training import publish_model
        from wasmline_provider.asset_events import record

        published = publish_model(
            models=self.models,
            model=self.model,
            version=self.version or self._champion(),
            registry=self.registry,
            input_topic=self.input_topic,
            output_topic=self.output_topic,
            dead_letter_topic=self.dead_letter_topic,
            transform=self.transform or None,
        )
        self.log.info("%s is %s: %s, %s", published, published.digest, published.model, published.proof)
        result: dict[str, Any] = plain(published)
        record(context, self.outlets, result)
        return result

    def _champion(self) -> str:
        from wasmline.errors import VersionNotFound
        from wasmline.training import PromotionLog

        champion = PromotionLog(self.models).champion(self.model)
        if champion is None:
            raise VersionNotFound(
                f"{self.model} has no champion in {self.models}: promote a version, or name one",
                name=self.model,
                version=None,
            )
        return champion


class RollbackModelOperator(MultipleOutputsOperator):
    """Makes an earlier version of a model the champion, and deploys its module in place of the one that serves.

    The deployment keeps its topics, environment and limits. The decision, the reason and the user are recorded in the
    model's history. A run that failed halfway is completed when its task is tried again or cleared, and a run that
    succeeded changes nothing more. Of a rollback and a promotion at the same time one fails with Conflict.

    Example::

        RollbackModelOperator(
            task_id="rollback",
            model="delivery-eta",
            models="s3://bucket/models",
            registry="s3://bucket/registry",
            reason="{{ params.reason }}",
        )

    Returns ``model``, ``version``, the ``champion`` before, ``reason``, ``by``, ``number`` of the decision, and the
    ``deployments`` that were moved, with ``name`` and ``generation``. Raises InvalidRollback, DeploymentNotFound, and
    the errors of CompileModelOperator and WasmDeployOperator.

    :param model: the model's name.
    :param models: the folder or fsspec URL of the model registry.
    :param registry: the folder or fsspec URL of the registry of transforms.
    :param reason: why; required.
    :param version: the version to return to; None or empty for the champion before the current one.
    :param kafka_conn_id: Airflow's connection to the cluster.
    :param by: the user who decides; by default the one who triggered the run, else the task's owner.
    """

    template_fields: Sequence[str] = ("model", "models", "registry", "reason", "version", "kafka_conn_id", "by")
    output_keys = ("model", "version", "champion", "reason", "by", "number", "deployments")
    ui_color = "#e4f7ea"

    def __init__(
        self,
        *,
        model: str,
        models: str,
        registry: str,
        reason: str,
        version: str | None = None,
        kafka_conn_id: str = KafkaHook.default_conn_name,
        by: str = USER_TEMPLATE,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.model = model
        self.models = models
        self.registry = registry
        self.reason = reason
        self.version = version
        self.kafka_conn_id = kafka_conn_id
        self.by = by

    @fail_at_once
    def execute(self, context: Context) -> dict[str, Any]:
        from wasmline.training import plan_rollback, roll_back
        from wasmline_provider.asset_events import record

        kafka = KafkaHook(self.kafka_conn_id).get_conn()
        run = run_name(context)
        plan = plan_rollback(self.model, models=self.models, kafka=kafka, version=self.version or None, run=run)
        self.log.info("%s: %s replaces the champion %s", plan.model, plan.version, plan.champion)
        done = roll_back(
            plan,
            models=self.models,
            registry=self.registry,
            kafka=kafka,
            reason=self.reason,
            by=self.by,
            run=run,
        )
        result = {
            "model": plan.model,
            "version": plan.version,
            "champion": plan.champion,
            "reason": done.promotion.reason,
            "by": done.promotion.by,
            "number": done.promotion.number,
            "deployments": [{"name": each.spec.name, "generation": each.generation} for each in done.deployments],
        }
        record(context, self.outlets, result)
        return result


class CheckModelServingOperator(MultipleOutputsOperator):
    """Fails with ModelNotServing unless a model's champion is what its deployments run, byte for byte.

    Example::

        CheckModelServingOperator(
            task_id="check",
            model="delivery-eta",
            models="s3://bucket/models",
            registry="s3://bucket/registry",
        )

    Returns the ``champion`` and an ``explanation``.

    :param model: the model's name.
    :param models: the folder or fsspec URL of the model registry.
    :param registry: the folder or fsspec URL of the registry of transforms.
    :param transform: the transform that serves the model; None for the model's name.
    :param kafka_conn_id: Airflow's connection to the cluster.
    """

    template_fields: Sequence[str] = ("model", "models", "registry", "transform", "kafka_conn_id")
    output_keys = ("champion", "explanation")
    ui_color = "#e4f7ea"

    def __init__(
        self,
        *,
        model: str,
        models: str,
        registry: str,
        transform: str | None = None,
        kafka_conn_id: str = KafkaHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.model = model
        self.models = models
        self.registry = registry
        self.transform = transform
        self.kafka_conn_id = kafka_conn_id

    @fail_at_once
    def execute(self, context: Context) -> dict[str, Any]:
        from wasmline.control import read_deployments
        from wasmline.training import model_serving, require_serving

        serving = model_serving(
            self.model,
            models=self.models,
            registry=self.registry,
            deployments=read_deployments(KafkaHook(self.kafka_conn_id).get_conn()),
            transform=self.transform or None,
        )
        require_serving(serving)
        return {"champion": str(serving.facts.champion), "explanation": serving.explanation}
