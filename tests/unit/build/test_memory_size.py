import pytest

from wasmline.build.memory_size import parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [("65536", 65536), ("64MiB", 64 * 2**20), ("512 KiB", 512 * 1024), ("1gib", 2**30), (" 7 B ", 7)],
)
def test_amounts_of_memory_are_read_as_people_write_them(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MiB", "64MB", "6 4", "-1", "1.5GiB", "٣"])
def test_what_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an amount of memory"):
        parse_size(text)
