from wasmline.repeated_errors import RepeatedErrors, error_line


def test_an_error_is_told_once_until_it_changes_or_is_solved() -> None:
    errors = RepeatedErrors()
    away, gone = OSError("away"), OSError("gone")
    assert [errors.changed("poll", each) for each in (away, away, gone, away)] == [
        "OSError: away",
        "",
        "OSError: gone",
        "OSError: away",
    ]
    errors.solved("poll")
    errors.solved("store")
    assert errors.changed("poll", away) == "OSError: away"


def test_each_thing_has_its_own_error() -> None:
    errors = RepeatedErrors()
    assert errors.changed("poll", ValueError("a")) == errors.changed("store", ValueError("a")) == "ValueError: a"


def test_an_error_is_one_printable_line() -> None:
    assert error_line(ValueError("a\nb\x1b[31m")) == "ValueError: a b\\u001b[31m"
