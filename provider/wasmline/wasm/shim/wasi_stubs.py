"""Stubs of WASI functions that a transform may link but not use, files and sockets: they return "not supported".

As on Redpanda, arguments are checked nevertheless: a pointer with a type in the ABI, or a buffer with its length, must
lie in the guest's memory, else the call traps. Redpanda leaves the pointers to ``fdstat``, ``filestat`` and ``prestat``
untyped and never checks them; neither does this host.
"""

from __future__ import annotations

from wasmline.wasm.abi import FUNCTIONS, WASI
from wasmline.wasm.shim.wat import function_type, require_guest_range

WASI_NOSYS = 52
VECTOR_BYTES = 8
"""An iovec: an address and a length."""


def pointer(argument: int, size: int) -> str:
    """Return statements that trap unless an argument points to ``size`` bytes of the guest's memory."""
    return require_guest_range(f"(local.get {argument})", f"(i32.const {size})")


def array(argument: int, element: int = 1) -> str:
    """Return statements that trap unless an argument points to the number of elements in the next argument."""
    return require_guest_range(f"(local.get {argument})", f"(local.get {argument + 1})", element=element)


CHECKS = {
    "fd_pread": array(1, VECTOR_BYTES) + pointer(4, 4),
    "fd_prestat_dir_name": pointer(1, 1),
    "fd_pwrite": array(1, VECTOR_BYTES) + pointer(4, 4),
    "fd_read": array(1, VECTOR_BYTES) + pointer(3, 4),
    "fd_readdir": array(1) + pointer(4, 4),
    "fd_seek": pointer(3, 8),
    "fd_tell": pointer(1, 8),
    "path_create_directory": array(1),
    "path_filestat_get": array(2),
    "path_filestat_set_times": array(2),
    "path_link": array(2) + array(5),
    "path_open": array(2) + pointer(8, 4),
    "path_readlink": array(1) + array(3) + pointer(5, 4),
    "path_remove_directory": array(1),
    "path_rename": array(1) + array(4),
    "path_symlink": array(0) + array(3),
    "path_unlink_file": array(1),
    "sock_accept": pointer(2, 4),
    "sock_recv": array(1, VECTOR_BYTES) + pointer(4, 4) + pointer(5, 2),
    "sock_send": array(1, VECTOR_BYTES) + pointer(4, 4),
}
"""Checks by function. The shim implements these, as it has the guest's memory; the trampoline the rest."""


def wasi_stubs() -> str:
    """Return the functions of CHECKS as WebAssembly text."""
    return "\n".join(
        f"(func ${name} {function_type(FUNCTIONS[WASI][name])} {checks} (i32.const {WASI_NOSYS}))"
        for name, checks in CHECKS.items()
    )
