"""Observes a model, its topic and its slices, and tells when to train again, and if not, why not."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from wasmline.clock import now_ms
from wasmline.control.retrain_status import RetrainCheck
from wasmline.job_specs import SliceRequest
from wasmline.offset_ranges import count_offsets
from wasmline.retrain_conditions import RetrainConditions
from wasmline.training.champion_monitor import ChampionMonitor
from wasmline.training.retrain_cooldown import RetrainCooldown
from wasmline.training.retrain_observation import RetrainObservation, cooldown_check, shown_checks
from wasmline.training.retrain_reasons import RetrainReason, check_conditions
from wasmline.training.retrain_status_reporter import RetrainStatusReporter
from wasmline.training.run_slice import topic_offsets
from wasmline.training.slice_decision import decide_slice
from wasmline.training.slice_log import SliceLog

if TYPE_CHECKING:
    from wasmline.kafka import KafkaConfig

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrainEvent:
    """Why to train a model again, and up to which offsets of its topic records were seen then.

    ``slice`` is the number of the newest recorded slice, 0 for none.
    """

    model: str
    champion: str | None
    topic: str
    topic_id: str
    until: dict[str, int]
    slice: int
    reasons: tuple[RetrainReason, ...]
    observed_ms: int
    spec_version: Literal[1] = 1

    @property
    def why(self) -> str:
        """The reasons in one sentence."""
        return "; ".join(each.text for each in self.reasons)


class RetrainMonitor:
    """Compares the topic with the recorded slices and with the champion.

    What is new is no state of its own. When it gave events is, and another monitor begins without it. The status of the
    conditions is written to the cluster; an error of that is logged and changes no event. For one thread.
    """

    def __init__(self, config: KafkaConfig, conditions: RetrainConditions) -> None:
        from wasmline.kafka import Topics

        self._conditions = conditions
        self._topics = Topics(config)
        self._slices = SliceLog(conditions.models)
        self._champion = ChampionMonitor(config, conditions)
        self._cooldown = RetrainCooldown(conditions.cooldown_seconds)
        self._reporter = RetrainStatusReporter(config, conditions.model)
        self._event_ms = 0
        self._explained: object = None

    def poll(self) -> RetrainEvent | None:
        """Return why to train now, None if there is no reason or one was given a moment ago.

        Raises BrokerUnavailable, TopicNotFound, RegistryUnavailable and other errors of the topic and of the slices.
        """
        history, now = self._slices.history(self._conditions.model), now_ms()
        request = SliceRequest(run="retrain monitor")
        topic = topic_offsets(self._topics, self._conditions.topic, request)
        new = decide_slice(request, history, topic).offsets
        count = count_offsets(new)
        trained_ms = _last((each.decided_ms for each in history), now)
        quiet_until_ms = _last((trained_ms, self._event_ms), now) + int(self._conditions.cooldown_seconds * 1000)
        is_quiet, is_enough = now < quiet_until_ms, count >= self._conditions.min_new_records
        champion = self._champion.facts(new if is_enough and not is_quiet else None, trained_ms=trained_ms, now=now)
        observed = RetrainObservation(new_records=count, champion=champion, observed_ms=now)
        if is_quiet:
            self._report(observed, (cooldown_check(quiet_until_ms),))
            return None
        version = champion.version if champion else None
        checks = check_conditions(self._conditions, count, champion)
        met = [each.reason for each in checks if each.is_met]
        reasons = self._cooldown.due(met, slices=len(history), champion=version, now_ms=now)
        shown = shown_checks(checks, due=reasons)
        self._report(observed, shown)
        if not reasons:
            self._explain(shown)
            return None
        self._event_ms = now
        return RetrainEvent(
            model=self._conditions.model,
            champion=version,
            topic=topic.topic,
            topic_id=topic.topic_id,
            until=dict(topic.end),
            slice=len(history),
            reasons=reasons,
            observed_ms=now,
        )

    def close(self) -> None:
        """Close the Kafka clients of the status."""
        self._reporter.close()

    def _report(self, observed: RetrainObservation, checks: tuple[RetrainCheck, ...]) -> None:
        self._reporter.report(observed.status(self._conditions, checks))

    def _explain(self, checks: tuple[RetrainCheck, ...]) -> None:
        """Log why there is no event, if that has changed."""
        state = [(each.condition, each.is_met) for each in checks]
        if state != self._explained:
            log.info("%s is not trained again: %s", self._conditions.model, "; ".join(each.text for each in checks))
        self._explained = state


def _last(moments: Iterable[int], now: int) -> int:
    """Return the last moment up to now, 0 for none: a later one is of a clock that is ahead."""
    return max((each for each in moments if each <= now), default=0)
