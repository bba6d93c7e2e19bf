"""Operators that train models, promote them, make them transforms, and roll them back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from airflow.sdk.exceptions import AirflowSkipException

from wasmline.errors import InvalidReference, InvalidTrainSpec, JobFailed, NotEnoughData
from wasmline_provider.argument_checks import (
    conversion_fault,
    given,
    is_final,
    is_true,
    require_flags,
    require_locations,
    require_names,
    require_text,
    require_version,
)
from wasmline_provider.hooks.kafka import KafkaHook
from wasmline_provider.hooks.wasmline import WasmlineHook
from wasmline_provider.operators.failures import fail_at_once
from wasmline_provider.operators.job import SparkJobOperator
from wasmline_provider.operators.multiple_outputs import MultipleOutputsOperator
from wasmline_provider.operators.slice_bounds import slice_since, slice_until
from wasmline_provider.run_identity import USER_TEMPLATE, run_name

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

    from wasmline.job_specs import FieldType, JobReport, JobSpec, TrainSpec

TOO_LARGE = ("sample", "residuals", "correlations")
"""Data for plots: in the job's report, not in XCom."""

SLICE_KEY = (
    "{{ dag_run.dag_id }}/{{ dag_run.run_id }}{% if ti.map_index >= 0 %}/{{ ti.task_id }}/{{ ti.map_index }}{% endif %}"
)
"""The default ``slice_key``: each task instance of a mapped task has a slice of its own."""

NAMES = ("model", "topic", "models")

STRUCTURE = frozenset({"fields", "features", "target", "identity", "categories", "units", "segments"})
"""The arguments that refer to each other."""

TRAINING = (
    *(*NAMES, "fields", "features", "target", "identity", "categories", "units", "where", "since_ms", "offsets"),
    *("seed", "holdout_share", "min_rows", "trees", "depth", "learning_rate", "margin", "segments", "confidence"),
    *("windows", "min_new_rows", "keep_rows", "transform_versions"),
)
"""The parameters that are a TrainSpec's fields."""

SLICE = ("since", "until", "slice_key")


class TrainModelOperator(SparkJobOperator):
    """Trains a model on an exact slice of a topic, stores it as a version, and compares it with the live one.

    Example::

        TrainModelOperator(
            task_id="train",
            job="delivery-eta",
            model="delivery-eta",
            topic="deliveries.features",
            fields={"id": "string", "distance_km": "double", "time_min": "double"},
            features=["distance_km"],
            target="time_min",
            identity="id",
            since="previous",
            until="{{ data_interval_end }}",
            windows=["all", "last 7"],
            min_new_rows=500,
        )

    Returns ``model``, ``version``, ``digest``, ``size``, ``target``, ``columns``, ``dataset`` with the offsets,
    ``dataset_digest``, ``rows``, ``metrics``, the ``champion`` and ``champion_metrics`` on the same holdout, the gate's
    ``decision`` and ``policy``, ``window`` and ``candidates``, ``slice`` and ``new_rows``, ``warnings``, ``seconds``,
    ``spec_version``, and ``job``, ``run``, ``state`` and ``action``. Nothing is promoted yet. With fewer than
    ``min_new_rows`` usable rows in its slice, the task is skipped. For the other parameters see SparkJobOperator.

    A DAG run that is cleared, or a task that is tried again, trains on the slice that the run recorded first.

    A skipped task pushes the XCom ``skipped``: the ``reason``, and, if too few rows were new, the counts of
    ``SkipResult``.

    Numbers may be text, as rendered by templates, and an optional argument that is None, empty or ``None`` has the
    default of ``wasmline.job_specs.TrainSpec``, of which these arguments are the fields. What cannot be trained with
    raises InvalidTrainSpec: when the DAG is parsed, or for templates, when the task runs.

    :param model: the model's name.
    :param topic: the topic of JSON records to train on.
    :param models: the folder or fsspec URL of the model registry; None for that of the connection.
    :param fields: the members of a record to read, and their types: ``double``, ``bigint`` or ``string``.
    :param features: the fields that are the inputs of the model, in the order of its columns.
    :param target: the field that is predicted, a number.
    :param identity: the field that identifies a record: of records with the same identity the first counts.
    :param categories: the values of each text feature, in the order of the model's columns.
    :param units: the units of fields, such as ``km``, for documentation.
    :param where: a SQL condition over the fields that selects usable records.
    :param since_ms: without a slice: train on the records since this Unix time in milliseconds.
    :param offsets: without a slice: train on exactly these, ``{partition: [from, to]}``, half open.
    :param seed: decides, with the identity alone, which records are held out.
    :param holdout_share: the share of rows that are held out, between 0 and 1.
    :param min_rows: fail with NotEnoughData with fewer rows to train on.
    :param trees: the number of trees.
    :param depth: their maximum depth.
    :param learning_rate: the learning rate.
    :param margin: by what share the RMSE has to be below the champion's, beyond noise.
    :param segments: fields of whose values none may get worse.
    :param confidence: the confidence of the gate's intervals, from 0.5 to below 1.
    :param windows: with a slice: train a candidate on ``all`` recorded slices, or on the ``last N``.
    :param min_new_rows: with a slice: skip the task with fewer usable rows in it.
    :param keep_rows: with a slice: keep its records beside the model.
    :param transform_versions: the transforms whose records are trained on: ``any``, the ``newest`` of each, or
        each ``name@version``.
    :param since: train on a slice that begins at the end of the one before (``previous``), at the ``beginning`` of the
        topic, or at a time: Unix milliseconds, or a date and time with a UTC offset. None: no slice.
    :param until: where the slice ends: ``now``, a time, or the end offset of each partition.
    :param slice_key: the identity of the run that the slice belongs to; by default its DAG's id and its own, and of a
        mapped task, its task's id and index. Tasks with one key share a slice of a model.
    :param skip_without_enough_data: skip the task instead of failing it with NotEnoughData, such as in a run that a
        schedule has started before there are ``min_rows``.
    """

    template_fields: Sequence[str] = (*SparkJobOperator.template_fields, *TRAINING, *SLICE, "skip_without_enough_data")
    template_fields_renderers = {
        **SparkJobOperator.template_fields_renderers,
        **dict.fromkeys(("fields", "features", "categories", "units", "offsets", "until"), "json"),
    }
    output_keys = (
        *SparkJobOperator.output_keys,
        *("model", "version", "digest", "size", "target", "columns", "dataset", "dataset_digest", "rows", "metrics"),
        *("champion", "champion_metrics", "decision", "policy", "window", "candidates", "slice", "new_rows"),
        *("warnings", "seconds", "spec_version", "skipped"),
    )
    optional_keys = (*SparkJobOperator.optional_keys, "skipped")

    def __init__(
        self,
        *,
        model: str,
        topic: str,
        fields: Mapping[str, FieldType],
        features: Sequence[str],
        target: str,
        identity: str,
        models: str | None = None,
        categories: Mapping[str, Sequence[str]] | None = None,
        units: Mapping[str, str] | None = None,
        where: str | None = None,
        since_ms: int | str | None = None,
        offsets: Mapping[str, Sequence[int]] | None = None,
        seed: int | str | None = None,
        holdout_share: float | str | None = None,
        min_rows: int | str | None = None,
        trees: int | str | None = None,
        depth: int | str | None = None,
        learning_rate: float | str | None = None,
        margin: float | str | None = None,
        segments: Sequence[str] | None = None,
        confidence: float | str | None = None,
        windows: Sequence[str] | None = None,
        min_new_rows: int | str | None = None,
        keep_rows: bool | str | None = None,
        transform_versions: Literal["any", "newest"] | Sequence[str] | None = None,
        since: Any = None,
        until: Any = "now",
        slice_key: str = SLICE_KEY,
        skip_without_enough_data: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.model = model
        self.topic = topic
        self.models = models
        self.fields = fields
        self.features = features
        self.target = target
        self.identity = identity
        self.categories = categories
        self.units = units
        self.where = where
        self.since_ms = since_ms
        self.offsets = offsets
        self.seed = seed
        self.holdout_share = holdout_share
        self.min_rows = min_rows
        self.trees = trees
        self.depth = depth
        self.learning_rate = learning_rate
        self.margin = margin
        self.segments = segments
        self.confidence = confidence
        self.windows = windows
        self.min_new_rows = min_new_rows
        self.keep_rows = keep_rows
        self.transform_versions = transform_versions
        self.since = since
        self.until = until
        self.slice_key = slice_key
        self.skip_without_enough_data = skip_without_enough_data
        self._check()

    def spec(self, context: Context) -> JobSpec:
        from wasmline.job_specs import JobSpec

        at = self.locations()
        arguments = {name: getattr(self, name) for name in TRAINING} | {"models": at.models}
        return JobSpec(
            job=self.job, run="", storage=at.storage, train=self._training(arguments, self.since, self.until)
        )

    def given_locations(self) -> dict[str, Any]:
        return {**super().given_locations(), "models": self.models}

    def get_job_result(self, external_id: Any, context: Context) -> dict[str, Any]:
        try:
            return super().get_job_result(external_id, context)
        except JobFailed as failed:
            if failed.report.get("error") != NotEnoughData.__name__ or not is_true(self.skip_without_enough_data):
                raise
            context["ti"].xcom_push("skipped", {"reason": str(failed)})
            raise AirflowSkipException(str(failed)) from failed

    def is_reusable(self, report: JobReport) -> bool:
        return not report.result.get("skipped")  # more may be new by now

    def result(self, report: JobReport, context: Context) -> dict[str, Any]:
        if report.result.get("skipped"):
            context["ti"].xcom_push("skipped", {"reason": report.message, **report.result})
            raise AirflowSkipException(report.message)
        return {name: value for name, value in report.result.items() if name not in (*TOO_LARGE, "run")}

    def _lineage(self, result: Mapping[str, Any] | None) -> OperatorLineage[Any, Any]:
        from wasmline_provider.openlineage.model_lineage import train_lineage

        return train_lineage(self, result)

    def _check(self) -> None:
        """Reject what cannot be trained with, as far as it is known before templates are rendered."""
        arguments = {name: getattr(self, name) for name in TRAINING}
        known = {name: value for name, value in arguments.items() if is_final(value)}
        if self.models is None:
            del known["models"]  # it is the connection's, which is not read now
        require_locations(InvalidTrainSpec, models=self.models)
        require_flags(InvalidTrainSpec, skip_without_enough_data=self.skip_without_enough_data)
        if known.keys() >= STRUCTURE:
            since = self.since if is_final(self.since) else "previous"
            self._training(dict.fromkeys(NAMES, "-") | known, since, self.until if is_final(self.until) else "now")

    def _training(self, arguments: Mapping[str, Any], since: Any, until: Any) -> TrainSpec:
        import msgspec

        from wasmline.job_specs import TrainSpec

        since, until = given(since), "now" if given(until) is None else until
        require_text(InvalidTrainSpec, **{name: arguments[name] for name in NAMES})
        require_names(InvalidTrainSpec, model=arguments["model"], topic=arguments["topic"])
        train = {name: value for name, argument in arguments.items() if (value := given(argument)) is not None}
        if since is not None:
            train["slice"] = {"run": self.slice_key, "since": slice_since(since), "until": slice_until(until)}
        elif until != "now":
            raise InvalidTrainSpec("until needs since: set since, such as since='previous'", field="slice")
        try:
            return msgspec.convert(train, TrainSpec, strict=False)
        except msgspec.ValidationError as error:
            raise InvalidTrainSpec(
                f"the training of job {self.job} cannot be ordered: {conversion_fault(error)}", field="train"
            ) from error


class PromoteModelOperator(MultipleOutputsOperator):
    """Promotes a trained model to champion, or keeps the live one: the decision is recorded with its reason.

    The training measured both on the same held-out rows. If another model was promoted since then, one that was to be
    promoted is compared with that one by the same rules, and decided on anew. The task fails with Conflict after a
    rollback, and if a user decided to promote: the user has not seen the other model, and has to be asked again.

    Example::

        PromoteModelOperator(task_id="promote", trained=train.output)

    Returns ``model``, ``version``, ``decision`` (promote or keep), ``reason``, the ``champion`` before, ``live`` after.

    :param trained: the result of TrainModelOperator.
    :param models: the folder or fsspec URL of the model registry; None for that of the connection.
    :param rejection_reason: why the model is not promoted, such as a user's answer; None or empty for the gate's
        decision.
    :param by: the user who decided on the result of the training; None or empty if no user did. A promotion is then
        that of the user who triggered the run, if there is one.
    :param wasmline_conn_id: Airflow's connection with the URLs that are not given, and the login to their store.
    """

    template_fields: Sequence[str] = ("trained", "models", "rejection_reason", "by", "wasmline_conn_id")
    template_fields_renderers = {"trained": "json"}
    output_keys = ("model", "version", "decision", "reason", "champion", "live")
    ui_color = "#e4f7ea"

    def __init__(
        self,
        *,
        trained: Any,
        models: str | None = None,
        rejection_reason: str | None = None,
        by: str | None = None,
        wasmline_conn_id: str = WasmlineHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        require_locations(InvalidReference, models=models)
        self.trained = trained
        self.models = models
        self.rejection_reason = rejection_reason
        self.by = by
        self.wasmline_conn_id = wasmline_conn_id

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
        with WasmlineHook(self.wasmline_conn_id).locate(models=given(self.models)).opened() as at:
            promotion = promote(
                at.models,
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
        return self._returns(result)

    def _lineage(self, result: Mapping[str, Any] | None) -> OperatorLineage[Any, Any]:
        from wasmline_provider.openlineage.model_lineage import promote_lineage

        return promote_lineage(self, result)


class CompileModelOperator(MultipleOutputsOperator):
    """Compiles a model version to a transform, proves that it predicts what XGBoost does, and publishes it.

    The transform has the version of the model. WasmDeployOperator deploys it. A version that is published already is
    proven again: a repeated run changes nothing.

    Example::

        CompileModelOperator(
            task_id="compile",
            model="delivery-eta",
            version=promote.output["live"],
            input_topic="deliveries.features",
            output_topic="deliveries.eta",
            dead_letter_topic="deliveries.eta.dlq",
        )

    Returns ``name``, ``version``, ``digest`` and ``size_bytes`` of the transform, ``is_new`` (false if it was
    there), the ``model`` with its digest and its dataset's, the ``proof``: the number of records by kind, and
    ``seconds``. Raises
    ModelProofFailed with the first record that differs, InvalidModel, VersionNotFound, VersionExists for another
    transform of that name and version, ToolchainMissing and BuildFailed.

    :param models: the folder or fsspec URL of the model registry; None for that of the connection.
    :param model: the model's name.
    :param version: its version; None or empty for the champion.
    :param registry: the folder or fsspec URL of the registry of transforms; None for that of the connection.
    :param input_topic: the topic of the records to predict from, which a deployment reads by default.
    :param output_topic: the topic of predictions.
    :param dead_letter_topic: the topic of records that the model cannot predict from, with their reasons.
    :param transform: the transform's name; None for the model's.
    :param wasmline_conn_id: Airflow's connection with the URLs that are not given, and the login to their store.
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
        "wasmline_conn_id",
    )
    output_keys = ("name", "version", "digest", "size_bytes", "model", "proof", "seconds", "is_new")
    ui_color = "#e4f7ea"

    def __init__(
        self,
        *,
        model: str,
        input_topic: str,
        output_topic: str,
        dead_letter_topic: str,
        models: str | None = None,
        registry: str | None = None,
        version: str | None = None,
        transform: str | None = None,
        wasmline_conn_id: str = WasmlineHook.default_conn_name,
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
        self.wasmline_conn_id = wasmline_conn_id
        topics = {"input_topic": input_topic, "output_topic": output_topic, "dead_letter_topic": dead_letter_topic}
        require_locations(InvalidReference, models=models, registry=registry)
        require_text(InvalidReference, model=model, **topics)
        require_names(InvalidReference, model=model, transform=transform, **topics)
        require_version(version)

    @fail_at_once
    def execute(self, context: Context) -> dict[str, Any]:
        from wasmline.documents import plain
        from wasmline.training import publish_model
        from wasmline_provider.asset_events import record

        locations = WasmlineHook(self.wasmline_conn_id).locate(models=given(self.models), registry=given(self.registry))
        with locations.opened() as at:
            published = publish_model(
                models=at.models,
                model=self.model,
                version=self.version or self._champion(at.models),
                registry=at.registry,
                input_topic=self.input_topic,
                output_topic=self.output_topic,
                dead_letter_topic=self.dead_letter_topic,
                transform=self.transform or None,
            )
        self.log.info("%s is %s: %s, %s", published, published.digest, published.model, published.proof)
        result: dict[str, Any] = plain(published)
        record(context, self.outlets, result)
        return self._returns(result)

    def _lineage(self, result: Mapping[str, Any] | None) -> OperatorLineage[Any, Any]:
        from wasmline_provider.openlineage.model_lineage import compile_lineage

        return compile_lineage(self, result)

    def _champion(self, models: str) -> str:
        from wasmline.errors import VersionNotFound
        from wasmline.training import PromotionLog

        champion = PromotionLog(models).champion(self.model)
        if champion is None:
            raise VersionNotFound(
                f"{self.model} has no champion in {models}: promote a version, or name one",
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
            reason="{{ params.reason }}",
        )

    Returns ``model``, ``version``, the ``champion`` before, ``reason``, ``by``, ``number`` of the decision, and the
    ``deployments`` that were moved, with ``name`` and ``generation``. Raises InvalidRollback, DeploymentNotFound, and
    the errors of CompileModelOperator and WasmDeployOperator.

    :param model: the model's name.
    :param models: the folder or fsspec URL of the model registry; None for that of the connection.
    :param registry: the folder or fsspec URL of the registry of transforms; None for that of the connection.
    :param reason: why; required.
    :param version: the version to return to; None or empty for the champion before the current one.
    :param kafka_conn_id: Airflow's connection to the cluster.
    :param by: the user who decides; by default the one who triggered the run, else the task's owner.
    :param wasmline_conn_id: Airflow's connection with the URLs that are not given, and the login to their store.
    """

    template_fields: Sequence[str] = (
        "model",
        "models",
        "registry",
        "reason",
        "version",
        "kafka_conn_id",
        "by",
        "wasmline_conn_id",
    )
    output_keys = ("model", "version", "champion", "reason", "by", "number", "deployments")
    ui_color = "#e4f7ea"

    def __init__(
        self,
        *,
        model: str,
        reason: str,
        models: str | None = None,
        registry: str | None = None,
        version: str | None = None,
        kafka_conn_id: str = KafkaHook.default_conn_name,
        by: str = USER_TEMPLATE,
        wasmline_conn_id: str = WasmlineHook.default_conn_name,
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
        self.wasmline_conn_id = wasmline_conn_id
        require_locations(InvalidReference, models=models, registry=registry)
        require_text(InvalidReference, model=model, reason=reason)
        require_names(InvalidReference, model=model)
        require_version(version)

    @fail_at_once
    def execute(self, context: Context) -> dict[str, Any]:
        from wasmline.training import plan_rollback, roll_back
        from wasmline_provider.asset_events import record

        kafka = KafkaHook(self.kafka_conn_id).get_conn()
        run = run_name(context)
        locations = WasmlineHook(self.wasmline_conn_id).locate(models=given(self.models), registry=given(self.registry))
        with locations.opened() as at:
            plan = plan_rollback(self.model, models=at.models, kafka=kafka, version=self.version or None, run=run)
            self.log.info("%s: %s replaces the champion %s", plan.model, plan.version, plan.champion)
            done = roll_back(
                plan,
                models=at.models,
                registry=at.registry,
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
        return self._returns(result)

    def _lineage(self, result: Mapping[str, Any] | None) -> OperatorLineage[Any, Any]:
        from wasmline_provider.openlineage.model_lineage import model_rollback_lineage

        return model_rollback_lineage(self, result)


class CheckModelServingOperator(MultipleOutputsOperator):
    """Fails with ModelNotServing unless a model's champion is what its deployments run, byte for byte.

    Example::

        CheckModelServingOperator(task_id="check", model="delivery-eta")

    Returns the ``champion`` and an ``explanation``.

    :param model: the model's name.
    :param models: the folder or fsspec URL of the model registry; None for that of the connection.
    :param registry: the folder or fsspec URL of the registry of transforms; None for that of the connection.
    :param transform: the transform that serves the model; None for the model's name.
    :param kafka_conn_id: Airflow's connection to the cluster.
    :param wasmline_conn_id: Airflow's connection with the URLs that are not given, and the login to their store.
    """

    template_fields: Sequence[str] = (
        "model",
        "models",
        "registry",
        "transform",
        "kafka_conn_id",
        "wasmline_conn_id",
    )
    output_keys = ("champion", "explanation")
    ui_color = "#e4f7ea"

    def __init__(
        self,
        *,
        model: str,
        models: str | None = None,
        registry: str | None = None,
        transform: str | None = None,
        kafka_conn_id: str = KafkaHook.default_conn_name,
        wasmline_conn_id: str = WasmlineHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.model = model
        self.models = models
        self.registry = registry
        self.transform = transform
        self.kafka_conn_id = kafka_conn_id
        self.wasmline_conn_id = wasmline_conn_id
        require_locations(InvalidReference, models=models, registry=registry)
        require_text(InvalidReference, model=model)
        require_names(InvalidReference, model=model, transform=transform)

    @fail_at_once
    def execute(self, context: Context) -> dict[str, Any]:
        from wasmline.control import read_deployments
        from wasmline.training import ModelReader, require_serving

        locations = WasmlineHook(self.wasmline_conn_id).locate(models=given(self.models), registry=given(self.registry))
        with locations.opened() as at:
            serving = ModelReader(at.models, at.registry).serving(
                self.model,
                read_deployments(KafkaHook(self.kafka_conn_id).get_conn()),
                transform=self.transform or None,
            )
        require_serving(serving)
        return {"champion": str(serving.facts.champion), "explanation": serving.explanation}
