"""Fills the blocks of the documentation that are cut from the code: examples, and the arguments of operators.

    <!-- example: dags/deploy_transform.py build -->
    <!-- arguments: wasmline_provider.operators.build.WasmBuildOperator -->

A block ends with ``<!-- end -->``. An example is the statement of the file that makes the name, the task or an object
of the class ``build``.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

BLOCK = re.compile(r"(<!-- (example|arguments): ([^\n]+) -->\n).*?(<!-- end -->)", re.DOTALL)

DESCRIBED_ELSEWHERE = ("MultipleOutputsOperator", "SparkJobOperator")
"""Bases whose arguments are on a page of their own."""


def filled(page: str) -> str:
    """Return a page with its blocks as the code is now. Raises LookupError for what the code does not have."""

    def block(found: re.Match[str]) -> str:
        text = example(*found[3].split()) if found[2] == "example" else arguments(found[3])
        return f"{found[1]}{text}{found[4]}"

    return BLOCK.sub(block, page)


def example(path: str, name: str) -> str:
    """Return the one statement of a file that makes ``name``, as a fenced block."""
    source = (ROOT / path).read_text()
    statements = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Assign | ast.Expr))
    found = [node for node in statements if _makes(node, name)]
    if len(found) != 1:
        raise LookupError(f"{path} has {len(found)} statements that make {name}, not one")
    (statement,) = found
    lines = source.splitlines(keepends=True)[statement.lineno - 1 : statement.end_lineno]
    return f"```python\n{textwrap.dedent(''.join(lines))}```\n"


def _makes(statement: ast.Assign | ast.Expr, name: str) -> bool:
    call = statement.value
    if not isinstance(call, ast.Call):
        return False
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    tasks = [each.value for each in call.keywords if each.arg == "task_id"]
    names = [each.id for each in (*targets, call.func) if isinstance(each, ast.Name)]
    return name in (*names, *(each.value for each in tasks if isinstance(each, ast.Constant)))


def arguments(operator: str) -> str:
    """Return how to import an operator or a trigger, its arguments with their defaults, and its links."""
    module, _, name = operator.rpartition(".")
    made: Any = getattr(import_module(module), name)
    described = descriptions(made)
    fields = getattr(made, "template_fields", None)  # triggers have none
    rows = [("argument", "default", "template", "meaning"), ("---",) * 4]
    for parameter in parameters(made):
        if parameter.name not in described:
            raise LookupError(f"the docstring of {name} has no :param {parameter.name}:")
        template = "yes" if fields and parameter.name in fields else ""
        rows.append((f"`{parameter.name}`", _default(parameter), template, described[parameter.name]))
    shown = rows if fields is not None else [(first, default, meaning) for first, default, _, meaning in rows]
    table = "".join(f"| {' | '.join(row)} |\n" for row in shown)
    return f"```python\nfrom {module} import {name}\n```\n\n{table}{'' if fields is None else _links(made)}"


def _links(operator: Any) -> str:
    links = ", ".join(f"[{link.name}](../airflow.md#links)" for link in operator.operator_extra_links)
    return f"\nLinks in Airflow's UI: {links or 'none'}.\n"


def parameters(made: type) -> Iterator[inspect.Parameter]:
    """Yield the arguments of a class and of those of its bases that no other page describes."""
    known: set[str] = set()
    for base in made.__mro__:
        elsewhere = base.__name__ in DESCRIBED_ELSEWHERE and base is not made
        if elsewhere or not base.__module__.startswith("wasmline_provider."):
            return
        if "__init__" not in vars(base):
            continue
        for parameter in inspect.signature(vars(base)["__init__"]).parameters.values():
            if parameter.kind is parameter.KEYWORD_ONLY and parameter.name not in known:
                known.add(parameter.name)
                yield parameter


def descriptions(made: type) -> dict[str, str]:
    """Return what the docstrings of a class and of its bases say of each argument, as cells of a table."""
    found: dict[str, str] = {}
    for base in made.__mro__:
        described = re.findall(r"^:param (\w+): (.*(?:\n .*)*)", inspect.cleandoc(base.__doc__ or ""), re.MULTILINE)
        for name, text in described:
            line = " ".join(text.split()).replace("``", "`").replace("|", "\\|").rstrip(".")
            found.setdefault(name, line)
    return found


def _default(parameter: inspect.Parameter) -> str:
    if parameter.default is parameter.empty:
        return "required"
    if parameter.name == "deferrable":
        return "`[operators] default_deferrable` of Airflow"
    value = json.dumps(parameter.default) if isinstance(parameter.default, str) else repr(parameter.default)
    return f"`{value}`"


def main() -> None:
    """Fill the blocks of all pages."""
    for page in sorted(DOCS.rglob("*.md")):
        text = page.read_text()
        if (new := filled(text)) != text:
            page.write_text(new)
            print(f"filled {page.relative_to(ROOT)}")  # noqa: T201


if __name__ == "__main__":
    main()
