"""Memory that this process shares with a server: regions, and blocks cut out of them.

A region is an anonymous object (memfd) that is registered by its descriptor over the socket beside the server's Unix
socket; server/shm/README.md of the repository has the protocol and the rules. A region lasts as long as its connection.
In the path: under _sharing.py, which decides what lies where. Linux alone. Threads: everything here is safe from any.
"""

from __future__ import annotations

import collections
import ctypes
import mmap
import os
import socket
import struct
import threading
import weakref
from typing import Any, Deque, Dict, List, Optional, Tuple

import numpy as np

from normd.errors import FailedPrecondition, ResourceExhausted, Unavailable

SOCKET_SUFFIX = ".shm"
_MAGIC, _VERSION, _REGISTER = 0x4D53444E, 1, 1
_REQUEST = struct.Struct("=IHHQ48s")  # magic, version, operation, size, region
_REPLY = struct.Struct("=IHHiI48s256s")  # magic, version, operation, code, reserved, region, message
_POPULATE_WRITE = 23  # of madvise: takes all pages now, in one call; Linux 5.14
_PAGE = mmap.PAGESIZE
_ALIGNMENT = 64
# A load that follows a store with the same low 12 address bits waits for that store. Successive blocks of whole pages
# are therefore 47 cache lines apart within the page.
_STAGGER = 47 * _ALIGNMENT


def _round_up(value: int, to: int) -> int:
    return -(-value // to) * to


class Region:
    """One registered object, mapped here. Blocks keep it alive; its memory goes with the last of them."""

    def __init__(self, socket_path: str, size: int, timeout: float) -> None:
        self.size = _round_up(size, _PAGE)
        self._object = -1
        self._connection: Optional[socket.socket] = None
        self._connection = _connect(socket_path, timeout)
        self._object = _make_object(self.size)
        try:
            self._map = mmap.mmap(self._object, self.size)
            _populate(self._map)
            self.name = _register(self._connection, self._object, self.size)
            self._connection.setblocking(False)  # with a timeout, recv would wait for it
        except BaseException as error:
            self._connection.close()
            os.close(self._object)
            self._object = -1
            if isinstance(error, OSError):
                raise ResourceExhausted(f"shared memory: cannot map {self.size} bytes: {error}") from None
            raise
        self.address = np.frombuffer(self._map, np.uint8).__array_interface__["data"][0]
        self._lock = threading.Lock()
        self._free: Dict[int, int] = {0: self.size}  # offset -> bytes of each free part; guarded by _lock
        # Parts whose blocks are gone. A block may go at any time, in any thread, under the lock, too: so appended
        # without it, and taken up by the next allocation.
        self._returned: Deque[Tuple[int, int]] = collections.deque()

    def __del__(self) -> None:
        self.give_up()
        if self._object >= 0:
            os.close(self._object)

    @property
    def registered(self) -> bool:
        """False once the server, or give_up, has ended the region."""
        connection = self._connection
        if connection is None:
            return False
        try:
            return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def give_up(self) -> None:
        """Ends the registration. The memory stays as it is, and may still be written by requests under way."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def take(self, size: int) -> Optional["Block"]:
        """A block of the first free part that is large enough; None if there is none."""
        taken = _taken_bytes(size)
        with self._lock:
            self._take_up_returned()
            offset = next((at for at, free in self._free.items() if free >= taken), -1)
            if offset < 0:
                return None
            free = self._free.pop(offset)
            if free > taken:
                self._free[offset + taken] = free - taken
        return Block(self, offset, size, taken)

    @property
    def unused(self) -> bool:
        with self._lock:
            self._take_up_returned()
            return self._free.get(0) == self.size

    def _take_up_returned(self) -> None:
        while self._returned:
            offset, size = self._returned.popleft()
            self._free[offset] = size
            merged: Dict[int, int] = {}
            last = -1
            for at in sorted(self._free):
                if last >= 0 and last + merged[last] == at:
                    merged[last] += self._free[at]
                else:
                    merged[at], last = self._free[at], at
            self._free = merged

    def return_part(self, offset: int, size: int) -> None:
        self._returned.append((offset, size))

    def separate(self) -> None:
        """In a forked child: ends the child's hold on the region, and makes its memory the child's own.

        The child's arrays stay readable, and what the child writes into them is no longer seen by parent and server.
        """
        self.give_up()
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
        fixed = 0x10  # MAP_FIXED, which the module mmap does not name
        protection = mmap.PROT_READ | mmap.PROT_WRITE
        libc.mmap(self.address, self.size, protection, mmap.MAP_PRIVATE | fixed, self._object, 0)


class Block:
    """A part of a region. numpy sees it as an array of bytes, and the arrays made of it keep it alive."""

    __slots__ = ("region", "offset", "size", "_taken", "__array_interface__")

    def __init__(self, region: Region, offset: int, size: int, taken: int) -> None:
        self.region, self.offset, self.size, self._taken = region, offset, size, taken
        self.__array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (region.address + offset, False),
            "version": 3,
        }

    def __del__(self) -> None:
        self.region.return_part(self.offset, self._taken)

    def words(self, dtype: "np.dtype[Any]", shape: Tuple[int, ...]) -> np.ndarray[Any, np.dtype[Any]]:
        return np.asarray(self).view(dtype).reshape(shape)


class Arena:
    """Regions of one server, and blocks from them."""

    def __init__(self, socket_path: str, region_bytes: int, max_total_bytes: int, timeout: float) -> None:
        self._socket_path = socket_path
        self._region_bytes = region_bytes
        self._max_total_bytes = max_total_bytes
        self._timeout = timeout
        self._lock = threading.Lock()
        self._regions: List[Region] = []  # guarded by _lock
        # All that this process has mapped, those that were given up among them.
        self._mapped: "weakref.WeakSet[Region]" = weakref.WeakSet()

    def try_take(self, size: int) -> Optional[Block]:
        """A block of a region that is there already."""
        for region in list(self._regions):
            block = region.take(size)
            if block is not None:
                if region.registered:
                    return block
                self.drop(region)
        return None

    def grow(self, size: int) -> Block:
        """A block of a new region. Blocks for up to the timeout."""
        bytes_needed = max(self._region_bytes, _round_up(_taken_bytes(size), _PAGE))
        with self._lock:
            # A new region takes the place of those that are in nobody's use, so that memory follows the need.
            kept = [region for region in self._regions if not region.unused]
            dropped = [region for region in self._regions if region not in kept]
            self._regions = kept
            total = sum(region.size for region in kept)
        for region in dropped:
            region.give_up()
        if total + bytes_needed > self._max_total_bytes:
            raise ResourceExhausted(
                f"shared memory: {total} bytes are in use, and {bytes_needed} more would be over the limit of "
                f"{self._max_total_bytes}"
            )
        made = Region(self._socket_path, bytes_needed, self._timeout)
        block = made.take(size)
        assert block is not None
        with self._lock:
            self._regions.append(made)
            self._mapped.add(made)
        return block

    def find(self, address: int, size: int) -> Optional[Tuple[Region, int]]:
        """The region that has these bytes, and their offset."""
        for region in self._regions:
            if region.address <= address and address + size <= region.address + region.size:
                return region, address - region.address
        return None

    def drop(self, region: Region) -> None:
        """No more blocks come from this region, and the server no longer has it."""
        with self._lock:
            if region in self._regions:
                self._regions.remove(region)
        region.give_up()

    def close(self) -> None:
        for region in list(self._regions):
            self.drop(region)

    def separate(self) -> None:
        """In a forked child, which has one thread: see Region.separate."""
        self._lock = threading.Lock()
        for region in list(self._mapped):
            region.separate()
        self._regions = []

    @property
    def mapped_bytes(self) -> int:
        return sum(region.size for region in self._regions)


def _taken_bytes(size: int) -> int:
    return _round_up(max(size, 1), _ALIGNMENT) if size < _PAGE else _round_up(size, _PAGE) + _STAGGER


def _connect(path: str, timeout: float) -> socket.socket:
    try:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    except OSError as error:
        raise ResourceExhausted(f"shared memory: cannot make a socket: {error}") from None
    connection.settimeout(timeout)
    try:
        connection.connect(path)
    except OSError as error:
        connection.close()
        raise Unavailable(f"shared memory: the server takes no registrations at {path}: {error}") from None
    return connection


def _make_object(size: int) -> int:
    import fcntl  # which Windows does not have, where nothing gets here

    try:
        made = os.memfd_create("normd-region", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError as error:
        raise ResourceExhausted(f"shared memory: cannot make an object: {error}") from None
    try:
        os.ftruncate(made, size)
        # The server need not fear that the object shrinks.
        fcntl.fcntl(made, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    except OSError as error:
        os.close(made)
        raise ResourceExhausted(f"shared memory: no object of {size} bytes: {error}") from None
    return made


def _populate(mapped: mmap.mmap) -> None:
    """Takes the pages before the server maps them, so that neither meets a page that is not there."""
    for advice in (getattr(mmap, "MADV_HUGEPAGE", None), _POPULATE_WRITE):
        try:
            if advice is not None:
                mapped.madvise(advice)
        except OSError:
            pass  # an older kernel: pages come with the first write


def _register(connection: socket.socket, descriptor: int, size: int) -> str:
    """The name that the server gives the region."""
    request = _REQUEST.pack(_MAGIC, _VERSION, _REGISTER, size, b"")
    try:
        try:
            socket.send_fds(connection, [request], [descriptor])
        except (BrokenPipeError, ConnectionResetError):
            pass  # a server that refuses the connection may have closed it; its reason can be read
        packet = connection.recv(_REPLY.size)
    except OSError as error:
        raise Unavailable(f"shared memory: the server did not answer: {error}") from None
    if len(packet) != _REPLY.size:
        raise Unavailable("shared memory: the server closed the connection")
    magic, version, _, code, _, region, message = _REPLY.unpack(packet)
    if magic != _MAGIC or version != _VERSION:
        raise FailedPrecondition("shared memory: the reply is not one of a normd server of this version")
    if code != 0:
        text = message.rstrip(b"\0").decode(errors="replace")
        raise ResourceExhausted(f"shared memory: the server refused the region: {text}")
    name: str = region.rstrip(b"\0").decode()
    return name
