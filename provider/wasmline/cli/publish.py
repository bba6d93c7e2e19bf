"""``wasmline publish``: publishes a project's module as a version."""

from __future__ import annotations

from pathlib import Path

import click

from wasmline.cli.options import build_scripts_option, folder_argument, registry_option


@click.command()
@folder_argument
@registry_option
@build_scripts_option
def publish(folder: Path, registry: str, allow_build_scripts: bool) -> None:
    """Build the project in FOLDER and publish it as NAME@VERSION of its transform.yaml.

    Publishing the same bytes again changes nothing; other bytes require another version.
    """
    from wasmline.build import load_project, publish_build
    from wasmline.cli.build_progress import built
    from wasmline.registry import FilesystemRegistry

    project = load_project(folder)
    report, wasm = built(project, allow_build_scripts=allow_build_scripts)
    store = FilesystemRegistry(registry)
    version = publish_build(store, project, report, wasm)
    click.echo(f"{version}  {version.digest}  {version.size_bytes:,} bytes  in {store.url}")
