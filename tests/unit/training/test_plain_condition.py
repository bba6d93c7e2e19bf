"""Conditions of a registry's records are evaluated only if they compare fields."""

import pytest

from wasmline.training.plain_condition import is_plain_condition

FIELDS = ("id", "km", "kind", "time of day", "reflect", "select", "from")


@pytest.mark.parametrize(
    "condition",
    [
        "true",
        "km < 100 OR km IS NULL",
        "KM between 1 and 5.5e3 AND NOT (kind in ('a', 'b -'))",
        "`time of day` <> 'x' and -km * 2 >= 1",
        "kind LIKE 'reflect(%' and reflect = 1",
        "km<=>id",
        "",
    ],
)
def test_comparisons_of_fields_are_plain(condition: str) -> None:
    assert is_plain_condition(condition, FIELDS)


@pytest.mark.parametrize(
    "condition",
    [
        "reflect('java.lang.Runtime', 'getRuntime') is null",
        "reflect ('a')",
        "`reflect`\n('a')",
        "java_method('a', 'b') = 'c'",
        "abs(km) > 3",
        "other > 3",
        "id in (select id from text)",
        "exists(select 1)",
        "id in (from kind)",
        "km > 3 /* ' */ and reflect('a') /* ' */",
        "km > 3 -- '\nand reflect('a') -- '",
        "kind = 'a\\' or reflect(' or kind = '",
        "kind = \"a' or reflect('b') or kind = \"",
        "km.value > 3",
        "km > :limit",
        "kind = 'a",
        "km > 3; drop table x",
        "kмm > 3",
        "${km} > 3",
    ],
)
def test_anything_else_is_not(condition: str) -> None:
    assert not is_plain_condition(condition, FIELDS)
