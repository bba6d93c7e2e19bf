"""Builds a project to a module."""

from __future__ import annotations

import logging
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from wasmline.build.cache import BuildCache, write_whole
from wasmline.build.inputs import changed_project_error, digest
from wasmline.build.project import FILE, TransformProject
from wasmline.build.report import BuildReport
from wasmline.build.revision import revision
from wasmline.build.source_files import sources
from wasmline.build.toolchains import toolchain_for
from wasmline.disk_cache import cache_root, compiler_cache_folder
from wasmline.errors import BuildFailed
from wasmline.registry import digest_of

log = logging.getLogger(__name__)


def build(
    project: TransformProject,
    *,
    output: Path | None = None,
    cache_dir: Path | None = None,
    allow_build_scripts: bool = False,
) -> BuildReport:
    """Write the project's module to ``output`` (default ``build/<name>.wasm`` in its folder) and report how.

    The same sources give the same bytes in any location; sources that were built before are not built again. The
    module is checked for the transform ABI before it is written. No code of the project, or of its dependencies, runs
    on this machine, unless ``allow_build_scripts`` allows build scripts of Rust. Raises ToolchainMissing, BuildFailed,
    InvalidProject, UnsupportedAbi, MissingExport, UnknownImport.
    """
    started = time.monotonic()
    project = replace(project, folder=project.folder.resolve())
    toolchain = toolchain_for(project.language, allow_build_scripts=allow_build_scripts)
    files = sources(project, toolchain.default_sources)
    version = toolchain.prepare(project)
    facts = (version, project.language, *toolchain.flags, *map(Path.as_posix, files))
    path = output.absolute() if output else project.output(Path("build", f"{project.name}.wasm"))
    root = cache_dir or cache_root()
    cache = BuildCache(root)
    try:
        with tempfile.TemporaryDirectory(prefix="wasmline-build-") as temporary:
            scratch = Path(temporary).resolve()
            compiler_cache = scratch / "cache"
            if root and (name := toolchain.cache_name(project)):
                compiler_cache = compiler_cache_folder(root / name, fallback=compiler_cache)
            inputs = toolchain.inputs(project, files, cache_dir=compiler_cache)
            source_digest = digest(inputs, facts)
            commit = revision(project.folder, (project.folder / FILE, *inputs.values()))
            cached = cache.get(source_digest)
            if cached is None:
                toolchain.compile(project, files, scratch / "module.wasm", inputs=inputs, cache_dir=compiler_cache)
            wasm = cached or (scratch / "module.wasm").read_bytes()
        abi, imports = _checked(wasm)
        if cached is None:
            if digest(inputs, facts) != source_digest:
                raise changed_project_error(project)
            cache.put(source_digest, wasm)
        write_whole(path, wasm)
    except OSError as error:
        raise BuildFailed(f"{project.name} cannot be built: {error}", log=str(error)) from error
    report = BuildReport(
        path=str(path),
        digest=digest_of(wasm),
        size_bytes=len(wasm),
        name=project.name,
        version=project.version,
        language=project.language,
        toolchain=version,
        flags=toolchain.flags,
        sources=tuple(map(Path.as_posix, files)),
        source_digest=source_digest,
        source_revision=commit,
        imports=imports,
        abi=abi,
        seconds=round(time.monotonic() - started, 3),
        cached=cached is not None,
    )
    log.info("built %s: %s, %d bytes, %s", project.name, report.digest, report.size_bytes, version)
    return report


def _checked(wasm: bytes) -> tuple[int, tuple[str, ...]]:
    """Return the ABI version and the imports of a module that a transform host can run."""
    from wasmline.wasm import check_abi
    from wasmline.wasm.binary import declarations

    return check_abi(wasm), tuple(sorted({str(item) for item in declarations(wasm).imports}))
