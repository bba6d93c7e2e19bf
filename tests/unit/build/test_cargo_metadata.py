from pathlib import Path
from typing import Any

import pytest

from wasmline.build.project import TransformProject
from wasmline.build.toolchains.cargo_metadata import Crates
from wasmline.errors import BuildFailed


@pytest.fixture
def project(tmp_path: Path) -> TransformProject:
    folder = tmp_path / "a project"
    folder.mkdir()
    (folder / "Cargo.toml").touch()
    return TransformProject(folder=folder, name="t", input_topic="in", output_topics=("out",), language="rust")


def package(folder: Path, name: str, *kinds: str, source: str | None = None) -> dict[str, Any]:
    """A package of one target for each kind, in the form of ``cargo metadata``."""
    targets = [
        {"name": f"{name}-{at}", "kind": [kind], "src_path": f"{folder}/{at}.rs"} for at, kind in enumerate(kinds)
    ]
    manifest = str(folder / "Cargo.toml")
    return {
        "id": name, "name": name, "version": "1.0.0", "source": source, "manifest_path": manifest, "targets": targets
    }  # fmt: skip


def crates(
    project: TransformProject, *packages: dict[str, Any], needs: dict[str, dict[str, list[str | None]]]
) -> Crates:
    """The first package is the project's; ``needs`` are dependencies by name, each with its kinds."""
    nodes = [
        {
            "id": one["id"],
            "deps": [
                {"pkg": name, "dep_kinds": [{"kind": kind} for kind in kinds]}
                for name, kinds in needs.get(one["id"], {}).items()
            ],
        }
        for one in packages
    ]
    resolve = {"root": packages[0]["id"], "nodes": nodes}
    return Crates(project, {"workspace_root": str(project.folder), "packages": [*packages], "resolve": resolve})


@pytest.mark.parametrize(("kind", "word"), [("custom-build", "build script"), ("proc-macro", "macro")])
@pytest.mark.parametrize("needed_to", [None, "build"])
def test_code_that_runs_on_this_machine_is_named_once_with_what_allows_it(
    project: TransformProject, kind: str, word: str, needed_to: str | None
) -> None:
    own = package(project.folder, "t", "bin")
    between = package(project.folder / "b", "between", "lib", source="registry")
    evil = package(project.folder / "e", "evil", "lib", kind, source="registry")
    needs = {"t": {"between": [needed_to]}, "between": {"evil": [needed_to]}}
    with pytest.raises(BuildFailed) as caught:
        crates(project, own, between, evil, needs=needs).reject_host_code()
    assert str(caught.value).endswith(
        f"to be built: evil 1.0.0 ({word}). If you trust it: wasmline build '{project.folder}' --allow-build-scripts "
        "(operators: allow_build_scripts=True)"
    )
    assert caught.value.log == ""


def test_what_only_tests_need_is_not_compiled(project: TransformProject) -> None:
    own, evil = package(project.folder, "t", "bin"), package(project.folder / "e", "evil", "proc-macro", source="x")
    crates(project, own, evil, needs={"t": {"evil": ["dev"]}}).reject_host_code()


def test_crates_that_need_each_other_are_looked_at_once(project: TransformProject) -> None:
    own, other = package(project.folder, "t", "bin"), package(project.folder / "o", "other", "lib", source="x")
    crates(project, own, other, needs={"t": {"other": [None]}, "other": {"t": ["dev", None]}}).reject_host_code()


def test_an_unstable_feature_of_cargo_is_host_code(project: TransformProject) -> None:
    (project.folder / "Cargo.toml").write_text('cargo-features = ["x"]')
    with pytest.raises(BuildFailed, match="of cargo's unstable features"):
        crates(project, package(project.folder, "t", "bin"), needs={}).reject_host_code()


def test_the_module_is_the_one_binary_target(project: TransformProject) -> None:
    assert crates(project, package(project.folder, "t", "lib", "bin"), needs={}).binary_target() == "t-1"


@pytest.mark.parametrize(("kinds", "found"), [(["lib"], "no program"), (["bin", "bin"], "t-0, t-1")])
def test_none_and_several_binary_targets_are_refused(project: TransformProject, kinds: list[str], found: str) -> None:
    with pytest.raises(BuildFailed, match=f"builds {found}; a transform is exactly one program"):
        crates(project, package(project.folder, "t", *kinds), needs={}).binary_target()


@pytest.mark.parametrize("name", ["@x.rs", "-x.rs", "src/@x/y.rs"])
def test_a_path_that_rustc_would_take_for_an_option_is_refused(project: TransformProject, name: str) -> None:
    own = package(project.folder, "t", "bin")
    own["targets"][0]["src_path"] = str(project.folder / name)
    with pytest.raises(BuildFailed, match="cannot name a crate's file or folder"):
        crates(project, own, needs={})


def test_the_files_are_those_of_the_crates_folders_but_for_hidden_ones_samples_and_results(
    project: TransformProject,
) -> None:
    neighbour = project.folder.parent / "voice"
    wanted = [project.folder / "src/main.rs", project.folder / "src/build/x.rs", neighbour / "src/lib.rs"]
    left_out = [project.folder / name for name in ("target/x", "build/x.wasm", "samples/x", ".git/x", "src/.hidden")]
    for file in (*wanted, *left_out):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    link, astray = project.folder / "src/link.rs", project.folder / "src/astray.rs"
    link.symlink_to(neighbour / "src/lib.rs")
    astray.symlink_to(project.folder / "target/x")
    fetched = package(project.folder.parent / "fetched", "fetched", "lib", source="registry")
    found = crates(project, package(project.folder, "t", "bin"), package(neighbour, "voice", "lib"), fetched, needs={})
    assert found.places() == {".": project.folder, "voice": neighbour}
    assert {*found.files()} == {*wanted, link, project.folder / "Cargo.toml", neighbour / "Cargo.toml"}
