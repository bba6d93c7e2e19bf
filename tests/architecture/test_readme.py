"""Nothing stands in the README that is not run elsewhere."""

import re
import textwrap
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
README = (REPOSITORY / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_python_is_a_slice_of_the_demos_dag() -> None:
    dag = (REPOSITORY / "dags" / "delivery_pipeline.py").read_text()
    snippets = blocks("python")
    assert snippets
    for snippet in snippets:
        assert textwrap.indent(snippet, "    ") in dag


def test_commands_are_make_targets_or_in_the_command_lines_own_page() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    page = (REPOSITORY / "docs" / "cli.md").read_text()
    commands = [line[2:] for block in blocks("console") for line in block.splitlines() if line.startswith("$ ")]
    assert commands
    for command in commands:
        words = command.split()
        assert words[1] in targets if words[0] == "make" else command in page


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (REPOSITORY / target).exists(), target
