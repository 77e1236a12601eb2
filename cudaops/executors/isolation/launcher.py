"""Confines itself as a prepared specification says, then becomes the command.

Started as `python -I -S -E launcher.py FD`; the standard library alone, as every import costs each
child. It stays behind as a small init that takes in the command's orphans and kills them when the
command ends or when whoever started it lets go of the `life` pipe. On the `report` pipe it says
`ready` right before the command begins, `failed STEP: WHY` or `exec ERRNO` where it does not begin,
and `ended CODE` when it is over. A step that fails ends it: the command never runs less confined.
"""

# pathlib and contextlib would cost each child some milliseconds.
# ruff: noqa: PTH116, PTH123, PTH208, SIM105
from __future__ import annotations

import ctypes
import marshal
import os
import resource
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` itself would cost each child some milliseconds
    from typing import Any, NoReturn

    Spec = dict[str, Any]

PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_SECUREBITS = 1, 22, 24, 28
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 36, 38, 47
SECBIT_NO_SETUID_FIXUP = 4
"""Source: linux/prctl.h, linux/securebits.h."""
LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446
CAPABILITY_VERSION_3 = 0x20080522
SIGKILL = 9
KILL_ROUNDS = 2000
NOT_BEGUN = 125
ETXTBSY = 26
TEXT_BUSY_TRIES, TEXT_BUSY_S = 100, 0.02
"""Whoever holds the file does so from a fork to its exec: milliseconds."""
_LIBC = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _prctl(option: int, *values: int) -> None:
    words = [ctypes.c_ulong(v) for v in (*values, 0, 0, 0, 0)[:4]]
    _checked(_LIBC.prctl(option, *words), f"prctl {option}")


def _syscall(number: int, *values: Any) -> int:
    return _checked(_LIBC.syscall(ctypes.c_long(number), *values), f"system call {number}")


def limits(spec: Spec) -> None:
    """Resource limits, and first in line where the kernel runs out of memory."""
    for number, value in spec["limits"]:
        hard = resource.getrlimit(number)[1]
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(number, (most, most))
    if spec["limits"]:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")


def no_new_privileges(spec: Spec) -> None:
    """No setuid program gives anything back."""
    if spec["no_new_privileges"]:
        _prctl(PR_SET_NO_NEW_PRIVS, 1)


def landlock(spec: Spec) -> None:
    """Files, TCP ports, signals and abstract sockets."""
    wanted = spec["landlock"]
    if wanted is None:
        return
    attributes = wanted["ruleset"]
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    size = ctypes.c_size_t(len(attributes))
    ruleset = _syscall(LANDLOCK_CREATE_RULESET, buffer, size, ctypes.c_uint(0))
    for path, for_folder, for_file, needed in wanted["paths"]:
        try:
            at = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            if needed:
                raise
            continue
        access = for_folder if os.stat(at).st_mode & 0o170000 == 0o040000 else for_file
        if access:
            rule = access.to_bytes(8, sys.byteorder) + at.to_bytes(4, sys.byteorder)
            _rule(ruleset, 1, rule)
        os.close(at)
    for port, access in wanted["ports"]:
        _rule(ruleset, 2, access.to_bytes(8, sys.byteorder) + port.to_bytes(8, sys.byteorder))
    _syscall(LANDLOCK_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint(0))
    os.close(ruleset)


def _rule(ruleset: int, kind: int, attributes: bytes) -> None:
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    _syscall(LANDLOCK_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(kind), buffer, ctypes.c_uint(0))


def account(spec: Spec) -> None:
    """An account of its own that keeps one capability, or all capabilities dropped."""
    wanted = spec["account"]
    if wanted is None:
        return
    kept = wanted["capabilities"]
    for number in range(wanted["last_capability"] + 1):
        if not kept >> number & 1:
            _prctl(PR_CAPBSET_DROP, number)
    if wanted["uid"] is not None:
        # Kept over the change, and looked at by access(2) as by open(2).
        _prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP)
        os.setgroups([])
        os.setresgid(wanted["uid"], wanted["uid"], wanted["uid"])
        os.setresuid(wanted["uid"], wanted["uid"], wanted["uid"])
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    low, high = kept & 0xFFFFFFFF, kept >> 32
    data = (ctypes.c_uint32 * 6)(low, low, low, high, high, high)
    _checked(_LIBC.capset(header, data), "capset")
    for number in range(wanted["last_capability"] + 1):
        if kept >> number & 1:
            _prctl(PR_CAP_AMBIENT, 2, number)


def dies_with_us(spec: Spec) -> None:
    """Killed with its init. Set last but one: a change of account clears it."""
    _prctl(PR_SET_PDEATHSIG, SIGKILL)
    if os.getppid() != spec["init"]:
        raise OSError("the init process has ended")


def seccomp(spec: Spec) -> None:
    """System calls."""
    program = spec["seccomp"]
    if program is None:
        return

    class SocketFilter(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))

    code = ctypes.create_string_buffer(program, len(program))
    wanted = SocketFilter(len(program) // 8, ctypes.addressof(code))
    _prctl(PR_SET_SECCOMP, 2, ctypes.addressof(wanted))


STEPS = (limits, no_new_privileges, landlock, account, dies_with_us, seccomp)


def become(spec: Spec) -> NoReturn:
    """Every step, then the command. Does not return."""
    report = spec["report"]
    name = "session"
    try:
        os.setsid()
        for step in STEPS:
            name = step.__name__
            step(spec)
        os.write(report, b"ready\n")
    except BaseException as problem:  # noqa: BLE001  whatever it is, nothing is started
        os.write(report, f"failed {name}: {problem}".replace("\n", " ").encode() + b"\n")
        os._exit(NOT_BEGUN)
    for again in reversed(range(TEXT_BUSY_TRIES)):
        try:
            os.execve(spec["command"][0], spec["command"], spec["environment"])
        except OSError as problem:
            # Another thread of ours forked while it wrote this file, and that child still holds it.
            if problem.errno == ETXTBSY and again:
                time.sleep(TEXT_BUSY_S)
                continue
            os.write(report, f"exec {problem.errno}\n".encode())
            break
    os._exit(NOT_BEGUN)


def _children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        pass
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    if int(file.read().rpartition(")")[2].split()[1]) == os.getpid():
                        found.append(int(name))
            except OSError:
                pass
    return found


def _kill_account(uid: int) -> None:
    """All processes of an account at once, which no fork outruns."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setresuid(uid, uid, uid)
            os.kill(-1, SIGKILL)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def _kill_left(spec: Spec, status: int | None, child: int) -> int | None:
    """Kill the command and whatever it left; its status where it had none yet.

    Orphans become ours, so who has no children has left nothing.
    """
    uid = (spec["account"] or {}).get("uid")
    for _ in range(KILL_ROUNDS):
        try:
            while True:
                pid, found = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid == child and status is None:
                    status = found
        except ChildProcessError:
            return status
        if uid is not None:
            _kill_account(uid)
        for pid in _children():
            try:
                os.kill(pid, SIGKILL)
            except OSError:
                pass
        select.select([], [], [], 0.001)
    return status


def watch(spec: Spec, child: int) -> NoReturn:
    """Wait for the command or for the end of the `life` pipe; then leave nothing behind."""
    null = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    for number in spec["passed"]:
        os.close(number)
    poll = select.poll()
    poll.register(spec["life"], select.POLLIN | select.POLLHUP)
    wait_ms = None
    try:
        ended = os.pidfd_open(child)
        poll.register(ended, select.POLLIN)
    except (OSError, AttributeError):
        wait_ms = 20
    status = None
    while True:
        ready = [number for number, _ in poll.poll(wait_ms)]
        pid, found = os.waitpid(child, os.WNOHANG)
        if pid == child:
            status = found
            break
        if spec["life"] in ready:
            break
    status = _kill_left(spec, status, child)
    code = -SIGKILL if status is None else os.waitstatus_to_exitcode(status)
    os.write(spec["report"], f"ended {code}\n".encode())
    os._exit(code if code >= 0 else 128 - code)


def main() -> NoReturn:
    """Read the specification and split into the command and its init."""
    with open(int(sys.argv[1]), "rb") as file:
        spec = marshal.loads(file.read())
    for number in (spec["life"], spec["report"]):
        os.set_inheritable(number, False)
    try:
        _prctl(PR_SET_CHILD_SUBREAPER, 1)
        spec["init"] = os.getpid()
        child = os.fork()
    except OSError as problem:
        os.write(spec["report"], f"failed init: {problem}\n".encode())
        os._exit(NOT_BEGUN)
    if child == 0:
        become(spec)
    watch(spec, child)


if __name__ == "__main__":
    main()
