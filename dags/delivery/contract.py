"""The contract of a delivery record, implemented independently of the guest that enforces it.

A record is one CSV line, its columns in the order of ``COLUMNS``. The transform turns it into one JSON
object with the fields of ``FEATURES``; a line that violates the contract is dead-lettered instead. The time of a
delivery that is under way is empty. This implementation shares no code with the guest: if the two differ, a
verification fails.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

COLUMNS = (
    "ID",
    "Delivery_person_ID",
    "Delivery_person_Age",
    "Delivery_person_Ratings",
    "Restaurant_latitude",
    "Restaurant_longitude",
    "Delivery_location_latitude",
    "Delivery_location_longitude",
    "Type_of_order",
    "Type_of_vehicle",
    "Time_taken(min)",
)
NUMBERS = (2, 3, 4, 5, 6, 7, 10)
TIME_TAKEN = 10

FEATURES = ("id", "driver", "age", "rating", "distance_km", "order_type", "vehicle", "time_min")

BLANKS = " \t\r\n\v\f\u00a0\udca0"
"""Blanks around a field: ASCII blanks, and the no-break space, in UTF-8 or as the single byte A0."""

_DECIMAL = re.compile(r"-?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_SECTION = re.compile(r'"((?:[^"]|"")*)(?:"|\Z)')
_FIELD = re.compile(rf"(?=\")(?:{_SECTION.pattern}|[^\",])*|[^,]*")
_NOT_UTF8 = re.compile("[\udc80-\udcff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One line that meets the contract; coordinates in degrees, text without surrounding blanks.

    ``time_min`` is None while the delivery is under way.
    """

    id: str
    driver: str
    age: float
    rating: float
    restaurant: tuple[float, float]
    destination: tuple[float, float]
    order_type: str
    vehicle: str
    time_min: float | None


@dataclass(frozen=True, slots=True)
class Violation:
    """The reason why a line violates the contract, in one sentence."""

    reason: str


def fields(value: bytes) -> list[str]:
    """Return the fields of a CSV line (RFC 4180), trimmed; each byte that is not UTF-8 reads as U+FFFD.

    An unclosed quote extends to the end. A line break is a blank like any other.
    """
    text = value.decode("utf-8", "surrogateescape")
    cells: list[str] = []
    start = 0
    while start <= len(text) and (found := _FIELD.match(text, start)):
        cell = _SECTION.sub(_unquoted, found[0]) if found[0].startswith('"') else found[0]
        cells.append(_NOT_UTF8.sub("\ufffd", cell.strip(BLANKS)))
        start = found.end() + 1
    return cells


def _unquoted(section: re.Match[str]) -> str:
    return section[1].replace('""', '"')


def number(text: str) -> float | None:
    """Return a decimal number, or None where the text is not one or is out of a double's range; NaN is not a number."""
    if not _DECIMAL.fullmatch(text):
        return None
    parsed = float(text)
    underflow = parsed == 0 and re.search("[1-9]", re.split("[eE]", text)[0])
    return None if underflow or not math.isfinite(parsed) else parsed


def parse(value: bytes | None) -> Delivery | Violation:
    """Return the delivery of a record's value, without a check of the coordinates."""
    cells = fields(value or b"")
    if len(cells) != len(COLUMNS):
        return Violation(f"{len(cells)} columns instead of {len(COLUMNS)}")
    numbers: dict[int, float] = {}
    under_way = not cells[TIME_TAKEN]
    for column in NUMBERS[:-1] if under_way else NUMBERS:
        parsed = number(cells[column])
        if parsed is None:
            return Violation(f"{COLUMNS[column]} is not a finite number")
        numbers[column] = parsed
    return Delivery(
        id=cells[0],
        driver=cells[1],
        age=numbers[2],
        rating=numbers[3],
        restaurant=(numbers[4], numbers[5]),
        destination=(numbers[6], numbers[7]),
        order_type=cells[8],
        vehicle=cells[9],
        time_min=None if under_way else numbers[TIME_TAKEN],
    )


def read(value: bytes | None) -> Delivery | Violation:
    """Return the delivery of a record's value, or the reason why it must be dead-lettered.

    All deliveries are in India, north of the equator and east of Greenwich: a negative coordinate lost its sign.
    """
    delivery = parse(value)
    if isinstance(delivery, Delivery) and min(*delivery.restaurant, *delivery.destination) < 0:
        return Violation("a coordinate is negative")
    return delivery
