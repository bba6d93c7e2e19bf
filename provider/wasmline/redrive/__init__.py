"""Writes dead letters again: to the topics they come from, or through a transform."""

from wasmline.redrive.dead_letter_counts import DeadLetterCount, count_dead_letters
from wasmline.redrive.dead_letter_document import dead_letter_document
from wasmline.redrive.dead_letter_reader import DeadLetterReader, StoredDeadLetter
from wasmline.redrive.newest_dead_letters import NewestDeadLetters
from wasmline.redrive.redrive_plan import RedrivePlan, plan_redrive
from wasmline.redrive.redrive_run import run_redrive
from wasmline.redrive.source_records import Timestamps

__all__ = [
    "DeadLetterCount",
    "DeadLetterReader",
    "NewestDeadLetters",
    "RedrivePlan",
    "StoredDeadLetter",
    "Timestamps",
    "count_dead_letters",
    "dead_letter_document",
    "plan_redrive",
    "run_redrive",
]
