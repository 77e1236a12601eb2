"""Hostile children in C++: each tries one thing and says on stdout how far it came."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from cudaops.domain.judgement import IsolationLevel
from cudaops.executors.isolation.phases import Confinement, Phase, PhaseLimits
from cudaops.executors.process import Finished, run_bounded

PHASES: tuple[Phase, ...] = ("compile", "kernel", "program", "gpu")
LEVELS: tuple[IsolationLevel, ...] = ("S2", "S3")

_HEAD = r"""
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <linux/fs.h>
#include <linux/netlink.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <thread>
#include <unistd.h>
static void say(const char* what, long result) {
  printf("%s %s\n", what, result >= 0 ? "DONE" : "refused");
  fflush(stdout);
}
static long opens(const std::string& path, int flags = O_RDONLY) {
  int fd = open(path.c_str(), flags, 0600);
  if (fd < 0) return -1;
  if ((flags & O_ACCMODE) != O_RDONLY) return fd;
  char byte;
  return read(fd, &byte, 1) == 1 ? fd : -1;
}
"""

BODIES: dict[str, str] = {
    "look": r"""
  std::string victim = "/proc/" + std::string(argv[1]);
  say("environ", opens(victim + "/environ"));
  say("mem", opens(victim + "/mem", O_RDWR));
  char local[8];
  iovec to{local, 8}, from{(void*)strtoul(argv[2], 0, 10), 8};
  say("process_vm_readv", process_vm_readv(atoi(argv[1]), &to, 1, &from, 1, 0));
  say("ptrace", ptrace(PTRACE_SEIZE, atoi(argv[1]), 0, 0));
  for (int i = 3; i < argc; i++) say("file", opens(argv[i]));
""",
    "sockets": r"""
  say("tcp", socket(AF_INET, SOCK_STREAM, 0));
  say("udp", socket(AF_INET, SOCK_DGRAM, 0));
  say("tcp6", socket(AF_INET6, SOCK_STREAM, 0));
  say("netlink", socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE));
  say("packet", socket(AF_PACKET, SOCK_RAW, 0));
  say("unix", socket(AF_UNIX, SOCK_STREAM, 0));
  int pair[2];
  say("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
  say("datagram", socket(AF_UNIX, SOCK_DGRAM, 0));
  say("datagrams", socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
  say("raw", socket(AF_UNIX, SOCK_RAW, 0));
  say("io_uring", syscall(425, 1, 0));
""",
    "reach": r"""
  sockaddr_un to{AF_UNIX, {}}, mine{AF_UNIX, "mine"}, hidden{AF_UNIX, {}};
  strncpy(to.sun_path, argv[1], sizeof to.sun_path - 1);
  strcpy(hidden.sun_path + 1, "cudaops-test");
  for (int type : {SOCK_STREAM, SOCK_SEQPACKET, SOCK_DGRAM}) {
    int pair[2] = {-1, -1}, lone = socket(AF_UNIX, type, 0);
    socketpair(AF_UNIX, type, 0, pair);
    for (int i = 0; i < 2; i++) {
      int fd = i ? pair[0] : lone;
      msghdr message{&to, sizeof to, nullptr, 0, nullptr, 0, 0};
      say("connect", connect(fd, (sockaddr*)&to, sizeof to));
      if (!i || type != SOCK_SEQPACKET) {  // which sends to its peer whatever the address
        say("sendto", sendto(fd, "x", 1, MSG_NOSIGNAL, (sockaddr*)&to, sizeof to) - 1);
        say("sendmsg", sendmsg(fd, &message, MSG_NOSIGNAL));
      }
      say("bind", bind(fd, (sockaddr*)&mine, sizeof mine));
      say("abstract", bind(fd, (sockaddr*)&hidden, sizeof hidden));
    }
  }
""",
    "attributes": r"""
  const char* path = argv[1];
  close(open(path, O_WRONLY | O_CREAT, 0600));
  int fd = open(path, O_RDONLY);
  long flags = 0;
  timespec now[2]{};
  say("chmod", chmod(path, 0));
  say("fchmodat", fchmodat(AT_FDCWD, path, 0, 0));
  say("fchmodat2", syscall(452, AT_FDCWD, path, 0, 0));
  say("chown", chown(path, getuid(), getgid()));
  say("lchown", lchown(path, getuid(), getgid()));
  say("fchown", fchown(fd, getuid(), getgid()));
  say("utimensat", utimensat(AT_FDCWD, path, now, 0));
  say("now", utimensat(AT_FDCWD, path, nullptr, 0));
  say("futimens", futimens(fd, now));
  say("setxattr", setxattr(path, "user.a", "b", 1, 0));
  say("lsetxattr", lsetxattr(path, "user.a", "b", 1, 0));
  say("fsetxattr", fsetxattr(fd, "user.a", "b", 1, 0));
  say("removexattr", removexattr(path, "user.kept"));
  say("flags", ioctl(fd, FS_IOC_SETFLAGS, &flags));
  fchmod(fd, 0);
""",
    "ordinary": r"""
  namespace fs = std::filesystem;
  std::ofstream("a") << "content";
  fs::copy_file("a", "b");
  fs::create_directories("c/d");
  fs::copy("a", "c/d/e");
  fs::copy("c", "f", fs::copy_options::recursive);
  fs::rename("f", "g");
  fs::resize_file("b", 3);
  fs::remove_all("c");
  say("append", opens("a", O_WRONLY | O_APPEND));
  say("given", opens("given", O_RDWR | O_TRUNC));
  int pair[2];
  char byte = 0;
  if (argc > 1) say("pair", socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
  if (argc > 1) say("passed", send(pair[0], "x", 1, 0) + recv(pair[1], &byte, 1, 0) - 2);
""",
    "kill": r"""
  say("signal", kill(atoi(argv[1]), 0));
  say("kill", kill(atoi(argv[1]), SIGKILL));
  rlimit none{0, 0};
  say("prlimit", prlimit(atoi(argv[1]), RLIMIT_NOFILE, &none, nullptr));
""",
    "escape": r"""
  say("unshare", unshare(CLONE_NEWUSER));
  say("unshare_net", unshare(CLONE_NEWNET));
  say("chroot", chroot("."));
  say("personality", syscall(SYS_personality, 0x0040000));
  say("x32", syscall(0x40000000 | SYS_socket, AF_INET, SOCK_STREAM, 0));
  say("setuid", setuid(0) == 0 && geteuid() == 0 ? 0 : -1);
""",
    "write": r"""
  say("outside", opens(argv[1], O_WRONLY | O_CREAT));
  say("author", opens(argv[2], O_WRONLY));
  say("symlink", symlink(argv[2], "link"));
  say("fifo", mkfifo("pipe", 0600));
  say("inside", opens("mine", O_WRONLY | O_CREAT));
""",
    "fork": r"""
  say("fork", fork());
""",
    "threads": r"""
  int value = 0;
  std::thread([&] { value = 42; }).join();
  say("thread", value == 42 ? 0 : -1);
""",
    "bomb": r"""
  signal(SIGCHLD, SIG_IGN);
  for (;;) if (fork() < 0) usleep(100);
""",
    "daemon": r"""
  if (fork() == 0) {
    setsid();
    if (fork() == 0) {
      FILE* note = fopen("daemon.pid", "w");
      if (note) { fprintf(note, "%d", getpid()); fclose(note); }
      for (int fd = 0; fd < 3; fd++) close(fd);
      for (;;) sleep(1);
    }
    _exit(0);
  }
  while (access("daemon.pid", F_OK) != 0) usleep(1000);
  puts("left one");
""",
    "files": r"""
  for (long i = 0;; i++) opens("file" + std::to_string(i), O_WRONLY | O_CREAT);
""",
    "huge": r"""
  int fd = open("huge", O_WRONLY | O_CREAT, 0600);
  static char block[1 << 20];
  for (;;) if (write(fd, block, sizeof block) < 0) { say("write", -1); return 3; }
""",
    "disk": r"""
  static char block[1 << 20];
  for (long i = 0;; i++) {
    int fd = open(("part" + std::to_string(i)).c_str(), O_WRONLY | O_CREAT, 0600);
    if (write(fd, block, sizeof block) < 0) return 3;
    close(fd);
  }
""",
    "memory": r"""
  for (;;) {
    char* some = (char*)malloc(1 << 24);
    if (!some) { puts("no more"); return 3; }
    memset(some, 1, 1 << 24);
  }
""",
    "loop": "  for (volatile long i = 0;; i++) {}\n",
    "flood": '  for (;;) puts("flood flood flood flood");\n',
    "environment": r"""
  for (char** e = environ; *e; e++) puts(*e);
""",
}


def build_all(folder: Path) -> dict[str, Path]:
    """Each as an executable of its name: one program that does what it is called."""
    text = _HEAD
    for name, body in BODIES.items():
        text += f"static int do_{name}(int argc, char** argv) {{\n{body}  return 0;\n}}\n"
    text += "int main(int argc, char** argv) {\n  std::string name = argv[0];\n"
    for name in BODIES:
        text += f'  if (name.ends_with("/{name}")) return do_{name}(argc, argv);\n'
    source, made = folder / "hostile.cpp", folder / "hostile"
    source.write_text(text + "  return 99;\n}\n", encoding="utf-8")
    command = ["g++", "-std=c++20", "-O1", "-w", "-pthread", str(source), "-o", str(made)]
    subprocess.run(command, check=True, timeout=300)
    for name in BODIES:
        shutil.copy(made, folder / name)
    return {name: folder / name for name in BODIES}


def ran(
    program: Path,
    phase: Phase,
    level: IsolationLevel,
    folder: Path,
    *words: str,
    timeout_s: float = 120.0,
    limits: PhaseLimits | None = None,
    max_output_bytes: int = 1 << 20,
) -> Finished:
    folder.mkdir(exist_ok=True)
    confine = Confinement(phase, writes=(folder,), limits=limits, at_most=level)
    return run_bounded(
        [str(program), *words],
        cwd=folder,
        timeout_s=timeout_s,
        confine=confine,
        max_output_bytes=max_output_bytes,
    )


def outcomes(done: Finished) -> dict[str, str]:
    assert done.stdout, done
    return dict(line.split() for line in done.stdout.splitlines())
