"""The spark-submit command of a launcher: its own program, application and jars, and the options of an order."""

import pytest

from wasmline.errors import InvalidJob
from wasmline.spark.driver_process import APPLICATION, option_value, require_options, submit_command


def test_the_jars_of_an_order_replace_the_launchers() -> None:
    assert submit_command(["--master", "yarn"], "/k.jar", "j", "r")[1:5] == ["--master", "yarn", "--jars", "/k.jar"]
    assert "/k.jar" not in submit_command(["--packages", "a:b:1"], "/k.jar", "j", "r")
    assert submit_command(["--verbose"], "/k.jar", "j", "r")[-4:] == ["--job", "j", "--run", "r"]
    assert submit_command([], "/k.jar", "j", "r")[3] == str(APPLICATION)


@pytest.mark.parametrize(
    "arguments",
    [("/tmp/evil.py",), ("--class", "Evil"), ("--conf",), ("--conf=spark.a=b",), ("--kill", "id"), ("--help",), ("",)],
)
def test_what_is_no_option_of_an_application_is_rejected(arguments: tuple[str, ...]) -> None:
    with pytest.raises(InvalidJob):
        require_options(("--driver-memory", "1g", *arguments))


@pytest.mark.parametrize("run", ["../../elsewhere", "--help", "a/b", "", "a b"])
def test_a_run_that_is_no_name_is_rejected(run: str) -> None:
    with pytest.raises(InvalidJob, match="is not a run"):
        submit_command((), "/k.jar", "j", run)


def test_the_value_of_an_option_is_found() -> None:
    arguments = ["--name", "x", "--master", "local[2]"]
    assert option_value(arguments, "--master") == "local[2]"
    assert option_value(arguments, "--jars") == ""
