"""Operator that deploys a published version on its topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from airflow.sdk.exceptions import AirflowFailException

from wasmline.errors import Conflict, InvalidRollback, InvalidSpec, VersionNotFound
from wasmline_provider.argument_checks import (
    given,
    given_number,
    is_final,
    is_true,
    require_flags,
    require_locations,
    require_mapping,
    require_names,
    require_numbers,
    require_text,
    require_texts,
    require_version,
)
from wasmline_provider.hooks.kafka import KafkaHook
from wasmline_provider.hooks.wasmline import Locations, WasmlineHook
from wasmline_provider.operators.failures import fail_at_once
from wasmline_provider.operators.multiple_outputs import MultipleOutputsOperator
from wasmline_provider.operators.user_action import UserActionOperator
from wasmline_provider.run_identity import USER_TEMPLATE, change_cause, run_name

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

    from wasmline.control import ChangeCause, Deployment, DeploymentSpec
    from wasmline.kafka import KafkaConfig
    from wasmline.registry import Version

DEPLOYMENT_KEYS = (
    *("name", "version", "digest", "generation", "state"),
    *("input_topic", "output_topics", "dead_letter_topic"),
)
"""The keys of a result that is a deployment."""

CLOCKS = ("wasmline", "redpanda")

SCHEMA_FIELDS = ("id", "definition", "format", "subject", "version")
"""The fields of ``wasmline.wasm.Schema``, which is not loaded when a DAG is parsed."""


class WasmDeployOperator(MultipleOutputsOperator):
    """Deploys ``name@version``: jobs that run ``name`` switch to it at their next batch.

    Topics, environment and limits default to those of the version's own ``transform.yaml``. The topics must exist. Of
    several concurrent deployers one wins, and the others fail with Conflict, without a retry. A task that is tried
    again or cleared after its deployment was made returns that generation, also if it was paused since; it fails with
    Conflict if another one was deployed since, such as by a rollback.

    Example::

        WasmDeployOperator(
            task_id="deploy",
            name="delivery-distance",
            version=publish.output["version"],
            env={"REGION": "south"},
        )

    Returns ``name``, ``version``, ``digest``, ``generation``, ``state``, ``input_topic``, ``output_topics``,
    ``dead_letter_topic``, and ``is_new``: whether this run of the DAG has made the generation. It has not if the same
    specification was deployed already.

    :param name: the transform, which is also the deployment's name.
    :param version: the published version; None for the latest.
    :param registry: the folder or fsspec URL of the registry; None for that of the connection.
    :param kafka_conn_id: Airflow's connection to the cluster.
    :param input_topic: the topic to read, if it is not the project's.
    :param output_topics: the topics to write, in the order in which the guest numbers them.
    :param dead_letter_topic: the topic of records that the host dead-letters.
    :param env: environment variables of the guest, over those of the project.
    :param schemas: the guest's schema registry, each schema by the fields of ``wasmline.wasm.Schema``: ``id``,
        ``definition``, ``format``, and optionally ``subject`` and ``version``.
    :param clock: the rule of the guest's monotonic clock, ``wasmline`` or ``redpanda``.
    :param provenance: add a header to each output that names its input record, module and model.
    :param max_failure_share: the share of failing records above which the deployment is paused.
    :param expected_generation: deploy only over this generation (0: none yet); None deploys over any.
    :param champion_only: of a compiled model, deploy the champion only: a version that is not it any more fails with
        Conflict, also when the task is late, tried again or cleared. By default only if ``models`` is given.
    :param models: the folder or fsspec URL of the model registry with the champion, which makes ``champion_only`` true;
        None for that of the connection.
    :param wasmline_conn_id: Airflow's connection with the URLs that are not given, and the login to their store.
    :param reason: why; kept in the history of the deployment.
    :param by: the user of the history; by default the one who triggered the run, else the task's owner.
    """

    template_fields: Sequence[str] = (
        "name",
        "version",
        "registry",
        "kafka_conn_id",
        "input_topic",
        "output_topics",
        "dead_letter_topic",
        "env",
        "expected_generation",
        "champion_only",
        "models",
        "wasmline_conn_id",
        "reason",
        "by",
    )
    template_fields_renderers = {"env": "json"}
    output_keys = (*DEPLOYMENT_KEYS, "is_new")
    ui_color = "#e9e4fd"

    def __init__(
        self,
        *,
        name: str,
        registry: str | None = None,
        version: str | None = None,
        kafka_conn_id: str = KafkaHook.default_conn_name,
        input_topic: str | None = None,
        output_topics: Sequence[str] | None = None,
        dead_letter_topic: str | None = None,
        env: Mapping[str, str] | None = None,
        schemas: Sequence[Mapping[str, Any]] = (),
        clock: Literal["wasmline", "redpanda"] = "wasmline",
        provenance: bool = True,
        max_failure_share: float = 0.5,
        expected_generation: int | str | None = None,
        champion_only: bool | str | None = None,
        models: str | None = None,
        wasmline_conn_id: str = WasmlineHook.default_conn_name,
        reason: str = "",
        by: str = USER_TEMPLATE,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.name = name
        self.version = version
        self.registry = registry
        self.kafka_conn_id = kafka_conn_id
        self.input_topic = input_topic
        self.output_topics = output_topics
        self.dead_letter_topic = dead_letter_topic
        self.env = env
        self.schemas = schemas
        self.clock = clock
        self.provenance = provenance
        self.max_failure_share = max_failure_share
        self.expected_generation = expected_generation
        self.champion_only = champion_only
        self.models = models
        self.wasmline_conn_id = wasmline_conn_id
        self.reason = reason
        self.by = by
        require_locations(InvalidSpec, registry=registry, models=given(models))
        self._check()

    def _check(self) -> None:
        """Reject what cannot be deployed, as far as it is known. Raises InvalidSpec, InvalidReference."""
        require_text(InvalidSpec, name=self.name)
        topics = {"input_topic": self.input_topic, "dead_letter_topic": self.dead_letter_topic}
        require_names(InvalidSpec, name=self.name, **topics)
        require_texts(InvalidSpec, output_topics=self.output_topics)
        require_mapping(InvalidSpec, str, env=self.env)
        require_version(self.version)
        if given(self.champion_only) is not None:
            require_flags(InvalidSpec, champion_only=self.champion_only)
            if is_final([self.champion_only, self.models]) and given(self.models) and not is_true(self.champion_only):
                raise InvalidSpec("models is given and champion_only is False: leave out one of them")
        require_numbers(InvalidSpec, 0, kind=int, expected_generation=self.expected_generation)
        require_numbers(InvalidSpec, 0, 1, max_failure_share=self.max_failure_share)
        if self.clock not in CLOCKS:
            raise InvalidSpec(f"clock is {self.clock!r}: one of {', '.join(CLOCKS)}")
        for schema in self.schemas:
            if unknown := schema.keys() - SCHEMA_FIELDS:
                raise InvalidSpec(
                    f"a schema has {', '.join(sorted(unknown))}: its fields are {', '.join(SCHEMA_FIELDS)}"
                )
            if missing := {"id", "definition", "format"} - schema.keys():
                raise InvalidSpec(f"a schema has no {', '.join(sorted(missing))}")

    @fail_at_once
    def execute(self, context: Context) -> dict[str, Any]:
        from wasmline.control import HistoryTopic
        from wasmline.registry import FilesystemRegistry
        from wasmline_provider.asset_events import record

        self._check()
        with self._locations().opened() as at:
            published, wasm = FilesystemRegistry(at.registry).load(self.name, given(self.version))
            kafka, wanted = KafkaHook(self.kafka_conn_id).get_conn(), self._spec(published)
            try:
                deployment = self._deploy(context, kafka, wanted, wasm, at.models if self._is_champion_only else None)
            except Conflict as error:  # another try would replace what was deployed meanwhile
                raise AirflowFailException(f"{type(error).__name__}: {error}") from error
        spec = deployment.spec
        self.log.info("%s is deployed as generation %d: %s", published, deployment.generation, " → ".join(spec.topics))
        generations = HistoryTopic(kafka).generations(spec.name)
        makers = [each.events[0].cause.run for each in generations if each.number == deployment.generation]
        result = {**_result(deployment), "is_new": makers == [run_name(context)]}
        record(context, self.outlets, result)
        return self._returns(result)

    def _lineage(self, result: Mapping[str, Any] | None) -> OperatorLineage[Any, Any]:
        from wasmline_provider.openlineage.module_lineage import deploy_lineage

        return deploy_lineage(self, result)

    def _deploy(
        self, context: Context, kafka: KafkaConfig, wanted: DeploymentSpec, wasm: bytes, models: str | None
    ) -> Deployment:
        """``models``: the model registry whose champion this has to be; None for any."""
        from wasmline.control import deploy, find_deploy

        expected, cause = given_number(self.expected_generation), change_cause(context, self.reason, self.by)
        made = find_deploy(kafka, wanted, cause.run)
        if models is not None:
            from wasmline.training import deploy_champion, require_champion

            if made is not None:
                require_champion(models, wanted)
                return made
            return deploy_champion(kafka, wanted, wasm, models=models, expected_generation=expected, cause=cause)
        return made or deploy(kafka, wanted, wasm, expected_generation=expected, cause=cause)

    @property
    def _is_champion_only(self) -> bool:
        return given(self.models) is not None or is_true(self.champion_only)

    def _locations(self) -> Locations:
        urls = {"registry": given(self.registry)}
        if self._is_champion_only:
            urls["models"] = given(self.models)
        return WasmlineHook(self.wasmline_conn_id).locate(**urls)

    def _spec(self, published: Version) -> DeploymentSpec:
        """Return the specification: the project's declaration, overridden by the operator's parameters."""
        from wasmline.control import DeploymentSpec
        from wasmline.wasm import Schema

        return DeploymentSpec.of(
            published,
            input_topic=self.input_topic,
            output_topics=tuple(self.output_topics) if self.output_topics else None,
            dead_letter_topic=self.dead_letter_topic,
            env={**published.metadata.transform.get("env", {}), **self.env} if self.env else None,
            max_failure_share=self.max_failure_share,
            schemas=tuple(Schema(**schema) for schema in self.schemas),
            clock=self.clock,
            provenance=self.provenance,
        )


class WasmRollbackOperator(MultipleOutputsOperator):
    """Deploys an earlier generation of a transform again, with its topics, environment and limits.

    Jobs that run the transform switch to it at their next batch, and continue at their committed offsets. A task that
    is tried again or cleared after its rollback was made returns that generation. It fails without a retry, with
    Conflict, if another one was deployed since; so a run of a DAG has one such task for a transform.

    Example::

        WasmRollbackOperator(task_id="rollback", name="delivery-distance", reason="{{ params.reason }}")

    Returns of the new generation ``name``, ``version``, ``digest``, ``generation``, ``state``, ``input_topic``,
    ``output_topics`` and ``dead_letter_topic``.

    :param name: the transform.
    :param reason: why; required, and kept in the history of the deployment.
    :param version: the version to deploy again, as it was deployed last; None or empty for the generation before the
        current one, or, if the current one was made by a rollback, the one before the generation that it restored.
    :param generation: the generation to deploy again, instead of a version.
    :param expected_generation: the generation to replace; if another one is current when the task runs or is tried
        again, the task fails with Conflict. None replaces any.
    :param pause_if_refused: pause ``expected_generation`` if there is none before it, or that cannot be deployed again.
    :param kafka_conn_id: Airflow's connection to the cluster.
    :param by: the user of the history; by default the one who triggered the run, else the task's owner.
    """

    template_fields: Sequence[str] = (
        "name",
        "reason",
        "version",
        "generation",
        "expected_generation",
        "kafka_conn_id",
        "by",
    )
    output_keys = DEPLOYMENT_KEYS
    ui_color = "#e9e4fd"

    def __init__(
        self,
        *,
        name: str,
        reason: str,
        version: str | None = None,
        generation: int | str | None = None,
        expected_generation: int | str | None = None,
        pause_if_refused: bool = False,
        kafka_conn_id: str = KafkaHook.default_conn_name,
        by: str = USER_TEMPLATE,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.pause_if_refused = pause_if_refused
        self.name = name
        self.reason = reason
        self.version = version
        self.generation = generation
        self.expected_generation = expected_generation
        self.kafka_conn_id = kafka_conn_id
        self.by = by
        self._check()

    def _check(self) -> None:
        """Reject what cannot be rolled back, as far as it is known. Raises InvalidSpec, InvalidReference."""
        require_text(InvalidSpec, name=self.name, reason=self.reason)
        require_names(InvalidSpec, name=self.name)
        require_version(self.version)
        require_numbers(
            InvalidSpec, 1, kind=int, generation=self.generation, expected_generation=self.expected_generation
        )
        if is_final((self.version, self.generation)) and given(self.version) and given(self.generation):
            raise InvalidSpec(f"version {self.version} and generation {self.generation}: name one of them")
        if self.pause_if_refused and self.expected_generation is None:
            raise InvalidSpec("pause_if_refused needs expected_generation, the generation to pause")

    @fail_at_once
    def execute(self, context: Context) -> dict[str, Any]:
        from wasmline_provider.asset_events import record

        self._check()
        try:
            deployment = self._roll_back(context)
        except Conflict as error:  # another try would replace what was deployed meanwhile
            raise AirflowFailException(f"{type(error).__name__}: {error}") from error
        except (InvalidRollback, VersionNotFound) as error:
            if not self.pause_if_refused:
                raise
            self.log.warning("%s is paused: %s", self.name, error)
            deployment = self._pause(context)
        spec = deployment.spec
        self.log.info(
            "%s is at %s, generation %d, %s", spec.name, spec.version, deployment.generation, deployment.state
        )
        result = _result(deployment)
        record(context, self.outlets, result)
        return self._returns(result)

    def _lineage(self, result: Mapping[str, Any] | None) -> OperatorLineage[Any, Any]:
        from wasmline_provider.openlineage.module_lineage import rollback_lineage

        return rollback_lineage(self, result)

    def _roll_back(self, context: Context) -> Deployment:
        from wasmline.control import find_rollback, plan_deployment_rollback, roll_back_deployment

        kafka = KafkaHook(self.kafka_conn_id).get_conn()
        replaced = given_number(self.expected_generation)
        if (made := find_rollback(kafka, self.name, run_name(context), replaced=replaced)) is not None:
            return made
        plan = plan_deployment_rollback(
            kafka,
            self.name,
            version=given(self.version),
            generation=given_number(self.generation),
            expected_generation=replaced,
        )
        if plan.target.state == "paused":
            self.log.warning("generation %d was paused: %s", plan.target.generation, plan.target.reason)
        return roll_back_deployment(kafka, plan, cause=change_cause(context, self.reason, self.by))

    def _pause(self, context: Context) -> Deployment:
        """Pause the expected generation as a run does that finds it at fault."""
        from contextlib import closing

        from wasmline.control import DeploymentTopic

        with closing(DeploymentTopic(KafkaHook(self.kafka_conn_id).get_conn())) as deployments:
            current = deployments.get(self.name)
            if current.generation == given_number(self.expected_generation):
                deployments.pause_generation(current, str(self.reason), run=run_name(context))
            return deployments.get(self.name)


class _TransformActionOperator(UserActionOperator):
    """Base of the operators that pause and resume a transform."""

    template_fields: Sequence[str] = ("name", *UserActionOperator.template_fields)
    output_keys = DEPLOYMENT_KEYS
    ui_color = "#e9e4fd"
    action: Literal["pause", "resume"]

    def __init__(self, *, name: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_text(InvalidSpec, name=name)
        require_names(InvalidSpec, name=name)
        self.name = name

    def _act(self, config: KafkaConfig, cause: ChangeCause) -> dict[str, Any]:
        from contextlib import closing

        from wasmline.control import DeploymentTopic, HistoryTopic

        events = (event for each in HistoryTopic(config).generations(self.name) for event in each.events)
        is_done = any((event.action, event.cause.run) == (self.action, cause.run) for event in events)
        with closing(DeploymentTopic(config)) as deployments:
            if is_done:
                deployment = deployments.get(self.name)
            elif self.action == "pause":
                deployment = deployments.pause(self.name, cause.reason, by=cause.by, run=cause.run)
            else:
                deployment = deployments.resume(self.name, cause=cause)
        return _result(deployment)


class WasmPauseOperator(_TransformActionOperator):
    """Pauses a transform: its jobs start no further batch or lease, and wait.

    Example::

        WasmPauseOperator(task_id="pause", name="delivery-distance", reason="{{ params.reason }}")

    Returns of the current generation ``name``, ``version``, ``digest``, ``generation``, ``state``, ``input_topic``,
    ``output_topics`` and ``dead_letter_topic``.

    :param name: the transform.
    :param reason: why; required. ``wasmline list`` shows it, and the history of the deployment keeps it.
    :param kafka_conn_id: Airflow's connection to the cluster.
    :param by: the user of the history; by default the one who triggered the run, else the task's owner.
    """

    action = "pause"


class WasmResumeOperator(_TransformActionOperator):
    """Resumes a paused transform: its jobs continue at their progress.

    Example::

        WasmResumeOperator(task_id="resume", name="delivery-distance", reason="{{ params.reason }}")

    Returns of the current generation ``name``, ``version``, ``digest``, ``generation``, ``state``, ``input_topic``,
    ``output_topics`` and ``dead_letter_topic``.

    :param name: the transform.
    :param reason: why; required, and kept in the history of the deployment.
    :param kafka_conn_id: Airflow's connection to the cluster.
    :param by: the user of the history; by default the one who triggered the run, else the task's owner.
    """

    action = "resume"


def _result(deployment: Deployment) -> dict[str, Any]:
    spec = deployment.spec
    return {
        "name": spec.name,
        "version": spec.version,
        "digest": spec.digest,
        "generation": deployment.generation,
        "input_topic": spec.input_topic,
        "output_topics": list(spec.output_topics),
        "dead_letter_topic": spec.dead_letter_topic,
        "state": deployment.state,
    }
