"""From a project to a module."""

from __future__ import annotations

import logging
import tempfile
import time
from pathlib import Path

from wasmline.build.cache import BuildCache, write_whole
from wasmline.build.project import TransformProject
from wasmline.build.report import BuildReport
from wasmline.build.source import digest, revision, sources
from wasmline.build.toolchains import Toolchain, toolchain_for
from wasmline.cache_folder import cache_root
from wasmline.errors import BuildFailed
from wasmline.registry import digest_of

log = logging.getLogger(__name__)


def build(project: TransformProject, *, output: Path | None = None, cache_dir: Path | None = None) -> BuildReport:
    """Write the project's module to ``output`` (default ``build/<name>.wasm`` in its folder) and report how.

    The same sources give the same bytes, wherever they lie; sources that were built before are not built again. The
    module is checked for the transform ABI before it appears. Raises ToolchainMissing, BuildFailed, InvalidProject,
    UnsupportedAbi, MissingExport, UnknownImport.
    """
    started = time.monotonic()
    toolchain = toolchain_for(project.language)
    files = sources(project, toolchain.default_sources)
    version = toolchain.prepare(project)
    facts = (version, project.language, *toolchain.flags, *map(Path.as_posix, files))
    folders = (project.folder, *toolchain.folders(project))
    source_digest = digest(folders, facts, without=toolchain.own_folders)
    path = (output or project.folder / "build" / f"{project.name}.wasm").resolve()
    root = cache_dir or cache_root()
    try:
        cached = BuildCache(root).get(source_digest)
        wasm = cached or _compiled(project, toolchain, files, root)
        abi, imports = _checked(wasm)
        if not cached:
            BuildCache(root).put(source_digest, wasm)
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
        source_revision=revision(project.folder),
        imports=imports,
        abi=abi,
        seconds=round(time.monotonic() - started, 3),
        cached=cached is not None,
    )
    log.info("built %s: %s, %d bytes, %s", project.name, report.digest, report.size_bytes, version)
    return report


def _compiled(project: TransformProject, toolchain: Toolchain, files: tuple[Path, ...], root: Path | None) -> bytes:
    with tempfile.TemporaryDirectory(prefix="wasmline-build-") as folder:
        output = Path(folder) / "module.wasm"
        toolchain.compile(project, files, output, cache_dir=root or output.parent)
        return output.read_bytes()


def _checked(wasm: bytes) -> tuple[int, tuple[str, ...]]:
    """Return the ABI version and the imports of a module that a transform host can run."""
    from wasmline.wasm import check_abi
    from wasmline.wasm.declarations import declarations

    return check_abi(wasm), tuple(sorted({str(item) for item in declarations(wasm).imports}))
