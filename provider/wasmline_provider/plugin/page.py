"""The page: the state of its cluster, and what requests have read of topics and registries."""

from __future__ import annotations

import re
import threading
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wasmline.background_call import BackgroundCall
from wasmline.clock import now_ms
from wasmline.control import ClusterState, Deployment, RetrainStatus
from wasmline.control.minute_lines import MINUTE_MS, minutes
from wasmline.documents import encode
from wasmline.errors import BrokerUnavailable, TopicNotFound, VersionNotFound
from wasmline_provider.hooks.kafka import KafkaHook
from wasmline_provider.hooks.wasmline import Locations, WasmlineHook
from wasmline_provider.plugin.actions import ActionContext, RedriveCalls
from wasmline_provider.plugin.background_reads import BackgroundReads, ReadResult
from wasmline_provider.plugin.cluster_documents import (
    job_details,
    job_row,
    line_document,
    run_document,
    transform_details,
    transform_row,
)
from wasmline_provider.plugin.cluster_reader import ClusterReader, ClusterReading, Follower
from wasmline_provider.plugin.model_documents import ModelSource, trigger_document, with_live_errors, with_trigger
from wasmline_provider.plugin.record_documents import newest_dead_letters, read_provenance
from wasmline_provider.plugin.row_cache import RowCache
from wasmline_provider.plugin.settings import PageSettings
from wasmline_provider.plugin.shown_topics import dead_letter_topics_of, shown_topics

if TYPE_CHECKING:
    from wasmline.kafka import KafkaConfig
    from wasmline.redrive import NewestDeadLetters

CURSOR = re.compile(r"([0-9a-f]{8})-([0-9]{1,15})-([0-9a-f]{8})")

MAX_ACTIONS = 4
"""Actions at one moment: the request of each holds one of the threads in which Airflow's API answers."""

ACTION_TIMEOUT_S = 20.0

DEAD_LETTERS_AGE_S = 3.0
VERSIONS_AGE_S = 10.0
MODELS_AGE_S = 10.0
PROVENANCE_AGE_S = 60.0
"""Seconds after which what was read for a request is read again for another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageUser:
    """Who asks, and whether that user may act on what any DAG has made."""

    name: str
    may_act: bool


class Page:
    """The documents of the page. Thread-safe: a request blocks for no cluster and no registry."""

    def __init__(self, settings: PageSettings, open_follower: Callable[[], Follower] | None = None) -> None:
        self.settings = settings
        self.redrives = RedriveCalls()
        self.reader = ClusterReader(open_follower or self._open_follower)
        self._reads = BackgroundReads()
        self._rows = RowCache()
        self._source = ModelSource(settings.wasmline_conn_id)
        self._dead_letters: dict[str, NewestDeadLetters[dict[str, Any]]] = {}
        self._lock = threading.Lock()
        self._actions: list[BackgroundCall[str]] = []

    # -- the cluster -------------------------------------------------------------------------------------------------

    def state(self, cursor: str, user: PageUser) -> dict[str, Any]:
        """Return the rows that have changed since ``cursor``, and all for one of another state.

        A process that still begins to read adds nothing to what another one has answered.
        The models are those of the registry, all or None if they are as they were.
        """
        reading = self.reader.reading
        with self.reader.state() as (identity, state):
            found = CURSOR.fullmatch(cursor)
            since = int(found[2]) if found is not None and found[1] == identity else -1
            knows_less = bool(cursor) and since < 0 and reading.state == "starting"
            is_full = since < state.forgotten and not knows_less
            since = -1 if is_full else state.number if knows_less else since
            transforms = self._rows.changed(identity, state, "transforms", since, transform_row)
            jobs = self._rows.changed(identity, state, "jobs", since, _job_row)
            number, unreadable = state.number, len(state.unreadable)
            deployments, retrains = list(state.deployments.values()), dict(state.retrains)
        models = self._models(deployments, retrains)
        digest = f"{zlib.crc32(encode(models)):08x}"
        return {
            "cursor": cursor if knows_less else f"{identity}-{number}-{digest}",
            "full": is_full,
            "removed": {
                "transforms": [] if is_full else transforms.removed,
                "jobs": [] if is_full else jobs.removed,
            },
            "cluster": {
                "connection": self.settings.kafka_conn_id,
                "state": reading.state,
                "error": reading.error,
                "read_ms": reading.read_ms,
                "unreadable": unreadable,
            },
            "now_ms": now_ms(),
            "user": user.name,
            "may_act": user.may_act,
            "shows_payloads": self.settings.shows_payloads,
            "transforms": transforms.rows,
            "jobs": jobs.rows,
            **models,
            **({"models": None} if found is not None and found[3] == digest else {}),
        }

    def lines(self) -> dict[str, Any]:
        """Return the figures of each transform in the last hour."""
        now = now_ms()
        with self.reader.state() as (_, state):
            lines = {name: line_document(state.line(name, now)) for name in state.deployments}
        return {"minutes": _minutes(now), "transforms": lines}

    def transform(self, name: str) -> dict[str, Any]:
        """Return the page of a transform. Raises DeploymentNotFound."""
        now = now_ms()
        with self.reader.state() as (_, state):
            state.require_deployment(name)
            found = transform_details(state, name, now)
        problem = self.redrives.problem(found["spec"]["dead_letter_topic"])
        return {**found, "lines": {"minutes": _minutes(now), **found["lines"]}, "redrive_problem": problem}

    def logs(self, name: str) -> dict[str, Any]:
        """Return the last log lines of a transform. Raises DeploymentNotFound."""
        with self.reader.state() as (_, state):
            state.require_deployment(name)
            lines, dropped = state.log_lines(name)
        return {"lines": [{"time_ms": each.time_ms, "text": each.text} for each in lines], "dropped": dropped}

    def job(self, name: str) -> dict[str, Any]:
        """Return the page of a job. Raises JobNotFound."""
        with self.reader.state() as (_, state):
            return job_details(state, state.require_job(name))

    def model(self, name: str) -> dict[str, Any]:
        """Return the page of a model. Raises VersionNotFound for an unknown one."""
        with self.reader.state() as (_, state):
            deployments, retrains = list(state.deployments.values()), dict(state.retrains)
        rows, status = self._models(deployments, retrains)["models"], retrains.get(name)
        row = next((each for each in rows if each["model"] == name), None)
        if row is None:
            raise VersionNotFound(f"no model {name!r} is known", name=name, version=None)
        found = self._reads.get("model", name, lambda: self._source.details(name), max_age_s=MODELS_AGE_S)
        known = found.value or {"asset_uri": None, "versions": [], "decisions": []}
        return {
            **_status(found),
            **known,
            "row": row,
            "versions": with_live_errors(known["versions"], status),
            "trigger": None if status is None else trigger_document(status),
        }

    def run(self, dag_id: str, run_id: str, **named: Any) -> dict[str, Any]:
        """Return what a run of a DAG has ordered and changed: see run_document."""
        with self.reader.state() as (_, state):
            return run_document(state, dag_id, run_id, **named)

    # -- topics and registries ---------------------------------------------------------------------------------------

    def dead_letters(self, topic: str) -> dict[str, Any]:
        """Return the newest dead letters of a dead-letter topic. Raises TopicNotFound for a topic that is none."""
        with self.reader.state() as (_, state):
            _require_topic(topic, dead_letter_topics_of(state))
        found = self._reads.get("dead letters", topic, self._letters(topic).read, max_age_s=DEAD_LETTERS_AGE_S)
        return {**_status(found), "letters": found.value or []}

    def record(self, topic: str, partition: int, offset: int) -> dict[str, Any]:
        """Return a record and where it comes from. Raises TopicNotFound for a topic that nothing on record uses."""
        with self.reader.state() as (_, state):
            topics = shown_topics(state)
        _require_topic(topic, topics)
        shows = self.settings.shows_payloads
        found = self._reads.get(
            "record",
            (topic, partition, offset),
            lambda: read_provenance(
                self.kafka(), self._locate(), (topic, partition, offset), topics=topics, shows_payloads=shows
            ),
            max_age_s=PROVENANCE_AGE_S,
        )
        return {**_status(found), "record": found.value}

    def versions(self, name: str) -> dict[str, Any]:
        """Return the published versions of a transform, newest first. Raises DeploymentNotFound."""
        with self.reader.state() as (_, state):
            state.require_deployment(name)

        def read() -> list[str]:
            from wasmline.registry import FilesystemRegistry

            with WasmlineHook(self.settings.wasmline_conn_id).locate(registry=None).opened() as at:
                return FilesystemRegistry(at.registry).versions(name)[::-1]

        found = self._reads.get("versions", name, read, max_age_s=VERSIONS_AGE_S)
        return {**_status(found), "versions": found.value or []}

    def _models(self, deployments: list[Deployment], retrains: Mapping[str, RetrainStatus]) -> dict[str, Any]:
        """Return the rows of all models, as they were read last."""
        found = self._reads.get(
            "models", None, lambda: self._source.rows(deployments), max_age_s=MODELS_AGE_S, waits=False
        )
        rows = [with_trigger(each, retrains.get(each["model"])) for each in found.value or ()]
        return {"models": rows, "models_state": found.state, "models_problem": found.problem}

    def _letters(self, topic: str) -> NewestDeadLetters[dict[str, Any]]:
        """Return the reader of a topic's dead letters: it reads them again only if there are others."""
        known = self._dead_letters.get(topic)
        if known is None:
            known = newest_dead_letters(self.kafka(), topic, shows_payloads=self.settings.shows_payloads)
            self._dead_letters = {**self._dead_letters, topic: known}
        return known

    # -- actions -----------------------------------------------------------------------------------------------------

    def require_connected(self, reading: ClusterReading) -> None:
        """Raise BrokerUnavailable for a cluster that is away: an action would wait for it for long."""
        if reading.state != "connected":
            text = f"the cluster of {self.settings.kafka_conn_id} is {reading.state}: {reading.error or 'try again'}"
            raise BrokerUnavailable(text, bootstrap_servers="")

    def act(self, act: Callable[[], str]) -> str:
        """Do something to the cluster in a thread of its own, and return what was done.

        Raises BrokerUnavailable if it is not done in ACTION_TIMEOUT_S, but goes on; or if MAX_ACTIONS are under way.
        """
        with self._lock:
            self._actions = [each for each in self._actions if not each.wait(0)]
            if len(self._actions) >= MAX_ACTIONS:
                raise BrokerUnavailable(f"{MAX_ACTIONS} actions are under way: try again", bootstrap_servers="")
            self._actions.append(call := BackgroundCall(act))
        if not call.wait(ACTION_TIMEOUT_S):
            text = (
                f"no answer of the cluster for {ACTION_TIMEOUT_S:.0f} s: look whether it was done before you repeat it"
            )
            raise BrokerUnavailable(text, bootstrap_servers="")
        return call.result()

    def action_context(self) -> ActionContext:
        """Return what an action works with. Raises InvalidKafkaConfig."""
        return ActionContext(kafka=self.kafka(), locate=self._locate, redrives=self.redrives)

    def kafka(self) -> KafkaConfig:
        """Return the settings of the cluster, which are read of its connection each time."""
        return KafkaHook(self.settings.kafka_conn_id).get_conn()

    def _locate(self) -> Locations:
        return WasmlineHook(self.settings.wasmline_conn_id).locate(registry=None, models=None)

    def _open_follower(self) -> Follower:
        from wasmline.control import ClusterFollower

        return ClusterFollower(self.kafka())


def _job_row(state: ClusterState, job: str) -> dict[str, Any]:
    return job_row(state.require_job(job))


def _require_topic(topic: str, known: Iterable[str]) -> None:
    if topic not in set(known):
        raise TopicNotFound(f"no transform or job on record reads or writes {topic!r}", topic=topic)


def _status(result: ReadResult) -> dict[str, str]:
    return {"state": result.state, "problem": result.problem}


def _minutes(now: int) -> list[int]:
    return [each * MINUTE_MS for each in minutes(now)]
