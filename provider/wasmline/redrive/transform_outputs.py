"""Runs dead letters through the current generation of their transform."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from wasmline.control import Deployment, DeploymentTopic, ModuleStore
from wasmline.errors import Conflict
from wasmline.kafka import KafkaConfig, TopicRecord, Topics
from wasmline.pipeline import BatchStats, TransformRunner
from wasmline.pipeline.preflight import start_module
from wasmline.printable import printable
from wasmline.record_batches import header_pairs, record_batch
from wasmline.redrive.conversion import Conversion, ConversionTooLarge
from wasmline.redrive.dead_letter_reader import StoredDeadLetter
from wasmline.redrive.redrive_plan import require_running
from wasmline.redrive.source_records import NO_SOURCE, DeadLetterRecord, DeadLetterRecords

logger = logging.getLogger(__name__)

MAX_OUTPUT_BYTES = 2**22
"""Maximum bytes of the outputs of several dead letters."""

MAX_OUTPUTS = 2_000
"""Maximum number of them: each is a request of its own, and their transaction has ten seconds."""


class TransformOutputs:
    """Runs dead letters through a module, as a job runs the records of its input topic.

    Outputs have the provenance of the source record. What fails again is dead-lettered, with the coordinates of that
    record, whatever the share of failures.
    """

    def __init__(self, config: KafkaConfig, deployment: Deployment) -> None:
        """Compile the module and start it once. Raises its ModuleError or TransformError, VersionNotFound."""
        self._deployment = deployment
        spec = replace(deployment.spec, max_failure_share=1.0)
        self.compression = spec.compression
        self._records = DeadLetterRecords(config)
        self._dead_letter_topic = spec.dead_letter_topic
        wasm = ModuleStore(config).get(spec.digest, deployment.module_offsets)
        self._instance = start_module(spec, wasm).instantiate(spec.context(), spec.limits())
        self._stats = BatchStats()
        limits = Topics(config).record_limits(spec.topics[1:])
        self._runner = TransformRunner(replace(deployment, spec=spec), self._instance, self._stats, limits)
        self._deployments = DeploymentTopic(config)  # last: a module that does not start leaves no client open

    def convert(self, letters: Sequence[StoredDeadLetter]) -> Conversion:
        """Return the outputs of the dead letters' records, and then the dead letters of those that failed again.

        Raises ConversionTooLarge if those of several are more than MAX_OUTPUTS or MAX_OUTPUT_BYTES.
        """
        done, records = Conversion(), list[DeadLetterRecord]()
        for letter in letters:
            record = NO_SOURCE if letter.failure.source is None else self._records.find(letter)
            if isinstance(record, str):
                done.skipped[record] += 1
            else:
                records.append(record)
                done.dead_letters.append(letter)
        if records:
            self._run(records, done)
        return done

    def require_current(self) -> None:
        """Raise DeploymentPaused if the deployment is paused by now, Conflict if it has another generation."""
        current = self._deployments.get(self._deployment.spec.name)
        require_running(current)
        if current.generation != self._deployment.generation:
            raise Conflict(
                f"{current.spec.name} has generation {current.generation} by now, and the redrive began with "
                f"{self._deployment.generation}: run it again",
                name=current.spec.name,
                generation=current.generation,
            )

    def close(self) -> None:
        """Free the guest and the Kafka client."""
        self._deployments.close()
        self._instance.close()

    def _run(self, records: Sequence[DeadLetterRecord], done: Conversion) -> None:
        sources = [record.dead_letter.failure.source for record in records]
        batch = record_batch(
            keys=[record.key for record in records],
            values=[record.value for record in records],
            headers=[record.headers for record in records],
            timestamps=[record.timestamp or 0 for record in records],
            partitions=[source.partition for source in sources if source is not None],
            offsets=[record.dead_letter.failure.offset for record in records],
        )
        size = count = 0
        for part in self._runner.run_placed(batch):
            size += part.get_total_buffer_size()
            count += part.num_rows
            if (size > MAX_OUTPUT_BYTES or count > MAX_OUTPUTS) and len(records) > 1:
                raise ConversionTooLarge(f"{len(records)} records have {count:,} outputs or more, of {size:,} bytes")
            topics, keys, values, times = (part[name].to_pylist() for name in ("topic", "key", "value", "timestamp"))
            rows = zip(topics, keys, values, header_pairs(part["headers"]), times, strict=True)
            done.records.extend(TopicRecord(*row) for row in rows)
            failures = topics.count(self._dead_letter_topic)
            done.failed_again += failures
            done.outputs += len(topics) - failures
        for line in self._stats.lines:
            logger.info("%s", printable(line))
        self._stats.logs.clear()
        self._stats.logs_dropped = 0
