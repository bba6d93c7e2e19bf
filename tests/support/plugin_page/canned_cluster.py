"""A made-up cluster as the plugin's API tells of it: rows, details of one thing, plans and results of actions."""

from __future__ import annotations

import time
import zlib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

HOSTILE = "\"><img src=x onerror='window.hacked=1'>\u202egnp.exe\u2066 <script>window.hacked=1</script> ${7*7} /..%2f"
"""A name with markup, bidirectional controls and the letters of a URL."""

LONG = "x" * 10_000

DIGEST = "sha256:" + "4f2a" * 16

ASSET_URI = "file:///srv/models/eta"

DAG, RUN = "retrain_delivery_eta", "scheduled__2026-11-27T00:00:00+00:00"

DEAD_LETTER_REASONS = {
    "GuestTrap: wasm `unreachable` instruction executed": 5,
    "rejected: age is not a number": 2,
    HOSTILE: 1,
    LONG: 1,
}


def now_ms() -> int:
    return int(time.time() * 1000)


def transform(name: str, **fields: Any) -> Json:
    return {
        "name": name, "version": "1.4.0", "digest": DIGEST, "generation": 3, "state": "running", "reason": "",
        "changed_ms": now_ms() - 7_400_000, "model": None, "input_topic": "orders",
        "output_topics": [f"{name}-features"], "dead_letter_topic": f"{name}.dlq",
        "job": name, "condition": "running", "running": 4, "partitions": 4,
        "lag": 120, "rate": 350.5, "dead_letters": 0, "stuck_keys": 0, "lost_offsets": 0, **fields,
    }  # fmt: skip


def job(name: str, **fields: Any) -> Json:
    return {
        "job": name, "run": "run-7", "condition": "running", "wanted": "running", "mode": "parallel",
        "delivery": "exactly_once", "work": f"transform {name}", "transform": name, "message": "", "problem": "",
        "reported_ms": now_ms() - 3_000,
        "started_by": {"dag_id": "delivery_pipeline", "run_id": "manual__2026-11-27T08:00:00+00:00", "task_id": "run"},
        "by": "airflow",
        "spark_ui": "http://10.0.0.5:4040", "hosts": ["worker-1", "worker-2"], "running": 4, "partitions": 4,
        "lag": 120, "rate": 350.5, "in_flight": 18, "retries": 2, "stuck_keys": 0, **fields,
    }  # fmt: skip


def model(name: str, **fields: Any) -> Json:
    return {
        "model": name, "champion": "1.3.0", "versions": 5, "rmse": 4.2137, "serving": "agrees",
        "serving_text": "each deployment runs the champion's module", "problem": "",
        "trigger": {"state_text": "waits: 812 of 5,000 new records", "observed_ms": now_ms() - 41_000}, **fields,
    }  # fmt: skip


def partition(number: int, row: Mapping[str, Any]) -> Json:
    return {
        "partition": number, "topic": row["input_topic"], "job": row["job"], "state": "running",
        "generation": row["generation"], "digest": row["digest"], "offset": 100_000 + number, "lag": number % 7,
        "rate": 11.5, "since_offset": 90_000, "updated_ms": now_ms() - 2_000, "records_in": 10_000 + number,
        "records_out": 9_990, "dead_letters": {"GuestTrap": number % 3}, "in_flight": 2, "retries": 0, "stuck_keys": 0,
        "hangs": 0, "lost_offsets": 0, "host": f"worker-{number % 2 + 1}", "lease": f"round 12, lease {number % 8}",
    }  # fmt: skip


def payload(text: str) -> Json:
    return {"text": text, "base64": None, "bytes": len(text.encode()), "cut": False}


def lines(seed: int) -> Json:
    rate = [300 + 40 * ((minute * 7 + seed) % 11) for minute in range(60)]
    return {
        "rate": [None if 20 <= minute < 24 else each for minute, each in enumerate(rate)],
        "lag": [max(0, 400 - 12 * minute + seed) for minute in range(60)],
        "dead_letters": [(minute + seed) // 20 for minute in range(60)],
    }


def minutes() -> list[int]:
    return [now_ms() // 60_000 * 60_000 - 60_000 * (59 - minute) for minute in range(60)]


@dataclass(slots=True, kw_only=True)
class CannedCluster:
    """The rows of a cluster, changed by tests; each change is told since the cursor before it.

    failing: the status that each request of data is answered with, or 0. chosen: the answer to the approval.
    dags: the operators of each DAG that makes the asset of a model, by DAG; one without any is hidden from the user.
    task_count: how many task instances a run has; Airflow gives a hundred at once.
    jobs_named: how many more jobs the tasks of a run name.
    assigned_users: the ids of the users whom the approval asks, none for everybody; that of the user is 7.
    """

    transforms: dict[str, Json] = field(default_factory=dict)
    jobs: dict[str, Json] = field(default_factory=dict)
    models: dict[str, Json] = field(default_factory=dict)
    state: str = "connected"
    error: str = ""
    read_ms: int | None = field(default_factory=now_ms)
    may_act: bool = True
    may_act_on_eta: bool = False
    models_state: str = "ready"
    unreadable: int = 0
    models_problem: str = ""
    model_problem: str = ""
    redrive_problem: str = ""
    chosen: str = ""
    shows_payloads: bool = True
    failing: int = 0
    dead_letters: int = 3
    dags: dict[str, list[str]] = field(default_factory=lambda: {DAG: ["TrainModelOperator", "PromoteModelOperator"]})
    paused_dags: set[str] = field(default_factory=set)
    task_count: int = 4
    assigned_users: tuple[str, ...] = ()
    jobs_named: int = 0
    large_partitions: int = 0
    _cursor: int = 1
    _told_models: dict[str, Json] = field(default_factory=dict)
    _changed: dict[tuple[str, str], int] = field(default_factory=dict)

    def rows(self, kind: str) -> dict[str, Json]:
        rows: dict[str, Json] = getattr(self, kind)
        return rows

    def change(self, kind: str, name: str, **fields: Any) -> None:
        self._cursor += 1
        self._changed[kind, name] = self._cursor
        self.rows(kind)[name] = {**self.rows(kind)[name], **fields}

    def add(self, kind: str, name: str, row: Json) -> None:
        self._cursor += 1
        self._changed[kind, name] = self._cursor
        self.rows(kind)[name] = row

    def remove(self, kind: str, name: str) -> None:
        self._cursor += 1
        self._changed[kind, name] = self._cursor
        del self.rows(kind)[name]

    def told(self, since: str | None) -> Json:
        """Return api/state."""
        kinds = ("transforms", "jobs")
        is_full = since is None
        after = 0 if since is None else int(since)
        changed = {key for key, cursor in self._changed.items() if cursor > after}
        told = {
            kind: [row for name, row in self.rows(kind).items() if is_full or (kind, name) in changed] for kind in kinds
        }
        removed = {kind: [name for of, name in changed if of == kind and name not in self.rows(kind)] for kind in kinds}
        models = None if not is_full and self.models == self._told_models else list(self.models.values())
        self._told_models = deepcopy(self.models)
        return {
            "cursor": str(self._cursor), "full": is_full, "removed": removed, "now_ms": now_ms(), "user": "alice",
            "may_act": self.may_act, "shows_payloads": self.shows_payloads, **told,
            "models": models,
            "models_state": self.models_state,
            "models_problem": self.models_problem,
            "cluster": {
                "connection": "kafka_default", "state": self.state, "error": self.error, "read_ms": self.read_ms,
                "unreadable": self.unreadable,
            },
        }  # fmt: skip

    def all_lines(self) -> Json:
        """Return api/lines."""
        return {
            "minutes": minutes(),
            "transforms": {name: lines(zlib.crc32(name.encode()) % 97) for name in self.transforms},
        }

    def transform(self, name: str) -> Json | None:
        """Return api/transforms/NAME."""
        row = self.transforms.get(name)
        if row is None:
            return None
        count = self.large_partitions or row["partitions"]
        return {
            "row": row,
            "spec": {
                "input_topic": row["input_topic"], "output_topics": row["output_topics"], "memory_bytes": 67_108_864,
                "cpu_ms_per_record": 3_000, "max_failure_share": 0.1, "compression": None, "provenance": True,
                "clock": "record", "env": ["CITY"],
            },
            "generations": [generation(number, row["generation"]) for number in range(row["generation"], 0, -1)],
            "partitions": [partition(number, row) for number in range(count)],
            "dead_letters": DEAD_LETTER_REASONS if row["dead_letters"] else {},
            "redrives": [redrive(row)] if row["dead_letters"] else [],
            "redrive_problem": self.redrive_problem,
            "may_act": self.may_act or (self.may_act_on_eta and name == "eta"),
            "lines": {"minutes": minutes(), **lines(len(name))},
        }  # fmt: skip

    def letters(self, topic: str) -> Json:
        """Return api/dead-letters/TOPIC."""
        letters = [letter(number, shows_payloads=self.shows_payloads) for number in range(self.dead_letters)]
        return {"state": "ready", "problem": "", "letters": letters[::-1]}

    def job(self, name: str) -> Json | None:
        """Return api/jobs/JOB."""
        row = self.jobs.get(name)
        if row is None:
            return None
        at = {"input_topic": "orders", "job": name, "generation": 3, "digest": DIGEST}
        return {
            "row": row, "may_act": self.may_act, "storage": "/srv/storage", "ordering": "key", "max_concurrency": 64,
            "tasks": 2,
            "trigger_interval": "1 second", "starting_offsets": "earliest", "lease_seconds": 30.0,
            "events": [
                {"action": action, "time_ms": now_ms() - 600_000 * step, "by": "alice", "run": None, "reason": reason}
                for step, (action, reason) in enumerate([("resume", "disk is bigger"), ("pause", "disk is full")])
            ],
            "claim": {"driver": "driver-b1", "run": "run-7", "epoch": 12, "topic": "orders"},
            "launcher": None, "partitions": [partition(number, at) for number in range(4)],
            "report": {
                "state": "running", "message": "", "error": "", "updated_ms": now_ms() - 3_000, "records_in": 10_240,
                "records_out": 10_201, "dead_letters": {"GuestTrap": 5}, "lost_offsets": 0,
                "batches": [{"batch_id": each, "records_in": 350, "duration_ms": 900 + each} for each in range(5)],
            },
        }  # fmt: skip

    def model(self, name: str) -> Json | None:
        """Return api/models/NAME."""
        row = self.models.get(name)
        if row is None:
            return None
        if self.model_problem:
            return {"state": "failed", "problem": self.model_problem, "row": row, "asset_uri": None, "versions": [],
                    "decisions": [], "trigger": None}  # fmt: skip
        return {
            "state": "ready", "problem": "", "row": row, "asset_uri": ASSET_URI,
            "versions": [version(number) for number in range(5)],
            "decisions": [decision(4, "keep", "1.4.0", "the challenger's forward error is not less"),
                          decision(3, "promote", "1.3.0", "RMSE 4.21 is less than 4.43")],
            "trigger": {
                "observed_ms": now_ms() - 41_000, "topic": "features", "new_records": 812, "age_s": 172_800.0,
                "checks": [
                    {"condition": "new records", "text": "812 of 5,000", "is_met": False},
                    {"condition": "drift", "text": "distance_km: 0.04, at most 0.2", "is_met": False},
                    {"condition": "live error", "text": "12 labels of 100", "is_met": None},
                    {"condition": "age", "text": "2 d of 1 d", "is_met": True},
                ],
            },
        }  # fmt: skip

    def record(self, topic: str, partition_number: str, offset: str) -> Json:
        """Return api/records/TOPIC/PARTITION/OFFSET."""
        if partition_number != "0":
            return {"state": "failed", "problem": f"{topic} has no partition {partition_number}", "record": None}
        source = {
            "position": "orders-0@42", "timestamp_ms": now_ms() - 90_000, "error": None, "reason": None, "module": None,
            "model": None, "source": None, "problems": ["the topic keeps no earlier records"],
        }  # fmt: skip
        module = {"name": "eta", "version": "1.4.0", "digest": DIGEST, "language": "c++", "toolchain": "zig 0.17.0",
                  "commit": "6ad0b7f", "problems": []}  # fmt: skip
        of_model = {"name": "eta", "version": "1.3.0", "digest": DIGEST, "topic": "features", "training_rows": 38_112,
                    "rmse": 4.2137, "problems": ["its dataset is gone from the topic"]}  # fmt: skip
        record = {**source, "position": f"{topic}-{partition_number}@{offset}", "module": module, "model": of_model,
                  "source": source, "problems": [], "key": payload("order-1"), "value": payload(HOSTILE)}  # fmt: skip
        return {"state": "ready", "problem": "", "record": record}

    def run(self, dag: str, run: str) -> Json:
        """Return api/runs/DAG/RUN."""
        if run == "nothing":
            return {name: [] for name in ("jobs", "reports", "changes", "transforms", "redrives")}
        report = {"job": "eta", "run": "run-7", "state": "running", "message": "", "error": "", "records_in": 10_240,
                  "records_out": 10_201, "dead_letters": 5, "updated_ms": now_ms() - 3_000}  # fmt: skip
        change = {"transform": "eta", "generation": 3, "version": "1.4.0", "action": "deploy",
                  "time_ms": now_ms() - 7_400_000, "reason": f"run {run} of {dag}"}  # fmt: skip
        return {
            "jobs": [self.jobs["eta"]], "reports": [report], "changes": [change],
            "transforms": [self.transforms["eta"]], "redrives": [],
        }  # fmt: skip

    def assets(self) -> Json:
        """Return api/v2/assets of Airflow."""
        tasks = [{"dag_id": dag, "task_id": task} for dag in self.dags for task in ("train", "promote")]
        other = {"uri": f"{ASSET_URI}-other", "producing_tasks": [{"dag_id": "other", "task_id": "train"}]}
        return {"assets": [{"uri": ASSET_URI, "producing_tasks": tasks}, other], "total_entries": 2}

    def permissions(self, dags: Sequence[str]) -> Json:
        """Return api/permissions."""
        allowed = {dag: {"may_trigger": self.may_act, "may_answer": self.may_act} for dag in dags}
        return {"dags": allowed, "user_id": "7"}

    def dag(self, dag: str) -> Json | None:
        """Return api/v2/dags/DAG of Airflow."""
        return {"dag_id": dag, "is_paused": dag in self.paused_dags} if self.dags.get(dag) else None

    def tasks(self, dag: str) -> Json | None:
        """Return api/v2/dags/DAG/tasks of Airflow."""
        operators = self.dags.get(dag)
        return {"tasks": [{"operator_name": each} for each in operators]} if operators else None

    def approvals(self, dag: str) -> Json | None:
        """Return api/v2/dags/DAG/dagRuns/~/hitlDetails of Airflow: one that waits, and one whose task was cleared."""
        if not self.dags.get(dag):
            return None
        waiting = [] if self.chosen or dag != DAG else [approval(dag, "Promote eta@1.4.0?")]
        waiting = [{**each, "assigned_users": [{"id": user} for user in self.assigned_users]} for each in waiting]
        cleared = {**approval(dag, "An earlier question"), "task_instance": {"state": "failed"}}
        return {"hitl_details": [*waiting, cleared], "total_entries": 2}

    def task_instances(self, query: Mapping[str, Sequence[str]]) -> Json:
        """Return api/v2/dags/DAG/dagRuns/RUN/taskInstances of Airflow, of which the last ones name something."""
        fields = [("build", "WasmBuildOperator", {"project": "eta"}), ("deploy", "WasmDeployOperator", {"name": "eta"}),
                  ("stream", "SparkStreamOperator", {"job": "eta", "transform": "eta"}),
                  ("other", "BashOperator", {"name": "no transform"})]  # fmt: skip
        found = [
            {"task_id": task, "operator_name": operator, "rendered_fields": each} for task, operator, each in fields
        ]
        more = max(0, self.task_count - len(found))
        others = [
            {"task_id": f"other-{number}", "operator_name": "BashOperator", "rendered_fields": {"job": f"job-{number}"}}
            for number in range(more)
        ]
        for each in others[self.jobs_named :]:
            each["rendered_fields"] = {}
        found = [*others, *found]
        wanted = [each for each in found if query.get("task_id", [each["task_id"]]) == [each["task_id"]]]
        offset = int(query.get("offset", ["0"])[0])
        limit = min(100, int(query["limit"][0]))
        return {"task_instances": wanted[offset : offset + limit], "total_entries": len(wanted)}

    def plan(self, action: str, body: Json) -> Json:
        """Return api/plans/ACTION."""
        subject = body.get("transform") or body.get("job") or body.get("model") or body.get("option")
        return {
            "title": f"{action.capitalize()} {subject}", "effects": [f"{subject} is changed by {action}.", HOSTILE],
            "fields": {**body, "expected_generation": 3}, "needs_reason": True, "is_possible": action != "stop",
            "problem": "the job is stopped already" if action == "stop" else "",
        }  # fmt: skip

    def act(self, action: str, body: Json) -> Json:
        """Return api/actions/ACTION; a pause or a resumption of a transform changes its row."""
        name = body.get("transform")
        if name in self.transforms and action in ("pause", "resume"):
            state = "paused" if action == "pause" else "running"
            self.change("transforms", name, state=state, reason=body["reason"], generation=3)
        return {"text": f"{action} of {name or body.get('job') or body.get('model')} is done"}


def generation(number: int, newest: int) -> Json:
    begin = 40_000 * number
    return {
        "number": number, "state": "running" if number == newest else "replaced", "version": f"1.{number + 1}.0",
        "digest": DIGEST, "model": "eta@1.3.0" if number == newest else None,
        "changes": [{
            "action": "rollback" if number == 2 else "deploy", "time_ms": now_ms() - 7_400_000 * (newest - number + 1),
            "by": "alice", "run": "manual__2026-11-27" if number % 2 else None, "reason": "the distances were wrong",
            "restored_generation": 1 if number == 2 else None,
        }],
        "offsets": [{
            "job": "eta", "topic": "orders", "started_ms": now_ms() - 7_300_000,
            "partitions": [[each, begin, None if number == newest else begin + 40_000] for each in range(4)],
        }],
    }  # fmt: skip


def redrive(row: Mapping[str, Any]) -> Json:
    return {
        "id": "r-20261127-1", "topic": row["dead_letter_topic"], "state": "running", "dead_letters": 40, "outputs": 31,
        "failed_again": 2, "skipped": {"already redriven": 7}, "to_topic": None, "through": row["name"], "by": "bob",
        "run": None, "reason": "mended in 1.4.0", "started_ms": now_ms() - 120_000, "updated_ms": now_ms() - 2_000,
    }  # fmt: skip


def letter(number: int, *, shows_payloads: bool) -> Json:
    return {
        "partition": 0, "offset": number, "time_ms": now_ms() - 60_000 * (5 - number), "error": "GuestTrap",
        "reason": HOSTILE if number == 1 else "wasm `unreachable` instruction executed", "transform": "eta@1.4.0",
        "module": DIGEST, "source": f"orders-0@{41 + number}",
        "key": payload(f"order-{number}") if shows_payloads else None,
        "value": {"text": None, "base64": "/wD+AA==", "bytes": 4, "cut": False} if shows_payloads else None,
        "headers": [["traceparent", payload("00-4bf9") if shows_payloads else None]], "truncated_bytes": None,
    }  # fmt: skip


def approval(dag: str, subject: str) -> Json:
    instance = {"dag_id": dag, "dag_run_id": RUN, "task_id": "approve", "map_index": -1, "state": "awaiting_input"}
    table = "| on | new | live |\n| --- | --- | --- |\n| vehicle\\=scooter \\| bike | 7 min | 8 min |"
    body = f"**eta\\@1.4.0**: RMSE 4\\.19, the champion's 4.21.\n\n{table}\n\n{HOSTILE}\nForward error 4.40."
    return {"task_instance": instance, "subject": subject, "body": body, "options": ["Approve", "Reject"],
            "multiple": False, "params": {}, "created_at": "2026-11-27T07:45:00Z"}  # fmt: skip


def version(number: int) -> Json:
    return {
        "version": f"1.{number}.0", "created_ms": now_ms() - 86_400_000 * (5 - number), "digest": DIGEST,
        "rmse": [5.1, 4.72, 4.43, 4.2137, 4.19][number], "baseline_rmse": 6.02 + number / 100,
        "forward_rmse": [None, 4.9, 4.61, 4.38, 4.4][number], "live_rmse": [5.3, 4.95, 4.7, 4.41, None][number],
        "rows": 30_000 + 2_000 * number, "run": f"scheduled__2026-11-2{number}",
    }  # fmt: skip


def decision(number: int, decided: str, of: str, reason: str) -> Json:
    return {
        "number": number, "decision": decided, "version": of, "champion": "1.2.0", "reason": reason,
        "refusal": "", "rmse": 4.2137, "champion_rmse": 4.43, "by": "alice", "run": "scheduled__2026-11-26",
        "time_ms": now_ms() - 86_400_000,
    }  # fmt: skip


def small_cluster() -> CannedCluster:
    """Return a cluster with six transforms, of which one has hostile names, their jobs, and two models."""
    transforms = [
        transform("eta", model="eta@1.3.0", dead_letters=9),
        transform("delivery_distance", rate=1_204.2, lag=0, version="2.0.1", generation=2),
        transform("fraud", state="paused", reason="12 of the last 100 records failed", rate=0.0, lag=98_120, running=0,
                  condition="silent", dead_letters=1_204, stuck_keys=3),
        transform("geohash", job=None, condition=None, running=0, rate=None, lag=None, dead_letter_topic=None),
        transform("orders/enriched v2", lag=2_400_123, running=2, partitions=6, condition="starting", job="enrich"),
        transform(HOSTILE, version=HOSTILE, input_topic=LONG, reason=HOSTILE, state="paused", job=HOSTILE),
    ]  # fmt: skip
    jobs = [
        job("eta"),
        job("delivery_distance", mode="microbatch", delivery="at_least_once"),
        job("fraud", condition="silent", problem="no heartbeat for 95 s", stuck_keys=3, running=0,
            reported_ms=now_ms() - 95_000),
        job("enrich", condition="starting", work="enrich on orders", transform="orders/enriched v2", hosts=[]),
        job("train-eta", condition="succeeded", mode="training", delivery=None, work="trains eta", transform=None,
            running=None, partitions=None, lag=None, rate=None, wanted="stopped"),
        job(HOSTILE, condition="failed", message=HOSTILE * 3, work=HOSTILE, transform=HOSTILE, started_by=None,
            spark_ui="javascript:alert(1)"),
    ]  # fmt: skip
    models = [
        model("eta"),
        model("tips", champion=None, versions=1, rmse=None, serving=None, serving_text="", trigger=None),
    ]
    return CannedCluster(
        transforms={each["name"]: each for each in transforms},
        jobs={each["job"]: each for each in jobs},
        models={each["model"]: each for each in models},
    )


def large_cluster(*, transforms: int = 200, partitions: int = 10) -> CannedCluster:
    rows = [transform(f"transform-{number:03}", partitions=partitions) for number in range(transforms)]
    jobs = [job(each["name"]) for each in rows]
    return CannedCluster(
        transforms={each["name"]: each for each in rows},
        jobs={each["job"]: each for each in jobs},
        large_partitions=transforms * partitions,
    )
