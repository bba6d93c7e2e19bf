import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import wasmtime
from click.testing import CliRunner, Result

from support.eta_model import eta_section
from wasmline.cli import main
from wasmline.documents import encode
from wasmline.registry import ArtifactMetadata, FilesystemRegistry, digest_of
from wasmline.wasm.binary import add_last_section
from wasmline.wasm.model_section import SECTION, with_model

NAUGHTY = """
(module
  (import "env" "\\1b[2J\\0aredpanda       accepts it" (func))
  (memory (export "memory") 1 2)
  (start 1)
  (func unreachable))
"""


PROOF = "8,987 held-out, 25,000 boundary, 20 category and 2,000 random rows predicted as XGBoost 3.2.0 does, to the bit"


def inspect(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["inspect", *map(str, arguments)])


def test_a_module_is_shown_as_a_table(module: Path, wasm: bytes) -> None:
    result = inspect(module)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "name           echo",
        f"digest         {digest_of(wasm)}",
        f"size           {len(wasm):,} bytes, 1 functions",
        "abi            2",
        "memory         32 pages (2,097,152 bytes), no maximum",
        "limits         none declared",
        "start section  no",
        "imports        redpanda_transform.check_abi_version_2  function () -> ()",
        f"               redpanda_transform.read_batch_header    function ({', '.join(['i32'] * 10)}) -> i32",
        "               redpanda_transform.read_next_record     function (i32, i32, i32, i32, i32) -> i32",
        "               redpanda_transform.write_record         function (i32, i32) -> i32",
        "               wasi_snapshot_preview1.fd_write         function (i32, i32, i32, i32) -> i32",
        "exports        memory  memory 32 pages",
        "               _start  function () -> ()",
        "wasmline       accepts it",
        "redpanda       accepts it",
    ]


def test_machines_get_json(module: Path, wasm: bytes) -> None:
    document = json.loads(inspect("--json", module).stdout)
    assert document["name"] == "echo"
    assert document["digest"] == digest_of(wasm)
    assert (document["abi"], document["size_bytes"], document["limits"]) == (2, len(wasm), None)
    assert document["memory"] == {
        "initial_pages": 32,
        "initial_bytes": 2**21,
        "maximum_pages": None,
        "maximum_bytes": None,
    }
    assert document["imports"][4] == {
        "module": "wasi_snapshot_preview1",
        "name": "fd_write",
        "kind": "function",
        "type": "(i32, i32, i32, i32) -> i32",
    }
    assert document["exports"][1] == {"module": None, "name": "_start", "kind": "function", "type": "() -> ()"}
    assert document["wasmline"] == document["redpanda"] == {"accepted": True, "reasons": []}
    assert document["model"] is None


def test_a_version_shows_the_limits_it_was_published_with(wasm: bytes, tmp_path: Path) -> None:
    declared = {"input-topic": "in", "output-topics": ["out"], "memory-bytes": 2**20, "timeout-ms": 50}
    registry = FilesystemRegistry(str(tmp_path))
    registry.publish("echo", "1.0.0", wasm, metadata=ArtifactMetadata(transform=declared))
    document = json.loads(inspect("--json", "echo@1.0.0", "--registry", tmp_path).stdout)
    assert document["limits"] == {"memory_bytes": 2**20, "timeout_ms": 50}
    assert document["wasmline"]["reasons"] == [
        "its initial memory has 2,097,152 bytes, more than its limit of 1,048,576"
    ]
    assert document["redpanda"]["accepted"]
    shown = inspect("echo", "--registry", tmp_path).stdout
    assert "limits         1,048,576 bytes of memory, 50 ms per record\n" in shown


def test_what_nobody_would_run_is_shown_with_every_reason_and_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "naughty.wasm").write_bytes(bytes(wasmtime.wat2wasm(NAUGHTY)))
    result = inspect(tmp_path / "naughty.wasm")
    assert result.exit_code == 0
    assert "start section  yes\n" in result.stdout
    assert "memory         1 pages (65,536 bytes), at most 2 pages (131,072 bytes)\n" in result.stdout
    assert result.stdout.count("refuses it") == 2
    assert "               - at start: its memory declares a maximum" in result.stdout
    assert "\\u001b[2J\\u000aredpanda       accepts it" in result.stdout


@pytest.mark.parametrize("content", [b"", b"hello", b"\0asm\1\0\0", b"(module)"])
def test_what_is_no_module_is_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "no.wasm").write_bytes(content)
    for form in ((), ("--json",)):
        result = inspect(tmp_path / "no.wasm", *form)
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.startswith("wasmline: not a WebAssembly module")


def test_a_module_that_is_not_there_is_named(tmp_path: Path) -> None:
    result = inspect(tmp_path / "none.wasm")
    assert result.exit_code == 1
    assert "none.wasm does not exist" in result.stderr


def test_a_pipe_is_read_like_a_file(tmp_path: Path, wasm: bytes) -> None:
    pipe = tmp_path / "piped"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as thread:
        written = thread.submit(pipe.write_bytes, wasm)
        result = inspect(pipe)
        assert written.result(60) == len(wasm)
    assert result.stdout.splitlines()[:2] == ["name           piped", f"digest         {digest_of(wasm)}"]


@pytest.mark.parametrize(
    ("device", "says"), [("/dev/null", "not a WebAssembly module"), ("/dev/zero", "/dev/zero has more than")]
)
def test_a_device_is_read_as_far_as_a_module_could_go(device: str, says: str) -> None:
    result = inspect(device)
    assert result.exit_code == 1
    assert says in result.stderr


def test_a_model_is_shown_with_its_dataset_inputs_and_proof(wasm: bytes, tmp_path: Path) -> None:
    section = eta_section(wasm)
    whole = with_model(wasm, section)
    (tmp_path / "eta.wasm").write_bytes(whole)
    lines = inspect(tmp_path / "eta.wasm").stdout.splitlines()
    assert lines[2] == f"size           {len(whole):,} bytes, 1 functions"
    assert lines[-9:] == [
        "redpanda       accepts it",
        f"model          eta@1.0.0, {section.model.digest}",
        f"dataset        {section.model.dataset}",
        "predicts       minutes in min",
        "inputs         id: string, without it a dead letter",
        "               km in km: double",
        '               vehicle: string, scooter, bicycle, a "quoted" ä',
        "holdout        8,987 rows: RMSE 7.166 min, mean predictor 9.295 min",
        f"proof          {PROOF}",
    ]
    document = json.loads(inspect("--json", tmp_path / "eta.wasm").stdout)
    assert document["model"] == {"section": json.loads(encode(section)), "proven": True}


def test_a_module_that_was_changed_after_its_proof_is_shown_as_such(wasm: bytes, tmp_path: Path) -> None:
    other = wasm.replace(b"asked\n", b"ASKED\n")
    (tmp_path / "eta.wasm").write_bytes(with_model(other, eta_section(wasm)))
    result = inspect(tmp_path / "eta.wasm")
    assert result.exit_code == 0
    assert result.stdout.endswith(f"of another module, {digest_of(wasm)}: this one was changed after its proof\n")
    assert not json.loads(inspect("--json", tmp_path / "eta.wasm").stdout)["model"]["proven"]


def test_a_model_section_that_is_malformed_or_naughty_is_shown_as_text(wasm: bytes, tmp_path: Path) -> None:
    naughty = replace(eta_section(wasm), target="\x1b[2J\nproof", unit="\u202e")
    (tmp_path / "naughty.wasm").write_bytes(with_model(wasm, naughty))
    shown = inspect(tmp_path / "naughty.wasm").stdout
    assert "predicts       \\u001b[2J\\u000aproof in \\u202e\n" in shown
    (tmp_path / "malformed.wasm").write_bytes(add_last_section(wasm, SECTION, b"{}"))
    result = inspect(tmp_path / "malformed.wasm")
    assert result.exit_code == 0
    assert "model          the module does not say which model it has: Object missing required field `model`" in (
        result.stdout
    )
    assert "required field" in json.loads(inspect("--json", tmp_path / "malformed.wasm").stdout)["model"]["error"]
