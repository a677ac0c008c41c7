"""A program ends, however its calls ended and however it ends itself, though its clients are not closed."""

import subprocess
import sys
import time

import pytest
from conftest import PATIENCE

HEAD = """
import asyncio, multiprocessing, os, signal, socket, sys, threading
from concurrent.futures import ThreadPoolExecutor
import numpy as np
import normd

X = np.ones((2, 4), np.float32)
NOBODY = "127.0.0.1:1"
REAL, SMALL = sys.argv[1:]


def fail(client, call=lambda client: client.layer_norm(X, 4)):
    try:
        call(client)
    except (normd.Unavailable, normd.DeadlineExceeded):
        return
    raise AssertionError("no error")


def forwarder():
    # A way to REAL that breaks the first connection.
    listener = socket.create_server(("127.0.0.1", 0))

    def copy(source, sink):
        while data := source.recv(65536):
            sink.sendall(data)

    def serve():
        listener.accept()[0].close()
        while True:
            here = listener.accept()[0]
            host, port = REAL.rsplit(":", 1)
            there = socket.create_connection((host, int(port)))
            for pair in ((here, there), (there, here)):
                threading.Thread(target=copy, args=pair, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    return "127.0.0.1:%d" % listener.getsockname()[1]


def silent():
    listener = socket.create_server(("127.0.0.1", 0))
    globals()["kept"] = listener
    return "127.0.0.1:%d" % listener.getsockname()[1]


def interrupt_soon():
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()


LATER = normd.RetryOptions(initial_backoff=1000, max_backoff=1000)
"""

# What a program does, and its exit code.
PROGRAMS = {
    "an error nobody catches": (1, "normd.connect(NOBODY).layer_norm(X, 4)"),
    "an error of the default client": (1, "os.environ['NORMD_SERVER'] = NOBODY\nnormd.layer_norm(X, 4)"),
    "an error that is caught": (0, "client = normd.connect(NOBODY)\nfail(client)"),
    "sys.exit after an error": (3, "client = normd.connect(NOBODY)\nfail(client)\nsys.exit(3)"),
    "a client that is gone": (0, "fail(normd.connect(NOBODY))"),
    "success after a retry": (0, "client = normd.connect(forwarder())\nassert client.layer_norm(X, 4).shape == X.shape"),
    "a session after a retry": (
        0, "bn = normd.connect(forwarder()).session('exit', normd.BatchNorm(4))\nbn(X)\nassert bn.version == 1"),
    "a session that is not reached": (1, "normd.connect(NOBODY).session('exit', normd.BatchNorm(4))"),
    "ctrl-c while it waits to try again": (
        130, "client = normd.connect(NOBODY, deadline=10000, retry=LATER)\ninterrupt_soon()\nclient.layer_norm(X, 4)"),
    "ctrl-c while the server is silent": (
        130, "client = normd.connect(silent(), deadline=10000)\ninterrupt_soon()\nclient.layer_norm(X, 4)"),
    "threads": (0, "client = normd.connect(NOBODY)\nwith ThreadPoolExecutor(4) as pool:\n"
                   "    list(pool.map(fail, [client] * 4))"),
    "a daemon thread in a call": (
        0, "client = normd.connect(silent(), deadline=10000)\n"
           "threading.Thread(target=client.layer_norm, args=(X, 4), daemon=True).start()\nfail(normd.connect(NOBODY))"),
    "a fork": (0, "client = normd.connect(NOBODY)\nfail(client)\npid = os.fork()\nfail(client)\n"
                  "if pid: assert os.waitpid(pid, 0)[1] == 0"),
    # gRPC still works on the call that failed when the program forks.
    "forks one after the other": (
        0, "client = normd.connect(NOBODY, retry=normd.RetryOptions(max_attempts=2))\nfor _ in range(5):\n"
           "    fail(client)\n    pid = os.fork()\n    if not pid:\n        fail(client)\n        sys.exit()\n"
           "    assert os.waitpid(pid, 0)[1] == 0"),
    "a process of multiprocessing": (
        0, "client = normd.connect(NOBODY)\nchild = multiprocessing.get_context('fork').Process(target=fail, "
           "args=(client,))\nchild.start()\nchild.join()\nassert child.exitcode == 0\nfail(client)"),
    "a stream that is left": (5, """
x = np.ones((3000, 1000), np.float32)
def leave(self, message):
    sys.exit(5)
normd._chunks.Joiner.take = leave
normd.connect(SMALL, shared_memory="off").batch_norm(x, None, None, training=True)
"""),
    "a stream that fails": (0, """
fail(normd.connect(forwarder(), retry=normd.RetryOptions(max_attempts=1)),
     lambda client: normd._transport.run(client._transport.stream("/a.B/C", [b""], 5).__anext__()))
"""),
    "asyncio": (0, """
async def work():
    client = normd.aio.connect(NOBODY)
    try:
        await client.layer_norm(X, 4)
    except normd.Unavailable:
        return
asyncio.run(work())
"""),
    "asyncio, an error nobody catches": (1, "async def work():\n    await normd.aio.connect(NOBODY).layer_norm(X, 4)\n"
                                            "asyncio.run(work())"),
}


@pytest.fixture(scope="module")
def programs(server, small_server):
    """All of them at once: they wait most of the time."""
    made = {
        name: subprocess.Popen([sys.executable, "-c", HEAD + program, server.tcp, small_server.tcp],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for name, (_, program) in PROGRAMS.items()}
    yield made
    for one in made.values():
        one.kill()
        one.communicate()


@pytest.fixture(scope="module")
def end():
    return time.monotonic() + 2 * PATIENCE


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_ends(programs, end, name):
    try:
        _, errors = programs[name].communicate(timeout=max(end - time.monotonic(), 1))
    except subprocess.TimeoutExpired:
        pytest.fail("it does not end")
    code = programs[name].returncode
    # An interpreter that an interrupt ends dies of the signal, which a shell calls 130.
    assert (130 if code == -2 else code) == PROGRAMS[name][0], errors
