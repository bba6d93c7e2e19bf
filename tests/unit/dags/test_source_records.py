from pathlib import Path

import pytest

from delivery.contract import COLUMNS
from delivery.source_records import START_MS, STEP_MS, Source, read_file
from wasmline.errors import SourceInvalid

HEADER = ",".join(COLUMNS).encode()


def written(folder: Path, *lines: bytes) -> Path:
    path = folder / "deliveries.csv"
    path.write_bytes(b"".join(lines))
    return path


def test_lines_are_records_byte_for_byte_with_the_driver_as_key(tmp_path: Path) -> None:
    odd = b"CDF\xa0\xff4, PATNA-01 ,x,,Snack ,\xe2\x80\xa8end "
    path = written(tmp_path, HEADER, b"\r\n", odd, b"\r\n", b"no columns", b"\n", b"\n", b"a,b")
    assert list(read_file(path)) == [
        Source(b"PATNA-01", odd, START_MS),
        Source(None, b"no columns", START_MS + STEP_MS),
        Source(b"b", b"a,b", START_MS + 2 * STEP_MS),
    ]


def test_a_byte_order_mark_before_the_header_is_no_difference(tmp_path: Path) -> None:
    assert len(list(read_file(written(tmp_path, b"\xef\xbb\xbf", HEADER, b"\n", b"a,b\n")))) == 1


def test_another_header_is_refused_naming_what_is_missing_and_what_is_not_expected(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER.replace(b"Type_of_vehicle", b"Colour"), b"\n")
    with pytest.raises(SourceInvalid, match=r"missing: Type_of_vehicle; not expected: Colour") as caught:
        next(read_file(path))
    assert caught.value.path == str(path)


def test_columns_in_another_order_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, ",".join(reversed(COLUMNS)).encode(), b"\n")
    with pytest.raises(SourceInvalid, match="another order"):
        next(read_file(path))


def test_a_file_that_is_not_there_is_refused_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(SourceInvalid, match=r"absent\.csv: cannot be read: No such file"):
        next(read_file(tmp_path / "absent.csv"))
