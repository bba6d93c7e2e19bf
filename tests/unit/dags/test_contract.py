import pytest

from delivery.contract import Delivery, Violation, read

GOOD = b"A1,PATNA-01,37,4.9,22.745049,75.892471,22.765049,75.912471,Snack ,motorcycle ,24"


def changed(column: int, text: bytes) -> bytes:
    cells = GOOD.split(b",")
    cells[column] = text
    return b",".join(cells)


def test_a_line_that_keeps_the_contract_is_read_without_its_blanks() -> None:
    assert read(GOOD) == Delivery(
        id="A1",
        driver="PATNA-01",
        age=37,
        rating=4.9,
        restaurant=(22.745049, 75.892471),
        destination=(22.765049, 75.912471),
        order_type="Snack",
        vehicle="motorcycle",
        time_min=24,
    )


@pytest.mark.parametrize("column", [2, 3, 4, 5, 6, 7, 10])
@pytest.mark.parametrize("text", [b"", b"x", b"1_0", b"0x1F", b"NaN", b"inf", b"-Infinity", b"1e999", b"1e-999", b"+5"])
def test_a_number_that_is_none_breaks_the_contract(column: int, text: bytes) -> None:
    under_way = column == 10 and not text
    assert isinstance(read(changed(column, text)), Delivery if under_way else Violation)


@pytest.mark.parametrize("time", [b"", b" ", b"\xc2\xa0"])
def test_a_delivery_that_is_under_way_has_no_time_yet(time: bytes) -> None:
    delivery = read(changed(10, time))
    assert isinstance(delivery, Delivery)
    assert delivery.time_min is None


@pytest.mark.parametrize("column", [4, 5, 6, 7])
def test_a_negative_coordinate_breaks_the_contract(column: int) -> None:
    assert read(changed(column, b"-22.7")) == Violation("a coordinate is negative")


def test_a_coordinate_of_zero_keeps_the_contract() -> None:
    assert isinstance(read(changed(4, b"0.0")), Delivery)


@pytest.mark.parametrize("value", [None, b"", b"a,b,c", GOOD + b",more", GOOD.rsplit(b",", 1)[0]])
def test_another_number_of_columns_breaks_the_contract(value: bytes | None) -> None:
    assert isinstance(read(value), Violation)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        (b"CDF\xc2\xa04", "CDF\u00a04"),
        (b"\xc2\xa0CDF\xa0 ", "CDF"),
        (b"a\xffb\xe2\x82", "a\ufffdb\ufffd\ufffd"),
        ("voilà".encode(), "voilà"),
        (b'"a,""b"""', 'a,"b"'),
        (b'"a"b"c,d"', "abc,d"),
        (b'a"b', 'a"b'),
        (b' "a"', '"a"'),
        (b"a\rb\r", "a\rb"),
    ],
)
def test_text_is_kept_but_for_blanks_around_it_and_bytes_that_are_not_utf8(text: bytes, meaning: str) -> None:
    delivery = read(changed(0, text))
    assert isinstance(delivery, Delivery)
    assert delivery.id == meaning


def test_a_quote_that_is_never_closed_swallows_the_columns_behind_it() -> None:
    assert read(changed(9, b'"motorcycle')) == Violation("10 columns instead of 11")


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\n\n"])
def test_a_line_ending_is_no_part_of_the_last_field(end: bytes) -> None:
    assert read(GOOD + end) == read(GOOD)
