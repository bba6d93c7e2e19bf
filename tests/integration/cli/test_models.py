"""``wasmline models`` on a real broker: what serves is seen, a rollback asks, is done, and is seen."""

import json
import os
import pty
import pwd
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from support.eta_model import eta_record, eta_rows
from support.served_model import ServedModel, small_models
from wasmline.cli import main
from wasmline.registry import FilesystemRegistry
from wasmline.testing.kafka import RunningKafka
from wasmline.wasm.model_section import model_of

WASMLINE = str(Path(sys.executable).with_name("wasmline"))


@pytest.fixture(scope="module")
def model(kafka: RunningKafka, tmp_path_factory: pytest.TempPathFactory) -> ServedModel:
    """Return a model whose first version serves, and whose second is the champion: its module is missing."""
    rows = eta_rows()
    made = ServedModel(kafka, tmp_path_factory.mktemp("model"), small_models(rows, eta_record()), rows)
    made.promote("1.0.0")
    made.deploy("1.0.0")
    made.promote("1.1.0")
    return made


@pytest.fixture(scope="module")
def environment(model: ServedModel) -> dict[str, str]:
    config = json.dumps({"bootstrap.servers": model.kafka.bootstrap_servers})
    return {"WASMLINE_KAFKA_CONFIG": config, "WASMLINE_MODELS": model.models, "WASMLINE_REGISTRY": model.registry}


@pytest.fixture(scope="module")
def wasmline(environment: dict[str, str]) -> Callable[..., Result]:
    def run(*arguments: str) -> Result:
        return CliRunner().invoke(main, ["models", *arguments], env=environment)

    return run


def test_a_champion_goes_from_its_promotion_to_the_stream_and_back(
    model: ServedModel, wasmline: Callable[..., Result], environment: dict[str, str]
) -> None:
    name = model.name
    elsewhere = wasmline("list", "--check", "--models", f"{model.registry}/mistyped")
    assert elsewhere.exit_code == 3
    assert f"there are no models in {model.registry}/mistyped" in elsewhere.stderr
    missing = wasmline("list", "--check")
    assert missing.exit_code == 3
    head, row, told = missing.stdout.splitlines()
    assert head.split() == ["MODEL", "CHAMPION", "VERSIONS", "LATEST", "RMSE", "SERVING"]
    assert row.split() == [name, "1.1.0", "3", "1.2.0", "6.000", "not", "published"]
    assert f"{name}@1.1.0 is not published" in told
    assert f"run wasmline models compile {name}@1.1.0, then wasmline deploy {name}@1.1.0" in told

    compiled = wasmline("compile", name)
    assert compiled.exit_code == 0, compiled.output
    digest = FilesystemRegistry(model.registry).get(name, "1.1.0").digest
    assert compiled.stdout.startswith(f"{name}@1.1.0  {digest}  ")
    assert "published before" in wasmline("compile", name).stdout
    undeployed = wasmline("show", name, "--check")
    assert undeployed.exit_code == 3
    assert "serving     other version: " in undeployed.stdout

    deployed = CliRunner().invoke(main, ["deploy", f"{name}@1.1.0"], env=environment)
    assert deployed.exit_code == 0, deployed.output
    assert wasmline("list", "--check").exit_code == 0
    shown = wasmline("show", name, "--check", "--json")
    assert shown.exit_code == 0
    document = json.loads(shown.stdout)
    assert (document["version"], document["champion"], document["module"]["digest"]) == ("1.1.0", "1.1.0", digest)
    assert document["module"]["proof"]["held_out"] > 0
    assert (document["serving"]["state"], document["serving"]["deployments"][0]["digest"]) == ("serving", digest)
    text = wasmline("show", name).stdout
    assert f"model       {name}@1.1.0, the champion" in text
    assert f"serving     serving: generation 2 of {name} runs {name}@1.1.0" in text
    assert "proof       held_out " in text

    unexplained = wasmline("rollback", name, "--yes")
    assert (unexplained.exit_code, model.log.champion(name)) == (2, "1.1.0")
    assert "give --reason" in unexplained.stderr
    refused = wasmline("rollback", name, "--reason", "late orders")
    assert refused.exit_code == 2
    assert "there is no terminal to ask at: add --yes" in refused.stderr
    asked = at_a_terminal(environment, "rollback", name, "--reason", "late orders", answer="n\n")
    assert "the champion 1.1.0 is replaced by 1.0.0" in asked
    assert f"deployment {name}, generation 2" in asked
    assert (model.log.champion(name), model.deployed().generation) == ("1.1.0", 2)

    back = wasmline("rollback", name, "--reason", "late orders", "--yes")
    assert back.exit_code == 0, back.output
    assert back.stdout == (f"model {name} is rolled back from 1.1.0 to 1.0.0, decision 3: {name} generation 3\n")
    assert wasmline("show", name, "--check").exit_code == 0
    again = wasmline("rollback", name, "--to", "1.0.0", "--reason", "late orders", "--yes", "--json")
    assert (again.exit_code, json.loads(again.stdout)["deployments"]) == (0, [])
    *_, last = json.loads(wasmline("history", name, "--json").stdout)
    user = pwd.getpwuid(os.getuid()).pw_name
    assert (last["decision"], last["by"], last["reason"]) == ("rollback", user, "late orders")
    assert "3       " in wasmline("history", name).stdout
    further = wasmline("rollback", name, "--reason", "late orders", "--yes")
    assert further.exit_code == 1
    assert "has no champion before 1.0.0" in further.stderr


def test_a_compiled_model_is_written_to_a_file_and_not_published(
    model: ServedModel, wasmline: Callable[..., Result], tmp_path: Path
) -> None:
    module = tmp_path / "eta.wasm"
    result = wasmline("compile", f"{model.name}@1.2.0", "-o", str(module))
    assert result.exit_code == 0, result.output
    found = model_of(module.read_bytes())
    assert found is not None
    assert (found.proven, str(found.section.model)) == (True, f"{model.name}@1.2.0")
    assert "1.2.0" not in FilesystemRegistry(model.registry).versions(model.name)


def test_the_first_version_of_a_transform_needs_its_topics(
    model: ServedModel, wasmline: Callable[..., Result], tmp_path: Path
) -> None:
    other = ("--transform", "north", "--registry", str(tmp_path))
    result = wasmline("compile", f"{model.name}@1.0.0", *other, "--output-topic", "eta")
    assert result.exit_code == 2
    assert "give --input-topic, --dead-letter-topic" in result.stderr
    topics = ("-i", "features", "--output-topic", "eta", "--dead-letter-topic", "eta.dlq")
    assert wasmline("compile", f"{model.name}@1.0.0", *other, *topics, "--json").exit_code == 0
    assert wasmline("compile", f"{model.name}@1.1.0", *other).exit_code == 0, "with the topics of the version before"
    published = FilesystemRegistry(str(tmp_path))
    declared = [published.get("north", version).metadata.transform for version in ("1.0.0", "1.1.0")]
    assert declared[0]["output-topics"] == declared[1]["output-topics"] == ["eta", "eta.dlq"]


def at_a_terminal(environment: dict[str, str], *arguments: str, answer: str) -> str:
    """Return what the command prints at a terminal where it is answered once."""
    screen, terminal = pty.openpty()
    with subprocess.Popen(
        [WASMLINE, "models", *arguments],
        env=os.environ | environment,
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        os.close(terminal)
        os.write(screen, answer.encode())
        _, told = running.communicate()
    os.close(screen)
    assert running.returncode == 1
    return told
