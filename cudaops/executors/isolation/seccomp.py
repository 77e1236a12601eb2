"""System calls a child may not make: a classic BPF program, made here and loaded by the launcher.

A refused call fails with EPERM, so that a report says which one it was. Numbers: the kernel's
tables, arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h.
"""

from __future__ import annotations

import errno
import platform
import struct
from typing import NamedTuple

_X86_64: dict[str, int] = {
    "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "unshare": 272, "setns": 308,
    "mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "keyctl": 250, "add_key": 248,
    "request_key": 249, "bpf": 321, "perf_event_open": 298, "userfaultfd": 323,
    "init_module": 175, "finit_module": 313, "delete_module": 176, "kexec_load": 246,
    "kexec_file_load": 320, "kcmp": 312, "reboot": 169, "swapon": 167, "swapoff": 168,
    "open_by_handle_at": 304, "name_to_handle_at": 303, "personality": 135, "acct": 163,
    "quotactl": 179, "iopl": 172, "ioperm": 173, "modify_ldt": 154, "settimeofday": 164,
    "clock_settime": 227, "clock_adjtime": 305, "adjtimex": 159, "sethostname": 170,
    "setdomainname": 171, "syslog": 103, "vhangup": 153, "move_pages": 279, "migrate_pages": 256,
    "fanotify_init": 300, "shmget": 29, "shmat": 30, "semget": 64, "msgget": 68, "mq_open": 240,
    "memfd_create": 319, "prlimit64": 302, "socket": 41, "socketpair": 53, "clone": 56,
    "fork": 57, "vfork": 58, "connect": 42, "bind": 49, "ioctl": 16, "chmod": 90, "fchmod": 91,
    "fchmodat": 268, "chown": 92, "fchown": 93, "lchown": 94, "fchownat": 260, "utime": 132,
    "utimes": 235, "futimesat": 261, "utimensat": 280, "setxattr": 188, "lsetxattr": 189,
    "fsetxattr": 190, "removexattr": 197, "lremovexattr": 198, "fremovexattr": 199,
}  # fmt: skip
_AARCH64: dict[str, int] = {
    "ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271, "unshare": 97, "setns": 268,
    "mount": 40, "umount2": 39, "pivot_root": 41, "chroot": 51, "keyctl": 219, "add_key": 217,
    "request_key": 218, "bpf": 280, "perf_event_open": 241, "userfaultfd": 282,
    "init_module": 105, "finit_module": 273, "delete_module": 106, "kexec_load": 104,
    "kexec_file_load": 294, "kcmp": 272, "reboot": 142, "swapon": 224, "swapoff": 225,
    "open_by_handle_at": 265, "name_to_handle_at": 264, "personality": 92, "acct": 89,
    "quotactl": 60, "settimeofday": 170, "clock_settime": 112, "clock_adjtime": 266,
    "adjtimex": 171, "sethostname": 161, "setdomainname": 162, "syslog": 116, "vhangup": 58,
    "move_pages": 239, "migrate_pages": 238, "fanotify_init": 262, "shmget": 194, "shmat": 196,
    "semget": 190, "msgget": 186, "mq_open": 180, "memfd_create": 279, "prlimit64": 261,
    "socket": 198, "socketpair": 199, "clone": 220, "connect": 203, "bind": 200, "ioctl": 29,
    "fchmod": 52, "fchmodat": 53, "fchown": 55, "fchownat": 54, "utimensat": 88, "setxattr": 5,
    "lsetxattr": 6, "fsetxattr": 7, "removexattr": 14, "lremovexattr": 15, "fremovexattr": 16,
}  # fmt: skip
_BOTH: dict[str, int] = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428,
    "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433,
    "pidfd_open": 434, "clone3": 435, "pidfd_getfd": 438, "process_madvise": 440,
    "mount_setattr": 442, "quotactl_fd": 443, "memfd_secret": 447, "fchmodat2": 452,
    "setxattrat": 463, "removexattrat": 466, "file_setattr": 469,
}  # fmt: skip


class FilterArchitecture(NamedTuple):
    """A processor architecture as filters see it."""

    audit: int
    """AUDIT_ARCH_*, linux/audit.h."""
    calls: dict[str, int]


MACHINES: dict[str, FilterArchitecture] = {
    "x86_64": FilterArchitecture(0xC000003E, {**_X86_64, **_BOTH}),
    "aarch64": FilterArchitecture(0xC00000B7, {**_AARCH64, **_BOTH}),
}

NEVER: tuple[str, ...] = (
    "ptrace", "process_vm_readv", "process_vm_writev", "unshare", "setns", "mount", "umount2",
    "pivot_root", "chroot", "keyctl", "add_key", "request_key", "bpf", "perf_event_open",
    "io_uring_setup", "io_uring_enter", "io_uring_register", "userfaultfd", "init_module",
    "finit_module", "delete_module", "kexec_load", "kexec_file_load", "pidfd_getfd", "kcmp",
    "reboot", "swapon", "swapoff", "open_by_handle_at", "name_to_handle_at", "personality", "acct",
    "quotactl", "quotactl_fd", "iopl", "ioperm", "modify_ldt", "settimeofday", "clock_settime",
    "clock_adjtime", "adjtimex", "sethostname", "setdomainname", "syslog", "vhangup",
    "migrate_pages", "fanotify_init", "open_tree", "move_mount", "fsopen", "fsconfig", "fsmount",
    "fspick", "mount_setattr", "process_madvise", "memfd_secret",
)  # fmt: skip
"""Refused in every phase."""
HIDDEN_MEMORY: tuple[str, ...] = ("memfd_create", "shmget", "shmat", "semget", "msgget", "mq_open")
"""Memory that counts as nobody's or outlives its maker. CUDA needs memfd_create."""
ATTRIBUTES: tuple[str, ...] = (
    "chmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat", "utime", "utimes",
    "futimesat", "utimensat", "setxattr", "lsetxattr", "fsetxattr", "setxattrat", "removexattr",
    "lremovexattr", "fremovexattr", "removexattrat", "file_setattr",
)  # fmt: skip
"""Modes, owners, times and extended attributes, which Landlock leaves to the owner of a file. By
descriptor too: one that was opened for reading is enough."""
_FLAGS_OF_FILES = (0x40086602, 0x401C5820, 0x40806685)
"""FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR, FS_IOC_ENABLE_VERITY: linux/fs.h, linux/fsverity.h."""

AF_UNIX, AF_INET = 1, 2
SOCK_STREAM, SOCK_SEQPACKET, SOCK_TYPE = 1, 5, 0xF
CLONE_THREAD = 0x10000
X32 = 0x40000000
_LOAD, _JUMP_EQUAL, _JUMP_SET, _AND, _RETURN = 0x20, 0x15, 0x45, 0x54, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
_NOT_THERE, _NOBODY = 0x00050000 | errno.ENOSYS, 0x00050000 | errno.ENOENT
_DONE = 0x00050000
"""The call returns 0 and has done nothing."""
_NUMBER, _ARCH, _FIRST, _SECOND = 0, 4, 16, 24
"""Offsets in struct seccomp_data; arguments by their low halves (little-endian)."""


class Allowed(NamedTuple):
    """What a filter allows beside the calls that every child needs."""

    unix_sockets: bool = False
    pairs: bool = False
    """AF_UNIX without an address: sockets made in pairs, and lone ones that reach nobody."""
    only_pairs: bool = False
    """Of those the ones made in pairs alone: Rust's std makes one for a child that it starts."""
    tcp: bool = False
    """AF_INET with SOCK_STREAM alone."""
    processes: bool = False
    """False: threads alone."""
    hidden_memory: bool = False
    attributes: bool = False
    """`ATTRIBUTES`."""
    limits_of_others: bool = False
    """prlimit64 of another process: what starts children bounds them so."""


def supported() -> bool:
    """Whether filters are known for this processor."""
    return platform.machine() in MACHINES


def program(allowed: Allowed, machine: str | None = None) -> bytes:
    """The filter, eight bytes an instruction. Raises KeyError: a processor that is not known."""
    target = MACHINES[machine or platform.machine()]
    calls = target.calls
    refused: list[str] = [*NEVER]
    if not allowed.hidden_memory:
        refused += HIDDEN_MEMORY
    code = [_step(_LOAD, _ARCH), _step(_JUMP_EQUAL, target.audit, 1, 0), _step(_RETURN, _REFUSE)]
    code.append(_step(_LOAD, _NUMBER))
    if target is MACHINES["x86_64"]:
        code += [_step(_JUMP_SET, X32, 0, 1), _step(_RETURN, _REFUSE)]
    if not allowed.limits_of_others:
        code += _pids_of_others(calls)
    code += _sockets(calls, allowed)
    if not allowed.attributes:
        refused += ATTRIBUTES
        # std::filesystem::copy_file gives up where this fails, with a copy of its own in hand.
        code += [*_refuse(calls["fchmod"], _DONE), *_flags_of_files(calls)]
    if not allowed.processes:
        refused += ["fork", "vfork", "pidfd_open"]
        code += _threads_alone(calls)
    code += [step for name in refused if name in calls for step in _refuse(calls[name])]
    code.append(_step(_RETURN, _ALLOW))
    return b"".join(code)


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _refuse(number: int, how: int = _REFUSE) -> list[bytes]:
    return [_step(_JUMP_EQUAL, number, 0, 1), _step(_RETURN, how)]


def _when(number: int, body: list[bytes]) -> list[bytes]:
    """`body` where the call is this one; it ends with a return."""
    return [_step(_JUMP_EQUAL, number, 0, len(body)), *body]


def _pids_of_others(calls: dict[str, int]) -> list[bytes]:
    """prlimit64 of oneself alone: one account's processes may limit each other."""
    body = [
        _step(_LOAD, _FIRST), _step(_JUMP_EQUAL, 0, 1, 0), _step(_RETURN, _REFUSE),
        _step(_RETURN, _ALLOW),
    ]  # fmt: skip
    return _when(calls["prlimit64"], body)


def _flags_of_files(calls: dict[str, int]) -> list[bytes]:
    body = [_step(_LOAD, _SECOND)]
    for request in _FLAGS_OF_FILES:
        body += _refuse(request)
    return _when(calls["ioctl"], [*body, _step(_RETURN, _ALLOW)])


def _sockets(calls: dict[str, int], allowed: Allowed) -> list[bytes]:
    """A filter sees no address. Where only `pairs` are allowed, nothing that reaches one is let
    through: connect, and sockets that send to an address (SOCK_DGRAM, out of a pair too).

    CUDA's driver makes a SOCK_SEQPACKET and connects it to MPS; that nobody is there is what it
    hears on a machine without (seen in github.com/NVIDIA/cuda-checkpoint/issues/10). Another one it
    binds to `@cuda-uvmfd-...`: where `bind` fails, cuInit gives CUDA_ERROR_OPERATING_SYSTEM (seen
    on an H200, 580.159.04).
    """
    load = _step(_LOAD, _FIRST)
    body: list[bytes] = []
    if allowed.unix_sockets:
        body += [_step(_JUMP_EQUAL, AF_UNIX, 0, 1), _step(_RETURN, _ALLOW)]
    elif allowed.pairs:
        body += _connected_only()
    if allowed.tcp:
        body += [
            _step(_JUMP_EQUAL, AF_INET, 0, 4), _step(_LOAD, _SECOND), _step(_AND, SOCK_TYPE),
            _step(_JUMP_EQUAL, SOCK_STREAM, 0, 1), _step(_RETURN, _ALLOW),
        ]  # fmt: skip
    code = _when(calls["socket"], [load, *body, _step(_RETURN, _REFUSE)])
    if allowed.unix_sockets:
        return code
    pair = [load, *_connected_only()] if allowed.pairs or allowed.only_pairs else []
    code += _when(calls["socketpair"], [*pair, _step(_RETURN, _REFUSE)])
    if not allowed.tcp:
        code += _refuse(calls["connect"], _NOBODY)
        if not allowed.pairs:
            code += _refuse(calls["bind"])
    return code


def _connected_only() -> list[bytes]:
    """AF_UNIX of a type that sends to nobody but its peer."""
    return [
        _step(_JUMP_EQUAL, AF_UNIX, 0, 6), _step(_LOAD, _SECOND), _step(_AND, SOCK_TYPE),
        _step(_JUMP_EQUAL, SOCK_STREAM, 1, 0), _step(_JUMP_EQUAL, SOCK_SEQPACKET, 0, 1),
        _step(_RETURN, _ALLOW), _step(_RETURN, _REFUSE),
    ]  # fmt: skip


def _threads_alone(calls: dict[str, int]) -> list[bytes]:
    """clone with CLONE_THREAD; clone3, whose flags cannot be seen, is not there: libc falls back
    to clone."""
    body = [
        _step(_LOAD, _FIRST), _step(_JUMP_SET, CLONE_THREAD, 1, 0), _step(_RETURN, _REFUSE),
        _step(_RETURN, _ALLOW),
    ]  # fmt: skip
    return [*_when(calls["clone"], body), *_refuse(calls["clone3"], _NOT_THERE)]
