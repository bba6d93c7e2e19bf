"""``wasmline init | build | test``: creates, builds and tests a project."""

from __future__ import annotations

from pathlib import Path

import click

from wasmline.cli.options import build_scripts_option, folder_argument


@click.command()
@click.argument("folder", metavar="[DIR]", type=click.Path(path_type=Path), default=Path())
@click.option("-l", "--language", default="cpp", show_default=True, help="c, cpp, go or rust.")
@click.option("--name", help="The transform's name; by default the folder's.")
def init(folder: Path, language: str, name: str | None) -> None:
    """Write a new transform project into DIR: it builds, tests and runs as it is."""
    from wasmline.build import scaffold

    for path in scaffold(folder, language=language, name=name):
        click.echo(path)
    place = f" {folder}" if folder != Path() else ""
    click.echo(f"next: wasmline build{place} && wasmline test{place}", err=True)


@click.command()
@folder_argument
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The module's file; default build/NAME.wasm.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole build report as JSON.")
@build_scripts_option
def build(folder: Path, output: Path | None, as_json: bool, allow_build_scripts: bool) -> None:
    """Build the project in FOLDER (default: here) to a WebAssembly module."""
    from wasmline.build import load_project
    from wasmline.cli.build_progress import built
    from wasmline.documents import encode

    report, _ = built(load_project(folder), output=output, allow_build_scripts=allow_build_scripts)
    if as_json:
        click.echo(encode(report).decode())
        return
    how = "unchanged" if report.cached else f"{report.toolchain}, {report.seconds:.1f} s"
    click.echo(f"{report.path}  {report.size_bytes:,} bytes  {report.digest}  ({how})")


@click.command()
@folder_argument
@click.option("--accept", is_flag=True, help="Accept the current outputs as the expected ones.")
@click.option("--bless", is_flag=True, hidden=True)  # the name of --accept until 0.2.0
@build_scripts_option
def test(folder: Path, accept: bool, bless: bool, allow_build_scripts: bool) -> None:
    """Build the project in FOLDER and compare its outputs for the samples with the expected ones."""
    from wasmline.build import accept_samples, load_project, run_samples
    from wasmline.cli.build_progress import built

    accept = accept or bless
    project = load_project(folder)
    _, wasm = built(project, allow_build_scripts=allow_build_scripts)
    report = accept_samples(project, wasm) if accept else run_samples(project, wasm)
    verdict = "are now the expected ones" if accept else "as expected"
    counts = f"{report.records} records, {report.outputs} outputs, {report.failures} failures"
    click.echo(f"{project.name}: {counts} {verdict}")
