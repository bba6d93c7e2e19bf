"""A tutorial does what it says: its files are written, its commands run, and each prints what stands below it."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"
FILE = re.compile(r"^`(?P<path>[^`\n]+)`:\n\n```\w+\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
CONSOLE = re.compile(r"^```console\n(?P<session>.*?)^```$", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^\$ (?P<command>.*)\n(?P<printed>(?:[^$].*\n|\n)*)", re.MULTILINE)
MARK = "----- next -----"


def steps(page: str) -> Iterator[tuple[str, str]]:
    """Yield shell commands in the order of the page, with what they print; a file's is the one that writes it."""
    found = sorted([*FILE.finditer(page), *CONSOLE.finditer(page)], key=re.Match.start)
    for match in found:
        if "path" in match.groupdict():
            yield f"cat > {match['path']} <<'END_OF_FILE'\n{match['text']}END_OF_FILE", ""
        else:
            for each in COMMAND.finditer(match["session"]):
                yield each["command"], each["printed"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", ["tutorial.md", "consumer.md"])
def test_every_command_prints_what_the_page_shows(page: str, tmp_path: Path) -> None:
    commands = list(steps((DOCS / page).read_text()))
    assert len(commands) > 10
    script = "".join(f"{{ {command}\n}} 2>&1; echo '{MARK}'\n" for command, _ in commands)
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "WASMLINE_CACHE": os.environ.get("WASMLINE_CACHE", str(Path.home() / ".cache" / "wasmline")),
    }
    for variable in ("WASMLINE_REGISTRY", "WASMLINE_KAFKA_CONFIG", "WASMLINE_KAFKA_CONFIG_FILE"):
        environment.pop(variable, None)
    try:
        ended = subprocess.run(
            ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
    finally:
        subprocess.run(["wasmline", "local", "down"], cwd=tmp_path, env=environment, capture_output=True, check=True)
    for (command, expected), printed in zip(commands, ended.stdout.split(f"{MARK}\n")[:-1], strict=True):
        pattern = ".*".join(re.escape(part) for part in expected.split("…"))
        assert re.fullmatch(pattern, printed), f"$ {command}\n{printed}"
