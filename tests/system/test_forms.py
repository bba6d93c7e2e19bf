"""The forms of whoever is on call, in a real browser before a real Airflow: what they suggest, and what they do."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from support.browser import CHROMIUM, WAIT_MS, TriggerForm, chromium
from support.streams.identity_transform import deploy_identity
from wasmline import dead_letters
from wasmline.control import DeploymentSpec, DeploymentTopic, JobTopic, deploy, read_job_events
from wasmline.job_offsets.progress_change import read_progress
from wasmline.job_specs import JobReport, JobSpec, JobState, StreamSpec
from wasmline.kafka import Topics, produce_all, read_to_end
from wasmline.local.process import wait_until
from wasmline.redrive import DeadLetterReader
from wasmline.testing.guests import guest
from wasmline.testing.kafka import RunningKafka
from wasmline.topic_partitions import TopicPartition

pytestmark = [pytest.mark.long, pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")]

WAIT_S = WAIT_MS / 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OnCall:
    """A cluster with something to do for whoever is on call, made before the DAGs are parsed.

    transform: in its second generation, with three dead letters. job: runs it, with this process as its driver.
    """

    kafka: RunningKafka
    transform: DeploymentSpec
    job: str
    dead_letter_topic: str


@pytest.fixture(scope="module")
def on_call(kafka: RunningKafka) -> OnCall:
    topic = f"{uuid.uuid4().hex[:8]}.dlq"
    Topics(kafka.config).create(topic, 1)
    spec = replace(deploy_identity(kafka.config, partitions=1), dead_letter_topic=topic, version="2.0.0")
    deploy(kafka.config, spec, guest())
    produce_all(kafka.config, spec.input_topic, [(b"k", b"v", None, None)] * 10)
    headers = [
        *dead_letters.failure(error="GuestTrap", reason="no"),
        *dead_letters.origin(transform=f"{spec.name}@1.0.0", digest=spec.digest),
        *dead_letters.coordinates(TopicPartition(spec.input_topic, 0), 0),
    ]
    produce_all(kafka.config, topic, [(b"k", b"%d" % number, headers, None) for number in range(3)])
    job = JobSpec(job=f"{spec.name}-job", run="run-1", storage="/s", stream=StreamSpec(transform=spec.name))
    with closing(JobTopic(kafka.config)) as jobs:
        jobs.submit(job)
    return OnCall(kafka=kafka, transform=spec, job=job.job, dead_letter_topic=topic)


@pytest.fixture
def orphan(on_call: OnCall) -> Iterator[None]:
    """A driver of the job, which nobody waits for: it reports each second, and ends once it is told to."""
    with closing(JobTopic(on_call.kafka.config)) as jobs:
        order = jobs.order(on_call.job)

        def run() -> None:
            while jobs.order(on_call.job).wanted == "running":
                jobs.write_report(JobReport.now(on_call.job, order.spec.run, JobState.RUNNING))
                time.sleep(1)
            jobs.write_report(JobReport.now(on_call.job, order.spec.run, JobState.STOPPED))

        driver = threading.Thread(target=run)
        driver.start()
        yield
        driver.join()


@pytest.fixture(scope="module")
def tab() -> Iterator[Page]:
    with chromium() as browser:
        yield browser.new_page(viewport={"width": 1_300, "height": 1_600})


class Forms:
    """Triggers DAGs from their forms in a browser."""

    def __init__(self, airflow: Any, tab: Page) -> None:
        self.airflow = airflow
        self.tab = tab

    def open(self, dag: str) -> TriggerForm:
        self.airflow.api.unpause(dag)
        return TriggerForm(self.tab, self.airflow.api.url, dag)

    def run(self, dag: str, form: TriggerForm, **fields: object) -> str:
        """Fill in a form and submit it; return the run, once it has succeeded."""
        before = self._runs(dag)
        form.fill(**fields)
        form.submit()
        assert wait_until(lambda: len(self._runs(dag)) > len(before), WAIT_S)
        [run] = self._runs(dag) - before
        self.airflow.wait(dag, run, timeout=120)
        return run

    def _runs(self, dag: str) -> set[str]:
        return {each["dag_run_id"] for each in self.airflow.api.get(f"/dags/{dag}/dagRuns")["dag_runs"]}


@pytest.fixture
def forms(on_call: OnCall, airflow: Any, tab: Page) -> Forms:
    return Forms(airflow, tab)


def test_an_orphan_is_stopped_and_its_progress_set(on_call: OnCall, forms: Forms, orphan: None) -> None:
    config = on_call.kafka.config
    form = forms.open("stop_job")
    assert on_call.job in form.suggestions("job")
    forms.run("stop_job", form, job=on_call.job, reason="an orphan")
    form = forms.open("set_progress")
    assert (on_call.job in form.suggestions("job"), "end" in form.suggestions("to")) == (True, True)
    forms.run("set_progress", form, job=on_call.job, to="+7", reason="skip seven")
    events = [(each.action, each.cause.reason) for each in read_job_events(config, on_call.job)]
    assert events == [("stop", "an orphan"), ("set progress", "skip seven")]
    assert read_progress(config, on_call.job).offsets == {0: 7}


def test_dead_letters_are_redriven(on_call: OnCall, forms: Forms) -> None:
    form = forms.open("redrive_dead_letters")
    assert on_call.dead_letter_topic in form.suggestions("topic")
    assert on_call.transform.name in form.suggestions("through")
    fields = {"topic": on_call.dead_letter_topic, "through": on_call.transform.name, "reason": "it is mended"}
    forms.run("redrive_dead_letters", form, **fields)
    outputs = read_to_end(on_call.kafka.config, on_call.transform.output_topics[0])
    assert [each.value() for each in outputs] == [b"0", b"1", b"2"]
    reader = DeadLetterReader(on_call.kafka.config, on_call.dead_letter_topic)
    assert all(letter.is_redriven(reader.state()) for letter in reader.read())


def test_a_transform_is_rolled_back(on_call: OnCall, forms: Forms) -> None:
    name = on_call.transform.name
    form = forms.open("rollback_transform")
    assert name in form.suggestions("transform")
    forms.run("rollback_transform", form, transform=name, reason="2.0.0 is slow")
    with closing(DeploymentTopic(on_call.kafka.config)) as deployments:
        current = deployments.get(name)
    assert (current.generation, current.spec.version) == (3, "1.0.0")


def test_what_is_on_the_cluster_is_seen_in_the_browser(on_call: OnCall, forms: Forms) -> None:
    run = forms.run("list_jobs", forms.open("list_jobs"))
    forms.tab.goto(f"{forms.airflow.api.url}/dags/list_jobs/runs/{run}/tasks/list")
    expect(forms.tab.locator("body")).to_contain_text(on_call.job, timeout=WAIT_MS)
