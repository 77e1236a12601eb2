"""Hostile children in C++: each tries one thing and says on stdout how far it came."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

_HEAD = r"""
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
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
#include <sys/uio.h>
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
  say("io_uring", syscall(425, 1, 0));
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
