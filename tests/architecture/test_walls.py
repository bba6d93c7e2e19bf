"""The walls of the house, checked on the running code: what an import loads, and what may never be needed."""

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import wasmline
from support.installed.environment import TEST_DEPENDENCIES
from wasmline.extras import EXTRAS
from wasmline_provider.get_provider_info import get_provider_info

INFO = get_provider_info()
ROOT = Path(wasmline.__file__).parent
REPOSITORY = Path(__file__).parents[2]
MODULES = sorted(
    ".".join(("wasmline", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
    for path in ROOT.rglob("*.py")
)

WITHOUT = """
import importlib, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1].split(","):
            raise ModuleNotFoundError(f"{name} is not installed", name=name)

sys.meta_path.insert(0, Refuse())
for name in sys.argv[2:]:
    importlib.import_module(name)
"""

BASE = ["wasmline", "wasmline.consumer", "wasmline.consumer.backends.kafka", "wasmline.kafka", "wasmline.leases",
        "wasmline.local", "wasmline.registry"]  # fmt: skip
EXECUTOR = ["wasmline.pipeline", "wasmline.spark.main", "wasmline.spark.parallel.lease_source"]
AIRFLOW = ["wasmline.build", "wasmline.control", "wasmline.redrive", *(
    module for kind in ("operators", "hooks", "triggers") for each in INFO[kind] for module in each["python-modules"]
)]  # fmt: skip

PICTURES = {".gif", ".jpg", ".png", ".webp"}

HEAVY = ("airflow", "confluent_kafka", "matplotlib", "pandas", "pyarrow", "pyspark", "wasmtime", "xgboost")


def run(code: str, *arguments: str) -> str:
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_engine_module_imports_where_airflow_cannot_be_imported() -> None:
    run(WITHOUT, "airflow,wasmline_provider", *MODULES)


@pytest.mark.parametrize(
    ("extras", "modules"),
    [([], BASE), (["spark", "wasm"], EXECUTOR), (["airflow", "wasm"], AIRFLOW)],
    ids=["consumer", "executor", "airflow"],
)
def test_what_an_installation_runs_imports_without_the_other_extras(extras: list[str], modules: list[str]) -> None:
    run(WITHOUT, ",".join(library for library, extra in EXTRAS.items() if extra not in extras), *modules)


def test_the_suite_loads_no_more_than_is_installed_for_each_cell_of_the_matrix() -> None:
    dev = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]["dev"]
    others = {re.split("[>=]", line)[0] for line in dev} - set(TEST_DEPENDENCIES)
    absent = {name for name, of in importlib.metadata.packages_distributions().items() if others & set(of)}
    path = f"import sys; sys.path[:0] = [{str(REPOSITORY / 'tests')!r}]\n"
    plugins = "for name in sys.modules['conftest'].pytest_plugins:\n    importlib.import_module(name)"
    run(path + WITHOUT + plugins, ",".join(absent), "conftest")


def test_a_command_whose_extra_is_missing_says_in_one_line_what_to_install() -> None:
    code = "import sys; sys.modules['wasmtime'] = None; from wasmline.cli import main; main(['list'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "wasmline: wasmtime is not installed: pip install 'wasmline[wasm]'\n"


def test_each_extra_that_is_named_installs_its_library() -> None:
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    distributions = {"airflow": "apache-airflow", "py4j": "pyspark", "xgboost": "xgboost-cpu"}
    for library, extra in EXTRAS.items():
        name = distributions.get(library, library.replace("_", "-"))
        assert any(re.match(rf"{name}[>=]", line) for line in extras[extra]), library


def test_importing_the_package_loads_nothing_heavy() -> None:
    loaded = run("import sys, wasmline; print(*sys.modules)").split()
    assert not set(HEAVY) & set(loaded)


@pytest.mark.parametrize("package", ["wasmline.local", "wasmline.cli"])
def test_the_command_line_and_the_local_services_load_nothing_heavy(package: str) -> None:
    loaded = run(f"import sys, {package}; print(*sys.modules)").split()
    assert not set(HEAVY) & set(loaded)


def test_the_version_is_the_distributions() -> None:
    assert importlib.metadata.version("wasmline") == wasmline.__version__


@pytest.mark.skipif(not (REPOSITORY / ".git").exists(), reason="needs a checkout of git, which knows what is ignored")
def test_nothing_prebuilt_is_in_the_repository() -> None:
    """Modules, libraries, jars and archives are built or fetched, each checked: a binary file may only be a picture."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    files = [REPOSITORY / name for name in listed.stdout.split("\0") if name]
    assert files
    assert [
        file for file in files if file.is_file() and file.suffix not in PICTURES and b"\0" in file.read_bytes()
    ] == []


def test_the_lock_and_the_project_name_no_host() -> None:
    for name in ("requirements.lock", "pyproject.toml"):
        lines = (REPOSITORY / name).read_text().splitlines()
        assert [line for line in lines if "://" in line and not line.startswith(("Documentation", "Repository"))] == []


def test_the_lock_has_one_release_of_pyspark_and_its_client() -> None:
    locked = dict(re.findall(r"^(pyspark|pyspark-client)==(\S+)", (REPOSITORY / "requirements.lock").read_text(), re.M))
    assert locked["pyspark"] == locked["pyspark-client"]


def test_dependencies_are_ranges_except_the_compiler_whose_release_is_part_of_a_modules_bytes() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = {name: each for name, each in project["optional-dependencies"].items() if name != "dev"}
    pinned = [line for each in [project["dependencies"], *extras.values()] for line in each if "==" in line]
    assert [line.partition("==")[0] for line in pinned] == ["ziglang"]


def imports(path: Path) -> set[str]:
    """Return the modules of the engine that a file imports."""
    tree = ast.parse(path.read_text())
    named = {
        f"{node.module}.{each.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for each in node.names
    }
    named |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    named |= {each.name for node in ast.walk(tree) if isinstance(node, ast.Import) for each in node.names}
    return named & set(MODULES)


def test_no_room_imports_a_module_of_another_rooms_sub_room() -> None:
    """``wasmline.kafka.topics`` is for all; of ``wasmline.consumer.state`` others get what the package exports."""
    for path in [*ROOT.rglob("*.py"), *(ROOT.parent / "wasmline_provider").rglob("*.py")]:
        room = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts[:2])
        inside = {name for name in imports(path) if name.count(".") > 2 and not name.startswith(f"{room}.")}
        allowed = {name for name in inside if (ROOT.parent / Path(*name.split(".")) / "__init__.py").exists()}
        assert not inside - allowed, path


def test_a_module_says_what_it_is_with_a_noun_or_a_verb_and_in_one_line() -> None:
    for path in [
        *ROOT.rglob("*.py"),
        *(ROOT.parent / "wasmline_provider").rglob("*.py"),
        *(REPOSITORY / "dags").rglob("*.py"),
    ]:
        first = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0]
        assert first, path
        assert first.split()[0].lower() not in ("what", "which", "who", "whoever", "how", "where", "whether", "why"), (
            path
        )


BANNED = re.compile(r"\b(door|house|desk|landlord|tenant|lessor|tenancy|errand|patience|deadman)\b", re.IGNORECASE)


def test_names_and_docstrings_have_none_of_the_words_that_the_glossary_replaced() -> None:
    for path in ROOT.rglob("*.py"):
        if path.name != "renames.py":
            assert not BANNED.findall(path.read_text()), path


CONSTRUCTORS = ("__init__", "__new__", "__post_init__")


def assigned(function: ast.AST) -> set[str]:
    """Return the attributes of ``self`` that a method sets."""
    return {
        each.attr
        for each in ast.walk(function)
        if isinstance(each, ast.Attribute)
        and isinstance(each.ctx, ast.Store)
        and isinstance(each.value, ast.Name)
        and each.value.id == "self"
    }


def declared(kind: ast.ClassDef, kinds: dict[str, list[ast.ClassDef]]) -> set[str]:
    """Return the attributes that a class, or one of its bases in the engine, has once it is constructed."""
    names = set()
    for each in kind.body:
        if isinstance(each, ast.FunctionDef) and each.name in CONSTRUCTORS:
            names |= assigned(each)
        elif isinstance(each, ast.Assign | ast.AnnAssign):
            names |= {node.id for node in ast.walk(each) if isinstance(node, ast.Name)}
    for base in {node.id for each in kind.bases for node in ast.walk(each) if isinstance(node, ast.Name)} - {kind.name}:
        for known in kinds.get(base, []):
            names |= declared(known, kinds)
    return names


def test_an_object_has_all_of_its_attributes_once_it_is_constructed() -> None:
    """A step that needs the result of another takes it as an argument; an attribute would leave the order unchecked."""
    kinds: dict[str, list[ast.ClassDef]] = {}
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not {"wasm", "testing"} & set(path.relative_to(ROOT).parts[:-1]):
                kinds.setdefault(node.name, []).append(node)
    del kinds["BackgroundCall"]  # whose thread sets the result
    late = {
        f"{kind.name}.{name}"
        for each in kinds.values()
        for kind in each
        for method in kind.body
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
        for name in assigned(method) - declared(kind, kinds)
    }
    assert late == set()
