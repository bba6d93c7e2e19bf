"""Operators that build, test and publish a transform project."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wasmline.errors import InvalidProject, InvalidReference
from wasmline_provider.argument_checks import given, require_locations, require_text, require_version
from wasmline_provider.hooks.wasmline import WasmlineHook
from wasmline_provider.operators.failures import fail_at_once
from wasmline_provider.operators.multiple_outputs import MultipleOutputsOperator

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

    from wasmline.build import BuildReport, TransformProject


class _ProjectOperator(MultipleOutputsOperator):
    """Base of the operators on a transform project."""

    template_fields: Sequence[str] = ("project",)
    ui_color = "#e9e4fd"

    def __init__(self, *, project: str, allow_build_scripts: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_text(InvalidProject, project=project)
        self.project = project
        self.allow_build_scripts = allow_build_scripts

    def _build(self) -> tuple[TransformProject, BuildReport]:
        """Build, or use the cache: each task may run on another machine, so none relies on another's files."""
        from wasmline.build import build, load_project

        project = load_project(self.project)
        return project, build(project, allow_build_scripts=self.allow_build_scripts)


class WasmBuildOperator(_ProjectOperator):
    """Builds a transform project to WebAssembly. The same sources give the same bytes, and are not built twice.

    Example::

        WasmBuildOperator(task_id="build", project="wasm_modules/delivery_distance")

    Returns the fields of ``wasmline.build.BuildReport``: ``name`` and ``version`` of the project, ``digest``,
    ``size_bytes``, ``imports`` and ``abi`` of the module, its ``path`` on the worker, ``language``, ``toolchain`` and
    ``flags``, ``sources``, ``source_digest`` and ``source_revision``, ``seconds``, and ``cached``: whether it was built
    before.

    :param project: the project's folder, with its ``transform.yaml``.
    :param allow_build_scripts: run a Rust project's build scripts and macros on the worker, outside of the sandbox.
    """

    output_keys = (
        *("name", "version", "digest", "size_bytes", "imports", "abi", "path", "language", "toolchain", "flags"),
        *("sources", "source_digest", "source_revision", "seconds", "cached"),
    )

    @fail_at_once
    def execute(self, context: Context) -> dict[str, Any]:
        from wasmline.documents import plain

        _, report = self._build()
        self.log.info("%s: %d bytes, %s, by %s", report.name, report.size_bytes, report.digest, report.toolchain)
        return self._returns(plain(report))

    def _lineage(self, result: Mapping[str, Any] | None) -> OperatorLineage[Any, Any]:
        from wasmline_provider.openlineage.module_lineage import build_lineage

        return build_lineage(self, result)


class WasmTestOperator(_ProjectOperator):
    """Runs a project's sample records through its module, and fails if the outputs are not the expected ones.

    Example::

        WasmTestOperator(task_id="test", project="wasm_modules/delivery_distance")

    Returns ``digest`` and the numbers of ``records``, ``outputs`` and ``failures``. Raises SampleMismatch with the
    difference.

    :param project: the project's folder, with its sample records.
    :param allow_build_scripts: run a Rust project's build scripts and macros on the worker, outside of the sandbox.
    """

    output_keys = ("digest", "records", "outputs", "failures")

    @fail_at_once
    def execute(self, context: Context) -> dict[str, Any]:
        from pathlib import Path

        from wasmline.build import run_samples
        from wasmline.documents import plain

        project, report = self._build()
        samples = run_samples(project, Path(report.path).read_bytes())
        self.log.info("%s: %d sample records gave the expected outputs", report.name, samples.records)
        return self._returns({"digest": report.digest, **plain(samples)})

    def _lineage(self, result: Mapping[str, Any] | None) -> OperatorLineage[Any, Any]:
        from wasmline_provider.openlineage.module_lineage import sample_lineage

        return sample_lineage(self)


class WasmPublishOperator(_ProjectOperator):
    """Publishes a project's module as immutable ``name@version``: other bytes under the same version are rejected.

    Example::

        WasmPublishOperator(
            task_id="publish",
            project="wasm_modules/delivery_distance",
            digest=build.output["digest"],
        )

    Returns ``name``, ``version``, ``digest`` and ``size_bytes``. Raises VersionExists, and DigestMismatch if the
    sources no longer give ``digest``.

    :param project: the project's folder; its ``transform.yaml`` gives the name and the defaults of deployments.
    :param registry: the folder or fsspec URL of the registry; None for that of the connection.
    :param version: the version, if it is not the one in ``transform.yaml``.
    :param digest: the digest of the built and tested module; None accepts that of the current sources.
    :param wasmline_conn_id: Airflow's connection with the URLs that are not given, and the login to their store.
    :param allow_build_scripts: run a Rust project's build scripts and macros on the worker, outside of the sandbox.
    """

    template_fields: Sequence[str] = (
        *_ProjectOperator.template_fields,
        "registry",
        "version",
        "digest",
        "wasmline_conn_id",
    )
    output_keys = ("name", "version", "digest", "size_bytes")

    def __init__(
        self,
        *,
        project: str,
        registry: str | None = None,
        version: str | None = None,
        digest: str | None = None,
        wasmline_conn_id: str = WasmlineHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(project=project, **kwargs)
        require_version(version)
        require_locations(InvalidReference, registry=registry)
        self.registry = registry
        self.version = version
        self.digest = digest
        self.wasmline_conn_id = wasmline_conn_id

    @fail_at_once
    def execute(self, context: Context) -> dict[str, Any]:
        from dataclasses import replace
        from pathlib import Path

        from wasmline.build import publish_build
        from wasmline.errors import DigestMismatch
        from wasmline.registry import FilesystemRegistry
        from wasmline_provider.asset_events import record

        locations = WasmlineHook(self.wasmline_conn_id).locate(registry=given(self.registry))
        project, report = self._build()
        if self.version:
            project = replace(project, version=self.version)
        if self.digest and self.digest != report.digest:
            raise DigestMismatch(
                f"{project.folder}: the sources changed since they were built and tested: run those steps again",
                expected=self.digest,
                actual=report.digest,
            )
        with locations.opened() as at:
            registry = FilesystemRegistry(at.registry)
        published = publish_build(registry, project, report, Path(report.path).read_bytes())
        self.log.info("%s is %s", published, published.digest)
        result = {
            "name": published.name,
            "version": published.version,
            "digest": published.digest,
            "size_bytes": published.size_bytes,
        }
        record(context, self.outlets, result)
        return self._returns(result)

    def _lineage(self, result: Mapping[str, Any] | None) -> OperatorLineage[Any, Any]:
        from wasmline_provider.openlineage.module_lineage import publish_lineage

        return publish_lineage(self, result)
