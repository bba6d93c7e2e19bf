from __future__ import annotations

import logging
import os
import resource
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from wasmline import disk_cache
from wasmline.disk_cache import CacheFolder, cache_root, compiler_cache_folder

NAME = f"{'a' * 64}-guest.cwasm"
STRANGER = 65534
DAY_S = 86_400
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


@pytest.fixture(autouse=True)
def nothing_was_said_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_cache, "_warned", set())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "compiled"


@pytest.fixture
def cache(path: Path) -> CacheFolder:
    cache = CacheFolder(path)
    cache.put(NAME, b"code")
    return cache


def age(path: Path, seconds: float) -> None:
    os.utime(path, times=(time.time() - seconds,) * 2)


def test_what_was_put_is_found_again(cache: CacheFolder, path: Path) -> None:
    assert CacheFolder(path).get(NAME) == b"code"
    assert cache.get("other") is None
    cache.put(NAME, b"new code")
    assert cache.get(NAME) == b"new code"


@pytest.mark.parametrize("umask", [0, 0o777])
def test_an_entry_is_this_users_alone(path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        CacheFolder(path).put(NAME, b"code")
    finally:
        os.umask(before)
    assert [place.stat().st_mode & 0o777 for place in (path / NAME, path, path.parent)] == [0o600, 0o700, 0o700]
    assert CacheFolder(path).get(NAME) == b"code"


def linked(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def given_away(path: Path) -> None:
    os.chown(path, STRANGER, STRANGER)


def hard_link_to_an_entry_of_another_name(path: Path) -> None:
    path.unlink()
    CacheFolder(path.parent).put(f"{'b' * 64}-guest.cwasm", b"other code")
    path.hardlink_to(path.with_name(f"{'b' * 64}-guest.cwasm"))


FLAWS: list[Any] = [
    lambda path: path.chmod(0o660),
    lambda path: path.chmod(0o606),
    lambda path: path.write_bytes(path.read_bytes()[:-1]),
    lambda path: path.write_bytes(path.read_bytes()[:9]),
    lambda path: path.write_bytes(b""),
    linked,
    fifo,
    hard_link_to_an_entry_of_another_name,
    pytest.param(given_away, marks=needs_root),
]


@pytest.mark.parametrize("flaw", FLAWS)
def test_an_entry_that_another_may_have_written_is_not_used_but_made_again(
    cache: CacheFolder, path: Path, flaw: Callable[[Path], None]
) -> None:
    flaw(path / NAME)
    assert cache.get(NAME) is None
    cache.put(NAME, b"made again")
    assert cache.get(NAME) == b"made again"
    assert (path / NAME).stat(follow_symlinks=False).st_mode == 0o100600


def test_a_folder_in_the_place_of_an_entry_costs_only_time(cache: CacheFolder, path: Path) -> None:
    (path / NAME).unlink()
    (path / NAME).mkdir()
    assert cache.get(NAME) is None
    cache.put(NAME, b"code")
    assert [place.name for place in path.iterdir()] == [NAME]


@pytest.mark.parametrize("shared", ["cache/compiled", "cache"])
def test_nothing_is_read_from_or_kept_in_a_folder_that_others_may_write_to(
    cache: CacheFolder, path: Path, tmp_path: Path, shared: str
) -> None:
    (tmp_path / shared).chmod(0o777)
    assert cache.get(NAME) is None
    cache.put("another", b"code")
    assert [place.name for place in path.iterdir()] == [NAME]


@needs_root
def test_nothing_is_read_from_a_folder_of_another_user(cache: CacheFolder, path: Path) -> None:
    os.chown(path, STRANGER, STRANGER)
    assert cache.get(NAME) is None


def use_all(root: Path) -> None:
    """Use three folders below a root, as one build does."""
    for name in ("builds", "compiled"):
        CacheFolder(root / name).put(NAME, b"code")
        CacheFolder(root / name).get(NAME)
    compiler_cache_folder(root / "zig", fallback=root)


def test_one_warning_for_all_folders_names_the_path_and_the_command_that_cures_it(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = path.parent / "a cache"
    root.mkdir(parents=True)
    root.chmod(0o775)
    use_all(root)
    (said,) = caplog.messages
    assert said == (
        f"the cache folder {root}/builds is not used: other users may write to {root} (mode 0775). "
        f"Run: chmod go-w '{root}'"
    )
    subprocess.run(said.rpartition("Run: ")[2], shell=True, check=True)
    use_all(root)
    assert len(caplog.messages) == 1
    assert CacheFolder(root / "builds").get(NAME) == b"code"


@needs_root
def test_a_folder_of_another_user_is_to_be_deleted_not_to_be_taken_over(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.parent.mkdir()
    os.chown(path.parent, STRANGER, STRANGER)
    use_all(path.parent)
    (said,) = caplog.messages
    assert said.endswith(f"{path.parent} belongs to user {STRANGER}. Delete it or choose another $WASMLINE_CACHE")


@needs_root
def test_the_home_of_another_user_is_not_to_be_deleted(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.parent.mkdir()
    os.chown(path.parent, STRANGER, STRANGER)
    use_all(path.parent / ".cache/wasmline")
    (said,) = caplog.messages
    assert said.endswith(f"{path.parent} belongs to user {STRANGER}. Choose another $WASMLINE_CACHE")


def test_a_full_disk_is_to_be_freed(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_cache, "MIN_FREE_BYTES", 1 << 62)
    for name in ("zig", "cargo"):
        compiler_cache_folder(path / name, fallback=path)
    (said,) = caplog.messages
    assert said.endswith("MiB are free on its disk. Free space there or choose another $WASMLINE_CACHE")


def test_a_folder_that_cannot_be_made_is_to_be_chosen_anew(caplog: pytest.LogCaptureFixture) -> None:
    use_all(Path("/dev/null"))
    (said,) = caplog.messages
    assert said == ("the cache folder /dev/null/builds is not used: Not a directory. Choose another $WASMLINE_CACHE")


def test_an_entry_that_others_may_write_to_is_named_and_its_folder_goes_on(
    cache: CacheFolder, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (path / NAME).chmod(0o660)
    assert cache.get(NAME) is None
    assert caplog.messages == [f"other users may write to {path / NAME} (mode 0660): it is rebuilt"]


@pytest.mark.parametrize(
    "folder",
    [
        None,
        Path("/dev/null/cache"),
        Path("/proc/cache"),  # as little can be made there as on a disk that is only read
    ],
)
def test_a_folder_that_cannot_be_made_costs_only_time(folder: Path | None) -> None:
    CacheFolder(folder).put(NAME, b"code")
    assert CacheFolder(folder).get(NAME) is None


def test_a_disk_that_is_full_costs_only_time(path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, limits[1]))
    try:
        CacheFolder(path).put(NAME, bytes(10_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(path.iterdir()) == []


def test_what_is_too_large_for_an_entry_is_neither_kept_nor_read(
    cache: CacheFolder, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_cache, "MAX_ENTRY_BYTES", 3)
    cache.put("another", b"code")
    assert [place.name for place in path.iterdir()] == [NAME]
    assert cache.get(NAME) is None


def test_readers_see_a_whole_entry_while_it_is_written_again(cache: CacheFolder) -> None:
    contents = [bytes([byte]) * 200_000 for byte in range(2)]
    cache.put(NAME, contents[0])

    def write() -> None:
        for turn in range(100):
            cache.put(NAME, contents[turn % 2])

    with ThreadPoolExecutor(3) as pool:
        writers = [pool.submit(write) for _ in range(2)]
        seen = []
        while not all(writer.done() for writer in writers):
            seen.append(cache.get(NAME))
        for writer in writers:
            writer.result()
    assert seen
    assert all(content in contents for content in seen)


@pytest.mark.parametrize("old", [f"{'b' * 64}-f1c3362cbaff8955-17e916d90cea3af2.cwasm", f"{'b' * 64}.wasm"])
def test_what_was_not_used_for_a_month_is_dropped(cache: CacheFolder, path: Path, old: str) -> None:
    for name in (old, "mine.cwasm"):
        (path / name).write_bytes(b"")
        age(path / name, 31 * DAY_S)
    cache.put(NAME, b"code")
    assert sorted(place.name for place in path.iterdir()) == sorted([NAME, "mine.cwasm"])


@pytest.mark.parametrize("seconds", [31 * DAY_S, -31 * DAY_S])
def test_what_is_used_is_kept(cache: CacheFolder, path: Path, seconds: float) -> None:
    age(path / NAME, seconds)
    assert cache.get(NAME) == b"code"
    cache.put(f"{'b' * 64}-guest.cwasm", b"other")
    assert cache.get(NAME) == b"code"
    assert abs(time.time() - (path / NAME).stat().st_mtime) < DAY_S


def test_use_is_noted_once_a_day(cache: CacheFolder, path: Path) -> None:
    age(path / NAME, DAY_S / 2)
    noted = (path / NAME).stat().st_mtime_ns
    cache.get(NAME)
    assert (path / NAME).stat().st_mtime_ns == noted


@pytest.mark.parametrize("partial", [f".{NAME}.0123456789abcdef.partial", "tmpa_b2c3d4.partial"])
def test_what_a_killed_writer_left_is_dropped(cache: CacheFolder, path: Path, partial: str) -> None:
    (path / partial).write_bytes(b"co")
    cache.put(NAME, b"code")
    assert (path / partial).exists()  # it may be another's who is writing
    age(path / partial, 3_601)
    cache.put(NAME, b"code")
    assert not (path / partial).exists()


def test_what_was_not_used_for_the_longest_time_is_dropped_where_there_is_too_much(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_cache, "MAX_FOLDER_BYTES", 3_500)
    cache = CacheFolder(path)
    names = [f"{letter * 64}-guest.cwasm" for letter in "abcde"]
    for hours, name in enumerate(names):
        cache.put(name, bytes(1_000))
        age(path / name, (10 - hours) * 3_600)
    cache.put(NAME, bytes(1_000))
    assert sorted(place.name for place in path.iterdir()) == [names[0], *names[3:]]


def test_the_root_is_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    home = tmp_path / ".cache" / "wasmline"
    for configured, root in {"/some/folder": Path("/some/folder"), "~/folder": tmp_path / "folder", "": home}.items():
        monkeypatch.setenv("WASMLINE_CACHE", configured)
        assert cache_root() == root
    monkeypatch.delenv("WASMLINE_CACHE")
    assert cache_root() == home


@pytest.mark.parametrize("configured", ["relative/folder", ".", "~no-such-user/folder"])
def test_a_root_below_whatever_folder_is_the_current_one_is_not_used(
    configured: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WASMLINE_CACHE", configured)
    assert cache_root() == tmp_path / ".cache" / "wasmline"
    assert caplog.messages == [f"WASMLINE_CACHE={configured} is not an absolute path: using ~/.cache/wasmline"]
    monkeypatch.setenv("HOME", "relative")
    assert cache_root() is None


def test_a_missing_home_folder_is_the_cause_where_nothing_is_configured(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HOME", "relative")
    monkeypatch.delenv("WASMLINE_CACHE", raising=False)
    assert [cache_root(), cache_root()] == [None, None]
    assert caplog.messages == [
        "no cache folder is used: no home folder is known. Set WASMLINE_CACHE to an absolute path"
    ]


def test_a_tool_gets_a_folder_of_this_users_alone(tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "zig"
    assert compiler_cache_folder(folder, fallback=tmp_path) == folder
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("link", [False, True])
@needs_root
def test_a_tool_gets_another_folder_where_another_user_left_something(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, link: bool
) -> None:
    """While others could write to it; what it holds is executed."""
    folder = tmp_path / "zig"
    (folder / "o/libc").mkdir(parents=True)
    (folder / "o").chmod(0o777)
    planted = folder / "o/libc/libc.a"
    if link:
        planted.symlink_to(tmp_path)
    else:
        planted.touch()
    os.chown(planted, STRANGER, STRANGER, follow_symlinks=False)
    assert compiler_cache_folder(folder, fallback=Path("/elsewhere")) == Path("/elsewhere")
    (message,) = caplog.messages
    assert message.startswith(f"the cache folder {folder} is not used: user {STRANGER} owns {planted} in it. Delete it")
    assert compiler_cache_folder(folder, fallback=Path("/elsewhere")) == Path("/elsewhere")
    planted.unlink()
    assert compiler_cache_folder(folder, fallback=Path("/elsewhere")) == folder
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_tool_gets_another_folder_where_others_may_write(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tmp_path.chmod(0o777)
    assert compiler_cache_folder(tmp_path / "zig", fallback=Path("/elsewhere")) == Path("/elsewhere")
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_a_tool_gets_another_folder_where_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_cache, "MIN_FREE_BYTES", 1 << 62)
    assert compiler_cache_folder(tmp_path / "zig", fallback=Path("/elsewhere")) == Path("/elsewhere")
