"""Tables and examples of ``docs/protocols`` and of the glossary are those of the code."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import wasmline
import wasmline_provider
from wasmline import provenance
from wasmline.consumer import ConsumerOptions
from wasmline.consumer.backends.kafka import (
    exactly_once_probe,
    stable_fetch_recovery,
    transaction_settings,
    transactions,
)
from wasmline.consumer.runtime import committer, partition_lifecycle
from wasmline.consumer.timings import DEFAULT_TIMINGS
from wasmline.control import (
    ChangeCause,
    DeadLetterSelection,
    Deployment,
    DeploymentEvent,
    DeploymentSpec,
    DriverClaim,
    GenerationStart,
    JobControlState,
    JobEvent,
    JobOrder,
    Launch,
    LauncherStatus,
    LaunchRequest,
    LeaseWithdrawal,
    ModuleEvent,
    ModuleOffsets,
    Redrive,
    RedrivenOffsets,
    RetrainCheck,
    RetrainStatus,
    control_topics,
    job_topic,
    module_pruning,
    module_store,
)
from wasmline.documents import decode, decode_strictly, encode
from wasmline.errors import InvalidOffsetMetadata
from wasmline.job_offsets import microbatch_transactions, offset_renewal
from wasmline.job_specs import (
    HEARTBEAT_INTERVAL_S,
    BatchReport,
    FunctionSpec,
    JobReport,
    JobSpec,
    JobState,
    SliceRequest,
    StreamSpec,
    StreamTotals,
    TrainSpec,
)
from wasmline.leases import lease_status_reporter as lease_status
from wasmline.leases import lease_worker
from wasmline.leases.lease import Lease
from wasmline.leases.lease_planner import LeaseRound
from wasmline.leases.timings import DEFAULT_TIMINGS as LEASE_TIMINGS
from wasmline.model_reference import ModelReference
from wasmline.offset_maps import DEFAULT_LIMITS, codec
from wasmline.offset_maps.encodings import FOREIGN, MAX_BODY_BYTES, MAX_INCOMPLETES, Encoding
from wasmline.partition_status import PartitionStatus
from wasmline.record_batches import RECORD_SCHEMA
from wasmline.spark import session, stream_job
from wasmline.spark.parallel import query as lease_query
from wasmline.spark.timings import DEFAULT_TIMINGS as STREAM_TIMINGS
from wasmline.testing import guests
from wasmline.topic_partitions import TopicPartition
from wasmline.training.model_proof import RANDOM_ROWS
from wasmline.transactional_ids import VIRTUAL_SHARDS, shared_id, transactional_id
from wasmline.wasm import ResourceLimits, Schema, TransformContext, TransformRuntime
from wasmline.wasm.abi import FUNCTIONS, SCHEMA_REGISTRY, TRANSFORM
from wasmline.wasm.model_section import (
    MAX_SECTION_BYTES,
    SECTION,
    HoldoutMetrics,
    ModelInput,
    ModelProof,
    ModelSection,
)

ROOT = Path(__file__).parents[2]
PROTOCOLS = ROOT / "docs" / "protocols"

Row = Mapping[str, str]


def section(page: Path, heading: str) -> str:
    """Return what stands under a heading, up to the next one of any level."""
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", page.read_text(), re.MULTILINE | re.DOTALL)
    assert found, f"{page.name} has no heading {heading!r}"
    return found[1]


def tables(text: str) -> list[list[Row]]:
    """Return the tables of a text, each as rows by the names of its columns."""
    found: list[list[Row]] = []
    for block in re.findall(r"(?:^\|.*\n?)+", text, re.MULTILINE):
        names, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines())
        found.append([dict(zip(names, row, strict=True)) for row in rows])
    return found


def table(page: str, heading: str, number: int = 0) -> list[Row]:
    return tables(section(PROTOCOLS / page, heading))[number]


def column(rows: list[Row], name: str) -> list[str]:
    return [row[name] for row in rows]


def code(cell: str) -> str:
    """Return what stands in backticks."""
    return cell.strip("`")


def examples(page: str, heading: str) -> list[str]:
    return re.findall(r"^```json\n(.*?)^```", section(PROTOCOLS / page, heading), re.MULTILINE | re.DOTALL)


# -- offset maps -------------------------------------------------------------------------------------------------------

BODIES = table("offset_maps.md", "The bodies")
MAPS = table("offset_maps.md", "Examples")


def test_the_magic_bytes_are_those_that_are_written_in_the_order_of_a_tie() -> None:
    written = [int(code(row["magic"]), 16) for row in BODIES if "read only" not in row["name"]]
    assert written == [each.magic for each in Encoding]


def test_all_other_magic_bytes_are_refused() -> None:
    known = {int(code(row["magic"]), 16) for row in BODIES} | {ord("X")}
    for magic in set(range(256)) - known:
        with pytest.raises(InvalidOffsetMetadata, match="its magic byte"):
            codec.parse(base64.b64encode(bytes([magic, 0, 0, 0, 0, 0])).decode(), 0)
    refused = section(PROTOCOLS / "offset_maps.md", "What a reader refuses")
    assert all(f"`{magic:02x}`" in refused for magic in FOREIGN)


@pytest.mark.parametrize("row", MAPS, ids=lambda row: f"{row['name']} of {row['base']}")
def test_an_example_of_a_map_is_read_and_written(row: Row) -> None:
    base, highest = int(row["base"]), int(row["highest"])
    incompletes = tuple(int(each) for each in row["incompletes"].split(",") if each.strip())
    text, payload = code(row["text"]), bytes.fromhex(code(row["payload"]).replace(" ", ""))
    assert codec.parse(text, base) == (highest, incompletes)
    if not text.startswith("%"):
        assert base64.b64decode(text) == payload
    names = {body["name"]: int(code(body["magic"]), 16) for body in BODIES if "read only" not in body["name"]}
    for encoding in (each for each in Encoding if each.magic == names.get(row["name"])):
        assert codec.encode_as(encoding, base, highest, incompletes or (base,)) == text


def test_the_writer_chooses_the_map_that_the_page_says() -> None:
    first, *_, nothing_done, wide = MAPS
    assert codec.encode(42, 50, (42, 45, 46)) == code(first["text"])
    assert codec.encode(10, 9, (10,)) == code(nothing_done["text"])
    assert codec.encode(5, 50_000, (5,)) == code(wide["text"])


def test_the_sizes_of_maps_are_those_of_the_code() -> None:
    text = (PROTOCOLS / "offset_maps.md").read_text()
    sizes = DEFAULT_LIMITS.max_metadata_length, DEFAULT_LIMITS.back_pressure_length, MAX_INCOMPLETES
    assert all(f"{size:,}" in text for size in sizes)
    assert f"fewer than {codec.COMPRESSION_THRESHOLD} bytes" in text
    assert f"{MAX_BODY_BYTES >> 20} MiB" in text


# -- transactional ids and times ---------------------------------------------------------------------------------------


def test_the_transactional_ids_are_those_of_the_code() -> None:
    job = JobSpec(job="eta", run="r", storage="s")
    shown = {row["who writes"]: code(row["example"]) for row in table("exactly_once.md", "Transactional ids")}
    partition = TopicPartition("orders", 3)
    assert shown["a member of a group"] == transactional_id("billing", partition)
    assert shown["a job, in either mode"] == shared_id(job.transactional_id, partition)
    assert (
        shared_id(job.transactional_id, TopicPartition("orders", 3 + VIRTUAL_SHARDS)) == shown["a job, in either mode"]
    )
    assert job.group == "wasmline.eta"


def seconds(text: str) -> float:
    number, unit = re.match(r"([\d.]+) (s|ms|h)\b", text).groups()  # type: ignore[union-attr]
    return float(number) * {"s": 1, "ms": 1e-3, "h": 3_600}[unit]


EXACT = ConsumerOptions(topics=("t",), group_id="g", delivery="exactly_once")  # type: ignore[arg-type]

TIMES = {
    "exactly_once.md": {
        "transaction time-out of a consumer and of a lease": int(
            transaction_settings.PRODUCER_SETTINGS["transaction.timeout.ms"]
        )
        / 1e3,
        "transaction time-out of a micro-batch": int(
            microbatch_transactions.MICROBATCH_PRODUCER_SETTINGS["transaction.timeout.ms"]
        )
        / 1e3,
        "delivery time-out of a consumer and of a lease": int(
            transaction_settings.PRODUCER_SETTINGS["delivery.timeout.ms"]
        )
        / 1e3,
        "one transaction of a commit": transactions.TRANSACTION_DEADLINE_S,
        "answer to the offsets of a transaction": transactions.OFFSETS_TIMEOUT_S,
        "answer to the offsets of a micro-batch": microbatch_transactions.OFFSETS_TIMEOUT_S,
        "a commit as a whole": committer.COMMIT_TIMEOUT_S,
        "opening: fence and read": DEFAULT_TIMINGS.transactions_open_timeout_s,
        "reading progress, each request": DEFAULT_TIMINGS.request_timeout_s,
        "a stable read that is refused": stable_fetch_recovery.HANG_CHECK_DELAY_S,
        "a look for lost markers on outputs": stable_fetch_recovery.OUTPUT_CHECK_TIMEOUT_S,
        "a partition that could not be opened": DEFAULT_TIMINGS.retry_backoff_s,
        "the end of a micro-batch's transaction": microbatch_transactions.COMMIT_TIMEOUT_S,
        "aborting a failed micro-batch transaction": microbatch_transactions.ABORT_TIMEOUT_S,
        "last commit of a partition that goes": DEFAULT_TIMINGS.last_commit_timeout_s,
        "commit interval": EXACT.commit_interval,
    },
    "leases.md": {
        "a lease, unless ordered otherwise": StreamSpec(transform="t").lease_seconds,
        "the least that a lease is worked on": LEASE_TIMINGS.min_lease_s,
        "handlers, after a lease is over": LEASE_TIMINGS.drain_timeout_s,
        "last commits, after that": LEASE_TIMINGS.last_commit_timeout_s,
        "without a heartbeat": LEASE_TIMINGS.renewal_timeout_s,
        "two heartbeats": lease_worker.POLL_INTERVAL_S,
        "two looks at time and control": lease_worker.POLL_INTERVAL_S,
        "two statuses": lease_worker.STATUS_INTERVAL_S,
        "the last status": lease_status.CLOSE_TIMEOUT_S,
        "after a passing error": lease_worker.RETRY_BACKOFF_S,
        "two looks for partitions, and two reports": HEARTBEAT_INTERVAL_S,
        "a task that waits for a slot": STREAM_TIMINGS.task_start_timeout_s,
        "a silent driver of an earlier run is waited for": STREAM_TIMINGS.heartbeat_timeout_s,
        "a report that is too old to wait for its driver": stream_job.MAX_REPORT_AGE_MS / 1e3,
    },
}


@pytest.mark.parametrize("page", TIMES)
def test_the_times_of_a_page_are_those_of_the_code(page: str) -> None:
    shown = {row["time"]: row["value"] for row in table(page, "Times")}
    assert (
        shown.pop("takeovers that are fenced", f"{job_topic.TAKEOVER_ATTEMPTS} tries")
        == f"{job_topic.TAKEOVER_ATTEMPTS} tries"
    )
    assert {time: seconds(value) for time, value in shown.items()} == TIMES[page]


def test_times_in_the_text_are_those_of_the_code() -> None:
    exact, leases = ((PROTOCOLS / page).read_text() for page in ("exactly_once.md", "leases.md"))
    assert f"{offset_renewal.MAX_RENEWAL_INTERVAL_S / 3_600:.0f} hours" in exact
    assert f"{offset_renewal.RETRY_INTERVAL_S / 60:.0f} minutes after a renewal that failed" in exact.replace("\n", " ")
    assert f"reads that offset with `require_stable` for {exactly_once_probe.SLOW_STABLE_READ_S} s" in exact.replace(
        "\n", " "
    )
    assert f"divided into {transactions.BISECTION_BATCHES} batches" in exact
    assert f"{DEFAULT_TIMINGS.max_error_duration_s:.0f} s without a commit" in exact.replace("\n", " ")
    assert f"every {lease_query.IDLE_POLL_MS} ms while idle" in leases
    assert session.TASK_ATTEMPTS == 4
    assert "four times in all" in leases


def test_the_errors_that_end_an_opening_are_those_of_the_page() -> None:
    text = " ".join(section(PROTOCOLS / "exactly_once.md", "Opening a partition").split())
    [listed] = re.findall(r"These errors end the consumer instead: (.*?)\. ", text)
    named = {*re.findall(r"`(\w+)`", listed), "NotAuthorized", "InvalidConsumerOption", "InvalidKafkaConfig"}
    assert named == {each.__name__ for each in partition_lifecycle.PERMANENT_ERRORS}


# -- leases ------------------------------------------------------------------------------------------------------------


def test_a_round_in_a_checkpoint_is_read_and_has_the_fields_of_the_page() -> None:
    [example] = examples("leases.md", "A round")
    assert decode(LeaseRound, example).epoch == 2
    assert [code(row["field"]) for row in table("leases.md", "A round")] == [each.name for each in fields(LeaseRound)]


def test_the_reasons_for_the_end_of_a_lease_are_those_of_the_page() -> None:
    spec = DeploymentSpec(name="t", version="1", digest=f"sha256:{0:064}", input_topic="in", output_topics=("out",))
    deployed = Deployment(spec=spec, generation=3, state="running", updated_ms=0)
    job = JobSpec(job="j", run="r", storage="s", stream=StreamSpec(transform="t", mode="parallel"))
    held = Lease(
        job=job, deployment=deployed, driver="d", epoch=7, topic="in", until=0.0, control_offsets={}, progress={0: 0}
    )
    other = replace(job, stream=StreamSpec(transform="t", mode="parallel", tasks=2))
    claimed = DriverClaim(run="r", driver="e", checkpoint="c", batch_id=-1, deployment=None)
    written: list[tuple[str, str, Any]] = [
        (control_topics.JOBS, "j", JobOrder(spec=job, wanted="stopped")),
        (control_topics.JOBS, "j", JobOrder(spec=other, wanted="running")),
        (control_topics.JOBS, "j", JobOrder(spec=job, wanted="running", paused=True)),
        (control_topics.JOBS, "j/batch", claimed),
        (control_topics.JOBS, "j/withdrawn", LeaseWithdrawal(driver="d", epoch=7)),
        (control_topics.DEPLOYMENTS, "t", replace(deployed, generation=4)),
        (control_topics.DEPLOYMENTS, "t", replace(deployed, state="paused")),
    ]
    reasons = []
    for topic, key, document in written:
        control = JobControlState("j", "t")
        assert control.apply(topic, key.encode(), encode(document))
        reasons.append(held.superseded(control))
    assert [code(row["reason"]) for row in table("leases.md", "A lease")] == reasons


def test_the_errors_that_pause_a_deployment_are_those_of_the_page() -> None:
    [row] = [
        each for each in table("leases.md", "A lease", 1) if "pauses the deployment" in each["what the worker does"]
    ]
    assert re.findall(r"`(\w+)`", row["the work ends with"]) == [
        each.__name__ for each in lease_worker.DEPLOYMENT_ERRORS
    ]


# -- control topics ----------------------------------------------------------------------------------------------------

DOCUMENTS: dict[str, Any] = {
    "Deployment": Deployment,
    "Module offsets": ModuleOffsets,
    "Deployment event": DeploymentEvent,
    "Change cause": ChangeCause,
    "Start of a generation": GenerationStart,
    "Job event": JobEvent,
    "Module event": ModuleEvent,
    "Specification": DeploymentSpec,
    "Schema": Schema,
    "Model reference": ModelReference,
    "Order": JobOrder,
    "Job": JobSpec,
    "Stream": StreamSpec,
    "Function": FunctionSpec,
    "Training": TrainSpec,
    "Slice request": SliceRequest,
    "Claim": DriverClaim,
    "Withdrawal": LeaseWithdrawal,
    "Launch request": LaunchRequest,
    "Launch": Launch,
    "Launcher status": LauncherStatus,
    "Retrain status": RetrainStatus,
    "Retrain check": RetrainCheck,
    "Report": JobReport,
    "Totals": StreamTotals,
    "Batch": BatchReport,
    "Partition status": PartitionStatus,
    "Redrive": Redrive,
    "Selection": DeadLetterSelection,
    "Redriven offsets": RedrivenOffsets,
}


@pytest.mark.parametrize("heading", DOCUMENTS)
def test_a_document_has_the_fields_of_the_page(heading: str) -> None:
    rows = table("control_topics.md", heading)
    known = fields(DOCUMENTS[heading])
    assert [code(row["field"]) for row in rows] == [each.name for each in known]
    required = [each.default is MISSING and each.default_factory is MISSING for each in known]
    assert [row["type"].endswith("required") for row in rows] == required


WITH_EXAMPLES = [heading for heading in DOCUMENTS if examples("control_topics.md", heading)]


def test_all_kinds_of_records_have_an_example() -> None:
    assert WITH_EXAMPLES == [
        "Deployment",
        "Deployment event",
        "Start of a generation",
        "Job event",
        "Module event",
        "Order",
        "Claim",
        "Withdrawal",
        "Launch",
        "Launcher status",
        "Retrain status",
        "Report",
        "Partition status",
        "Redrive",
        "Redriven offsets",
    ]


@pytest.mark.parametrize("heading", WITH_EXAMPLES)
def test_an_example_is_read_and_is_what_would_be_written(heading: str) -> None:
    for example in examples("control_topics.md", heading):
        document = decode(DOCUMENTS[heading], example)
        assert encode(document) == json.dumps(json.loads(example), separators=(",", ":")).encode()
        if isinstance(document, JobReport):
            assert decode(StreamTotals, json.dumps(document.result)).batches


def test_the_settings_of_control_topics_are_those_of_the_code() -> None:
    rows = table("control_topics.md", "The topics", 1)
    for name, policy in (("compacted topics", control_topics.COMPACTED), ("`_wasmline.logs`", control_topics.ONE_DAY)):
        shown = {code(row["setting"]): code(row[name]) for row in rows if row[name].startswith("`")}
        assert shown == policy
    listed = [code(topic) for topic in column(table("control_topics.md", "The topics"), "topic") if topic]
    assert listed == list(control_topics.POLICIES)
    assert f"{module_store.CHUNK_BYTES:,} bytes" in section(PROTOCOLS / "control_topics.md", "Modules")
    assert f"id `{module_pruning.TRANSACTIONAL_ID}`" in section(PROTOCOLS / "control_topics.md", "Deletion of modules")
    assert f"deleted, {module_pruning.MAX_MODULES} at most" in section(PROTOCOLS / "control_topics.md", "Module event")


def test_the_states_of_a_run_are_those_of_the_page() -> None:
    diagram = section(PROTOCOLS / "control_topics.md", "Report").partition("```")[2].partition("```")[0]
    moves = re.findall(r"(\S+) --> ([^\s:]+)", diagram)
    assert {state for move in moves for state in move} - {"[*]"} == set(JobState)
    assert {before for before, after in moves if after == "[*]"} == {each for each in JobState if each.final}


# -- the model in a module --------------------------------------------------------------------------------------------

MODEL_SECTION: dict[str, Any] = {
    "The section": ModelSection,
    "An input": ModelInput,
    "Holdout metrics": HoldoutMetrics,
    "Proof": ModelProof,
}


@pytest.mark.parametrize("heading", MODEL_SECTION)
def test_a_part_of_the_model_section_has_the_fields_of_the_page(heading: str) -> None:
    rows = table("model_section.md", heading)
    known = fields(MODEL_SECTION[heading])
    assert [code(row["field"]) for row in rows] == [each.name for each in known]
    required = [each.default is MISSING and each.default_factory is MISSING for each in known]
    assert [row["type"].endswith("required") for row in rows] == required


def test_the_example_of_a_model_section_is_read_and_is_what_would_be_written() -> None:
    [example] = examples("model_section.md", "The section")
    found = decode_strictly(ModelSection, example.encode(), MAX_SECTION_BYTES)
    assert encode(found) == json.dumps(json.loads(example), separators=(",", ":")).encode()
    text = section(PROTOCOLS / "model_section.md", "The section")
    assert f"`{SECTION.decode()}`" in text
    assert f"{MAX_SECTION_BYTES >> 20} MiB" in text


def test_the_kinds_of_rows_of_a_proof_are_those_of_the_page() -> None:
    rows = table("model_section.md", "From a model to a module")
    assert [code(row["kind"]) for row in rows] == [each.name for each in fields(ModelProof)][:-1]
    assert f"{RANDOM_ROWS:,} rows" in rows[-1]["rows"]


# -- the transform ABI -------------------------------------------------------------------------------------------------

PAYLOADS = table("transform_abi.md", "A record's bytes", 1)


def _field(cell: str) -> bytes | None:
    return {"null": None, "empty": b""}.get(cell, code(cell).encode())


def _records(row: Row) -> pa.RecordBatch:
    headers = []
    if row["headers"]:
        key, value = row["headers"].split(" = ")
        headers = [{"key": code(key), "value": _field(value)}]
    columns = {"key": _field(row["key"]), "value": _field(row["value"]), "headers": headers}
    return pa.RecordBatch.from_pylist([columns | {"timestamp": 0, "partition": 0, "offset": 0}], RECORD_SCHEMA)


def _run(text: bytes, batch: pa.RecordBatch, outputs: tuple[str, ...] = ("out",)) -> Any:
    context = TransformContext(name="t", input_topic="in", output_topics=outputs)
    with TransformRuntime().compile(text).instantiate(context) as instance:
        result = instance.transform(batch)
    assert result.failures == ()
    return result.outputs


def _same(payload: bytes) -> Iterator[str]:
    """Yield snippets: trap unless the record's payload is this one."""
    yield guests.require("(local.get $size)", len(payload))
    for place, byte in enumerate(payload):
        yield guests.require(f"(i32.load8_u (i32.const {guests.PAYLOAD + place}))", byte)


@pytest.mark.parametrize("row", PAYLOADS, ids=lambda row: row["payload"])
def test_a_guest_reads_and_writes_a_record_in_the_bytes_of_the_page(row: Row) -> None:
    batch, payload = _records(row), bytes.fromhex(code(row["payload"]).replace(" ", ""))
    body = "".join(_same(payload)) + guests.write_bytes(payload, expect=len(payload))
    outputs = _run(guests.guest(body), batch)
    for name in ("key", "value", "headers"):
        assert outputs.column(name).to_pylist() == batch.column(name).to_pylist()


def test_the_options_of_the_page_name_a_topic() -> None:
    _, named = table("transform_abi.md", "A record's bytes", 3)
    options = bytes.fromhex(code(named["options"]).replace(" ", ""))
    assert options == guests.topic(code(named["topic"]))


def test_the_contract_has_every_function_with_its_parameters() -> None:
    page = ROOT / "wasm_modules" / "ABI.md"
    for owner_of in (TRANSFORM, SCHEMA_REGISTRY):
        [rows] = [each for each in tables(section(page, f"`{owner_of}`")) if "function" in each[0]]
        shown = {}
        for row in rows:
            parameters = re.match(r"`\((.*)\) -> i32`|ten pointers `-> i32`", row["type"])
            assert parameters, row
            shown[code(row["function"])] = 10 if parameters[1] is None else len(parameters[1].split(","))
        known = {name: len(kind.partition(":")[0]) for name, kind in FUNCTIONS[owner_of].items() if kind}
        assert shown == known


def test_the_contract_has_the_limits_of_the_code() -> None:
    rows = tables(section(ROOT / "wasm_modules" / "ABI.md", "Limits"))[0]
    units = {"MiB": 1 << 20, "KiB": 1 << 10}
    shown = {}
    for row in rows:
        number, _, unit = row["default"].partition(" ")
        shown[code(row["option"])] = int(number) * units.get(unit, 1)
    assert shown == {each.name: getattr(ResourceLimits(), each.name) for each in fields(ResourceLimits)}


# -- the glossary ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", table("provenance.md", "The value", 1), ids=lambda row: row["value"])
def test_a_value_of_provenance_is_what_the_page_says(row: Row) -> None:
    found = provenance.parse(code(row["value"]).encode())
    if row["is"].startswith("none"):
        assert found is None
        return
    assert found is not None
    assert (found.model is not None) == (row["is"] == "a prediction")
    fields = code(row["value"]).split()
    assert [found.source.topic, str(found.source.partition), str(found.offset)] == fields[:3]
    assert [f"{found.name}@{found.version}", found.digest] == fields[3:5]
    if found.model is not None:
        assert [str(found.model), found.model.digest, found.model.dataset] == fields[5:]


def test_the_bounds_of_provenance_are_those_of_the_code() -> None:
    text = section(PROTOCOLS / "provenance.md", "The value")
    assert f"The header's name is `{provenance.NAME}`." in text
    assert f"at most {provenance.MAX_BYTES:,} bytes" in text
    assert f"at most {provenance.MAX_PARTITION} " in text
    assert f"at most {provenance.MAX_OFFSET} " in text
    assert text.count(f"{provenance.DIGEST_LETTERS} hexadecimal digits") == 3
    assert len(table("provenance.md", "The value")) == 8


def test_the_glossary_defines_each_term_once_and_names_packages_that_are_there() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text()
    *defined, unused = tables(text)
    rows = [row for each in defined for row in each]
    terms = [term.strip() for row in rows for term in row["term"].split(",")]
    assert len(set(terms)) == len(terms)
    assert not set(column(unused, "not")) & set(terms)
    roots = {"wasmline": wasmline, "wasmline_provider": wasmline_provider}
    for row in rows:
        assert row["definition"]
        for package in re.findall(r"`(wasmline[\w.]*)`", row["where"]):
            name, *rest = package.split(".")
            assert Path(roots[name].__path__[0], *rest, "__init__.py").exists(), package


# -- all pages ---------------------------------------------------------------------------------------------------------

DEFINED = {
    name
    for path in (ROOT / "provider").rglob("*.py")
    for name in re.findall(r"^(?:class |def |(?=[A-Z]+(?:: | = )))(\w+)", path.read_text(), re.MULTILINE)
}
"""Classes, functions and constants of modules."""


@pytest.mark.parametrize("page", sorted(PROTOCOLS.glob("*.md")), ids=lambda page: page.stem)
def test_a_page_begins_with_its_problem_and_ends_with_its_code(page: Path) -> None:
    text = page.read_text()
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    assert headings[-2:] == ["Held by", "In the code"]
    assert set(re.findall(r"`(\w+)`", section(page, "In the code"))) <= DEFINED
    assert re.match(r"# [^\n]+\n\n[A-Z][^\n#|]{40}", text)
    assert "```mermaid" in text
    assert all(line.count("`") % 2 == 0 for line in text.splitlines() if line.startswith("|"))
