"""Puts the system call filter of a systemd unit on this process, where systemd itself does not run.

The filter is made of the unit's SystemCallFilter= lines with systemd's own sets (systemd-analyze syscall-filter) and of
what MemoryDenyWriteExecute= forbids, with the library that systemd uses for it, libseccomp.
"""

import ctypes
import errno
import functools
import subprocess

from unit import settings

ALLOW = 0x7FFF0000
REFUSE = 0x00050000 | errno.EPERM
MASKED_EQUAL = 7  # enum scmp_compare
PROT_WRITE, PROT_EXEC = 2, 4
# What MemoryDenyWriteExecute= looks at: the protection is the third argument; these bits together are refused.
PROTECTING = {"mmap": PROT_WRITE | PROT_EXEC, "mprotect": PROT_EXEC, "pkey_mprotect": PROT_EXEC}


class Comparison(ctypes.Structure):
    """struct scmp_arg_cmp"""
    _fields_ = [("argument", ctypes.c_uint), ("operation", ctypes.c_int), ("mask", ctypes.c_uint64),
                ("value", ctypes.c_uint64)]


@functools.lru_cache(maxsize=None)
def calls_of(name):
    """The system calls of a set such as @system-service."""
    if not name.startswith("@"):
        return frozenset([name])
    text = subprocess.run(["systemd-analyze", "syscall-filter", "--no-pager", name], check=True, capture_output=True,
                          text=True).stdout
    words = (line.strip() for line in text.splitlines()[1:])
    return frozenset().union(*(calls_of(word) for word in words if word and not word.startswith("#")))


def allowed_calls(unit):
    """The first line of SystemCallFilter= says what is allowed; one that begins with ~ takes away."""
    allowed = frozenset()
    for line in settings(unit, "Service", "SystemCallFilter"):
        names = frozenset().union(*map(calls_of, line.removeprefix("~").split()))
        allowed = allowed - names if line.startswith("~") else allowed | names
    return allowed


def load_filter(unit):
    """For this process and all that it starts, for good."""
    library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    library.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(REFUSE)))
    denies = settings(unit, "Service", "MemoryDenyWriteExecute") == ["yes"]
    for name in sorted(allowed_calls(unit)):
        number = library.seccomp_syscall_resolve_name(name.encode())
        if number < 0:
            continue  # a call of another architecture
        for conditions in conditions_of(name if denies else ""):
            check(library.seccomp_rule_add_array(context, ctypes.c_uint32(ALLOW), number, len(conditions), conditions))
    check(library.seccomp_load(context))


def conditions_of(name):
    """Under which a call is allowed, as arrays for libseccomp; one of them has to hold."""
    bits = PROTECTING.get(name)
    if bits is None:
        return [(Comparison * 0)()]
    values = {value & bits for value in (0, PROT_WRITE, PROT_EXEC)} - {bits}
    return [(Comparison * 1)(Comparison(2, MASKED_EQUAL, bits, value)) for value in sorted(values)]


def check(result):
    if result < 0:
        raise OSError(-result, "libseccomp refused a rule")
