"""The application that spark-submit runs: ``main.py --job NAME --run RUN``.

The order is read from the job topic and the reports go there. Kafka's settings come from the environment, never from
the command line: ``WASMLINE_KAFKA_CONFIG``, or a file named by ``WASMLINE_KAFKA_CONFIG_FILE``.
"""

from __future__ import annotations

import argparse
import logging
import sys
import traceback
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial

from pyspark.sql import SparkSession

from wasmline.control import JobTopic
from wasmline.documents import plain
from wasmline.errors import (
    Conflict,
    Fenced,
    JobError,
    PrerequisiteMissing,
    TrainingSkipped,
    WasmlineError,
)
from wasmline.job_specs import JobReport, JobSpec, JobState, StreamSpec
from wasmline.kafka import KafkaConfig
from wasmline.spark.core_limit import stream_slots
from wasmline.spark.driver_context import NewDriver, newest_claim
from wasmline.spark.driver_process import FENCED_STATUS
from wasmline.spark.heartbeat import Heartbeat
from wasmline.spark.microbatch.job import MicrobatchJob
from wasmline.spark.parallel.job import ParallelJob
from wasmline.spark.session import LEASE_SETTINGS, session
from wasmline.spark.timings import DEFAULT_TIMINGS, StreamTimings

log = logging.getLogger("wasmline")


def run(config: KafkaConfig, spec: JobSpec, driver: NewDriver) -> JobReport:
    """Run the job to completion and return the final report; ``driver`` is that of a stream."""
    stream = spec.stream
    leases = stream is not None and stream.mode == "parallel"
    slots = (lambda: None) if stream is None else partial(stream_slots, config, stream)
    spark = session(f"wasmline {spec.job}", LEASE_SETTINGS if leases else {}, slots)
    try:
        if stream is not None:
            return make_stream_job(spark, config, spec, stream, driver=driver).run()
        if spec.train is not None:
            return _train(spark, config, spec)
        raise JobError(f"job {spec.job} must have a stream or a training; it has neither")
    finally:
        spark.stop()


def make_stream_job(
    spark: SparkSession,
    config: KafkaConfig,
    spec: JobSpec,
    stream: StreamSpec,
    timings: StreamTimings = DEFAULT_TIMINGS,
    driver: NewDriver | None = None,
) -> MicrobatchJob | ParallelJob:
    """Return one run of a streaming job, in its mode."""
    if stream.mode == "parallel":
        return ParallelJob(spark, config, spec, stream, timings, driver)
    return MicrobatchJob(spark, config, spec, stream, timings, driver)


def _train(spark: SparkSession, config: KafkaConfig, spec: JobSpec) -> JobReport:
    from wasmline.training import run_training

    if spec.train is None:
        raise JobError(f"job {spec.job} is not a training")
    context = spark.sparkContext
    with Heartbeat(config, spec, on_stop=context.cancelAllJobs, spark_ui=context.uiWebUrl or "") as heart:
        try:
            result = plain(run_training(spark, spec.train, config, run=spec.run))
        except TrainingSkipped as skipped:
            return JobReport.now(spec.job, spec.run, JobState.SUCCEEDED, str(skipped), result=skipped.result)
        except Exception:
            if heart.is_stop_requested:
                return JobReport.now(spec.job, spec.run, JobState.STOPPED, "stopped before the model was fitted")
            raise
    return JobReport.now(spec.job, spec.run, JobState.SUCCEEDED, result=result)


def _metrics(config: KafkaConfig, spec: JobSpec) -> AbstractContextManager[object]:
    if spec.metrics_port is None or spec.stream is None:
        return nullcontext()
    try:
        from wasmline.spark.prometheus import serving
    except ModuleNotFoundError as error:
        install = "pip install 'wasmline[metrics]'"
        raise PrerequisiteMissing(f"a metrics_port needs prometheus-client: {install}", install=install) from error
    return serving(config, spec.job, spec.metrics_port)


def main() -> int:
    """Run the ordered job, ensure its final report, and return the exit status: 0 done or stopped, 1 failed.

    FENCED_STATUS: another driver has the run, and writes its report.
    """
    parser = argparse.ArgumentParser(prog="wasmline-job")
    parser.add_argument("--job", required=True)
    parser.add_argument("--run", required=True)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("py4j").setLevel(logging.WARNING)  # else a line for each event of the query
    config = KafkaConfig.from_environment()
    jobs = JobTopic(config)
    try:
        spec = jobs.order(arguments.job).spec
        if spec.run != arguments.run:
            text = f"job {spec.job} was replaced by run {spec.run}; run {arguments.run} ends"
            log.info("%s", text)
            standing = jobs.report(spec.job, arguments.run)
            if standing is not None and not standing.state.final:
                jobs.write_report(JobReport.now(spec.job, arguments.run, JobState.FAILED, text, error=Fenced.__name__))
            return 1
        report, is_written = _reported(jobs, config, spec)
    finally:
        jobs.close()
    log.info("%s: %s %s", report.state, report.error or "", report.message)
    if not is_written:
        return FENCED_STATUS
    return 0 if report.state is not JobState.FAILED else 1


def _reported(jobs: JobTopic, config: KafkaConfig, spec: JobSpec) -> tuple[JobReport, bool]:
    """Run the job and return its final report, and whether it is written: not if another driver has the run."""
    driver = NewDriver.of(jobs, spec.job)
    try:
        with _metrics(config, spec):
            report = run(config, spec, driver)
    except Exception as failure:
        if not isinstance(failure, WasmlineError):
            traceback.print_exc()
        report = JobReport.now(spec.job, spec.run, JobState.FAILED, str(failure), error=type(failure).__name__)
        superseded = driver.is_superseded_by(newest_claim(jobs, spec.job), spec.run)
        if (superseded or isinstance(failure, Fenced)) and jobs.order(spec.job).spec.run == spec.run:
            if superseded:
                return report, False
            text = (
                f"fenced in job {spec.job}, and no other driver of run {spec.run} has claimed it since this one began"
            )
            report = replace(report, message=text, error=Conflict.__name__)  # which a restart may cure
    written = jobs.report(spec.job, spec.run)
    if written is not None and written.state.final:  # a streaming job writes its own, with its totals
        return written, True
    jobs.write_report(report)
    return report, True


if __name__ == "__main__":
    sys.exit(main())
