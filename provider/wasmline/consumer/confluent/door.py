"""The group's door to committed offsets, chosen when the first partition is known."""

from __future__ import annotations

import threading

from wasmline.kafka.commit_metadata import CommitDoor, open_door
from wasmline.kafka.config import KafkaConfig
from wasmline.records import TopicPartition


class GroupDoor:
    """Opens once, on the first partition that the group reads: the self test needs one.

    With ``door`` it is that one: somebody has tested it.
    """

    def __init__(self, config: KafkaConfig, group: str, door: CommitDoor | None = None) -> None:
        self._config = config
        self._group = group
        self._door = door
        self._testing = threading.Lock()

    def on(self, partition: TopicPartition) -> CommitDoor:
        """Return the door. Raises BrokerUnavailable, and TopicNotFound for a partition that is not there."""
        with self._testing:
            if self._door is None:
                self._door = open_door(self._config, self._group, partition)
            return self._door
