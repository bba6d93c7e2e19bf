"""The actions of the page: what each will do, and its doing, by the functions that commands and operators use.

An action is planned from the state that the page shows, and completed with what the plan was made of, such as the
current generation: it fails with Conflict if that has changed meanwhile.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, StringConstraints

from wasmline.background_call import BackgroundCall
from wasmline.control import (
    ChangeCause,
    ClusterState,
    DeadLetterSelection,
    Deployment,
    DeploymentTopic,
    JobTopic,
    stop_job,
)
from wasmline.errors import (
    Conflict,
    InvalidRedrive,
    InvalidRollback,
    InvalidSpec,
    JobBusy,
    TopicNotFound,
)
from wasmline.kafka import KafkaConfig
from wasmline_provider.hooks.wasmline import Locations
from wasmline_provider.plugin.shown_topics import dead_letter_topics_of

ANSWER_S = 1.5
"""Seconds for which a request waits for the end of what it has begun."""

Name = Annotated[str, StringConstraints(min_length=1, max_length=249)]


class ActionRequest(BaseModel):
    """The target of an action."""

    model_config = ConfigDict(extra="forbid")


class PauseRequest(ActionRequest):
    """Pauses or resumes a transform, or a job that runs a function."""

    transform: Name | None = None
    job: Name | None = None
    expected_generation: int | None = None


class RollbackRequest(ActionRequest):
    """Rolls a transform back to a generation; None for the one before."""

    transform: Name
    generation: int | None = None
    expected_generation: int | None = None


class DeployRequest(ActionRequest):
    """Deploys another version of a transform."""

    transform: Name
    version: Name
    expected_generation: int | None = None


class StopRequest(ActionRequest):
    """Stops a run of a job."""

    job: Name
    run: Name | None = None


class RedriveRequest(ActionRequest):
    """Redrives dead letters, to where they come from or through a transform."""

    topic: Name
    transform: Name | None = None
    error: Name | None = None
    through: Name | None = None
    expected_generation: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionPlan:
    """What an action will do. ``fields``: the request that does it; ``problem``: why it cannot be done."""

    title: str
    effects: tuple[str, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionContext:
    """What an action works with. ``locate``: opens the locations of the page's connection."""

    kafka: KafkaConfig
    locate: Callable[[], Locations]
    redrives: RedriveCalls


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """An action: its request, its plan and its doing, which returns what was done as a sentence.

    ``seen``: the field of a request that says what its user has seen, and the field for which that is needed.
    """

    request: type[ActionRequest]
    plan: Callable[[Any, ClusterState], ActionPlan]
    run: Callable[[Any, ActionContext, ChangeCause], str]
    seen: tuple[str, str]

    def require_seen(self, request: ActionRequest) -> None:
        """Raise InvalidSpec for a request that does not say what its user has seen: it would act on anything."""
        field, of = self.seen
        if getattr(request, of) is not None and getattr(request, field) is None:
            raise InvalidSpec(f"{field} is missing: plan the action first")


class RedriveCalls:
    """The redrives that this process makes, one for each dead-letter topic. They go on after their request."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[str, BackgroundCall[str]] = {}
        self._problems: dict[str, str] = {}

    def begin(self, topic: str, call: Callable[[], str]) -> str:
        """Begin to redrive a topic; return what was done, or that it goes on. Raises InvalidRedrive, and its errors."""
        with self._lock:
            running = self._calls.get(topic)
            if running is not None and not running.wait(0):
                raise InvalidRedrive(f"dead letters of {topic} are being redriven: wait for the end", topic=topic)
            self._problems.pop(topic, None)
            self._calls[topic] = begun = BackgroundCall(partial(self._run, topic, call))
        return begun.result() if begun.wait(ANSWER_S) else f"the redrive of {topic} has begun"

    def problem(self, topic: str | None) -> str:
        """Return why the last redrive of a topic has failed; "" if it has not."""
        return self._problems.get(topic or "", "")

    def _run(self, topic: str, call: Callable[[], str]) -> str:
        try:
            return call()
        except Exception as error:
            self._problems[topic] = f"{type(error).__name__}: {error}"
            raise


# -- pause and resume ------------------------------------------------------------------------------------------------


def _plan_pause(request: PauseRequest, state: ClusterState) -> ActionPlan:
    what, fields = _target(request, state)
    if request.transform is not None:
        effects: tuple[str, ...] = (
            "Its jobs start no further batch or lease; what runs is finished.",
            "Records wait in the input topic until it is resumed.",
        )
    else:
        effects = ("Its leases end at their next safe point, and its driver waits.", "Its next runs are paused, too.")
    return ActionPlan(title=f"Pause {what}", effects=effects, fields=fields)


def _plan_resume(request: PauseRequest, state: ClusterState) -> ActionPlan:
    what, fields = _target(request, state)
    effects = ("It continues at its progress: what waits in the input topic is processed.",)
    return ActionPlan(title=f"Resume {what}", effects=effects, fields=fields)


def _pause(request: PauseRequest, context: ActionContext, cause: ChangeCause) -> str:
    if request.transform is not None:
        generation = request.expected_generation
        with closing(DeploymentTopic(context.kafka)) as deployments:
            deployments.pause(request.transform, cause.reason, generation=generation, by=cause.by, run=cause.run)
        return f"{request.transform} is paused"
    with closing(JobTopic(context.kafka)) as jobs:
        jobs.pause(str(request.job), cause.reason, cause=cause)
    return f"job {request.job} is paused"


def _resume(request: PauseRequest, context: ActionContext, cause: ChangeCause) -> str:
    if request.transform is not None:
        with closing(DeploymentTopic(context.kafka)) as deployments:
            deployments.resume(request.transform, generation=request.expected_generation, cause=cause)
        return f"{request.transform} is resumed"
    with closing(JobTopic(context.kafka)) as jobs:
        jobs.resume(str(request.job), cause=cause)
    return f"job {request.job} is resumed"


def _target(request: PauseRequest, state: ClusterState) -> tuple[str, dict[str, Any]]:
    """Return what a request is about, in words and as its fields.

    Raises InvalidSpec, DeploymentNotFound, JobNotFound.
    """
    if (request.transform is None) == (request.job is None):
        raise InvalidSpec("name a transform or a job")
    if request.transform is not None:
        current = state.require_deployment(request.transform)
        return request.transform, {"transform": request.transform, "expected_generation": current.generation}
    state.require_job(str(request.job))
    return f"job {request.job}", {"job": request.job}


def _resumption(current: Deployment) -> tuple[str, ...]:
    """Return what a deploy does to a paused deployment."""
    return ("It is paused, and runs again.",) if current.state == "paused" else ()


# -- versions --------------------------------------------------------------------------------------------------------


def _plan_rollback(request: RollbackRequest, state: ClusterState) -> ActionPlan:
    from wasmline.control import plan_rollback_of

    current = state.require_deployment(request.transform)
    try:
        plan = plan_rollback_of(current, state.generations(request.transform), generation=request.generation)
    except InvalidRollback as error:
        return ActionPlan(title=f"Roll back {request.transform}", problem=str(error))
    target = plan.target
    changed = ", ".join(plan.changed_fields)
    return ActionPlan(
        title=f"Roll back {request.transform} to generation {target.generation}",
        effects=(
            f"Version {target.spec.version} becomes generation {current.generation + 1}.",
            f"Version {current.spec.version} is replaced.",
            f"What changes: {changed}.",
            "Its jobs switch at their next batch or lease, and continue at their progress.",
            *_resumption(current),
        ),
        fields={
            "transform": request.transform,
            "generation": target.generation,
            "expected_generation": current.generation,
        },
    )


def _roll_back(request: RollbackRequest, context: ActionContext, cause: ChangeCause) -> str:
    from wasmline.control import plan_deployment_rollback, roll_back_deployment

    plan = plan_deployment_rollback(
        context.kafka,
        request.transform,
        generation=request.generation,
        expected_generation=request.expected_generation,
    )
    made = roll_back_deployment(context.kafka, plan, cause=cause)
    return f"{request.transform} is at generation {made.generation}, version {made.spec.version}"


def _plan_deploy(request: DeployRequest, state: ClusterState) -> ActionPlan:
    current = state.require_deployment(request.transform)
    title = f"Deploy {request.transform}@{request.version}"
    if request.version == current.spec.version:
        return ActionPlan(title=title, problem="this version is deployed: to run it again, resume it")
    return ActionPlan(
        title=title,
        effects=(
            f"It becomes generation {current.generation + 1}, instead of version {current.spec.version}.",
            "What was chosen for the deployment stays, such as its topics; the rest is as the version declares.",
            "Everything stays if the registry lacks the replaced version, beside which that shows.",
            "Its jobs switch at their next batch or lease, and continue at their progress.",
            *_resumption(current),
        ),
        fields={**request.model_dump(), "expected_generation": current.generation},
    )


def _deploy(request: DeployRequest, context: ActionContext, cause: ChangeCause) -> str:
    from wasmline.control import deploy
    from wasmline.errors import VersionNotFound
    from wasmline.registry import FilesystemRegistry

    with closing(DeploymentTopic(context.kafka)) as deployments:
        current = deployments.get(request.transform)
    _require_generation(current, request.expected_generation)
    with context.locate().opened() as at:
        registry = FilesystemRegistry(at.registry)
        version, wasm = registry.load(request.transform, request.version)
        try:
            replaced = registry.get(request.transform, current.spec.version)
        except VersionNotFound:
            replaced = None
        spec = current.spec.with_version(version, replaced)
    if spec.model != current.spec.model:
        raise InvalidSpec(
            f"{version} serves another model than generation {current.generation}: promote it by the training's DAG, "
            "or roll the model back, which change the champion as well"
        )
    made = deploy(context.kafka, spec, wasm, expected_generation=current.generation, cause=cause)
    return f"{request.transform} is at generation {made.generation}, version {made.spec.version}"


# -- jobs ------------------------------------------------------------------------------------------------------------


def _plan_stop(request: StopRequest, state: ClusterState) -> ActionPlan:
    view = state.require_job(request.job)
    return ActionPlan(
        title=f"Stop job {request.job}",
        effects=(
            "Its run ends at its next safe point.",
            "The job stays stopped until a user or a DAG starts it again; the supervising DAG leaves it as it is.",
            "Its progress is kept.",
        ),
        fields={"job": request.job, "run": view.order.spec.run},
    )


def _stop(request: StopRequest, context: ActionContext, cause: ChangeCause) -> str:
    try:
        stop_job(context.kafka, request.job, run=request.run, cause=cause, timeout_s=ANSWER_S)
    except JobBusy:
        return f"job {request.job} is told to stop"
    return f"job {request.job} is stopped"


# -- dead letters ----------------------------------------------------------------------------------------------------


def _plan_redrive(request: RedriveRequest, state: ClusterState) -> ActionPlan:
    what = " ".join(filter(None, (request.error, "dead letters", request.transform and f"of {request.transform}")))
    if request.topic not in dead_letter_topics_of(state):
        raise TopicNotFound(f"no transform or job writes dead letters to {request.topic!r}", topic=request.topic)
    fields = request.model_dump(exclude_none=True)
    if request.through is None:
        where = "Each is written to the topic that it comes from, in the order of its key."
    else:
        current = state.require_deployment(request.through)
        fields["expected_generation"] = current.generation
        where = f"They are processed by version {current.spec.version} of {request.through}, which writes its outputs."
    return ActionPlan(
        title=f"Redrive {what} of {request.topic}",
        effects=(
            where,
            "One that was redriven before is not written again, also if this is repeated.",
            "It takes those that are there when it begins. What cannot be redriven stays pending.",
        ),
        fields=fields,
    )


def _redrive(request: RedriveRequest, context: ActionContext, cause: ChangeCause) -> str:
    from wasmline.redrive import plan_redrive, run_redrive

    def redrive() -> str:
        selection = DeadLetterSelection(transform=request.transform, error=request.error)
        plan = plan_redrive(context.kafka, request.topic, selection, through=request.through)
        _require_generation(plan.deployment, request.expected_generation)
        done = run_redrive(context.kafka, plan, cause=cause, redrive_id=f"page-{uuid.uuid4().hex[:12]}")
        skipped = sum(done.skipped.values())
        return f"{done.dead_letters} dead letters of {done.topic} are redriven" + (
            f"; {skipped} stay pending" if skipped else ""
        )

    return context.redrives.begin(request.topic, redrive)


ACTIONS: Mapping[str, Action] = {
    "pause": Action(request=PauseRequest, plan=_plan_pause, run=_pause, seen=("expected_generation", "transform")),
    "resume": Action(request=PauseRequest, plan=_plan_resume, run=_resume, seen=("expected_generation", "transform")),
    "rollback": Action(
        request=RollbackRequest, plan=_plan_rollback, run=_roll_back, seen=("expected_generation", "transform")
    ),
    "deploy": Action(request=DeployRequest, plan=_plan_deploy, run=_deploy, seen=("expected_generation", "transform")),
    "stop": Action(request=StopRequest, plan=_plan_stop, run=_stop, seen=("run", "job")),
    "redrive": Action(
        request=RedriveRequest, plan=_plan_redrive, run=_redrive, seen=("expected_generation", "through")
    ),
}


def _require_generation(current: Deployment | None, expected: int | None) -> None:
    """Raise Conflict if another generation than ``expected`` is current."""
    if current is not None and expected not in (None, current.generation):
        name = current.spec.name
        text = f"{name} is at generation {current.generation}, not {expected}: nothing was changed"
        raise Conflict(text, name=name, generation=current.generation)
