"""What a target may look like, what stands between a client and its server, and what is said when the two do not meet."""

import socket
import subprocess
import sys
import threading
import time
from concurrent import futures

import grpc
import numpy as np
import pytest

import normd
from conftest import Server
from normd import _channel, _target

X = np.ones((2, 4), np.float32)


@pytest.mark.parametrize("target, expected", [
    ("127.0.0.1", "127.0.0.1:8001"), ("localhost", "localhost:8001"), ("[::1]", "[::1]:8001"), ("::1", "[::1]:8001"),
    (" 127.0.0.1:9\n", "127.0.0.1:9"), ("normd.example:9", "normd.example:9"), ("/run/n.sock", "unix:/run/n.sock"),
    ("unix:n.sock", "unix:n.sock"), ("dns:///a.example", "dns:///a.example:8001"), ("dns:a.example:9", "dns:a.example:9"),
    ("ipv4:127.0.0.1:9", "ipv4:127.0.0.1:9")])
def test_a_target_gets_the_port_of_normd(target, expected, monkeypatch):
    assert normd.connect(target).target == expected
    monkeypatch.setenv("NORMD_SERVER", target)
    assert normd.connect().target == expected


@pytest.mark.parametrize("target, said", [
    ("http://127.0.0.1:9", "a URL is no target, call it '127.0.0.1:9'"), ("https://a.example:9/", "with tls=True"),
    ("grpc://a.example", "call it 'a.example'"), ("tcp://u:p@a.example:9", "call it 'a.example:9'"),
    ("./n.sock", "write 'unix:/"), ("~/n.sock", "write 'unix:/"), ("n.sock", "write 'unix:/"), ("::1:8001", "in brackets"),
    ("8001", "'127.0.0.1:8001'"), (":8001", "'127.0.0.1:8001'"), ("a.example:http", "its port is 'http'"),
    ("a.example:", "its port is ''"), ("a.example:70000", "its port is '70000'"), ("a:1,b:2", "one host"),
    ("a b:1", "one host")])
def test_what_is_no_target_is_refused_with_what_to_write(target, said, monkeypatch):
    for connect in (normd.connect, normd.aio.connect):
        with pytest.raises(normd.InvalidArgument) as caught:
            connect(target)
        assert said in str(caught.value) and caught.value.field == "target"
    monkeypatch.setenv("NORMD_SERVER", target)
    with pytest.raises(normd.InvalidArgument, match="^NORMD_SERVER is"):
        normd.connect()


PROXIED = """
import asyncio, sys, numpy, normd
X = numpy.ones((2, 4), numpy.float32)
for target in sys.argv[1:]:
    normd.connect(target).layer_norm(X, 4)

async def use():
    async with normd.aio.connect(sys.argv[1]) as client:
        await client.layer_norm(X, 4)

asyncio.run(use())
try:
    normd.connect("192.0.2.1:8001", retry=normd.RetryOptions(max_attempts=1)).layer_norm(X, 4)
except normd.Unavailable as error:
    print(error)
"""


@pytest.mark.parametrize("variable", ["http_proxy", "https_proxy", "grpc_proxy"])
def test_a_proxy_is_for_other_hosts_and_is_named_where_it_fails(server, variable):
    port = server.tcp.rsplit(":", 1)[1]
    result = subprocess.run(
        [sys.executable, "-c", PROXIED, server.tcp, f"localhost:{port}", f"127.0.0.2:{port}", server.unix],
        env={variable: "http://127.0.0.1:1", "HTTP_PROXY": "http://127.0.0.1:1", "all_proxy": "http://127.0.0.1:1"},
        capture_output=True, text=True)
    if "127.0.0.2" in result.stderr:  # the server listens on 127.0.0.1 alone
        result = subprocess.run([sys.executable, "-c", PROXIED, server.tcp, f"localhost:{port}", server.unix],
                                env={variable: "http://127.0.0.1:1"}, capture_output=True, text=True)
    assert f"by way of the proxy that {variable} names" in result.stdout, result.stderr


def test_the_rules_of_proxies_are_those_of_grpc(monkeypatch):
    for name in ("grpc_proxy", "https_proxy", "http_proxy", "no_grpc_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert _channel.proxy_variable("a.example:1") == "http_proxy"
    for target in ("127.8.9.1:1", "[::1]:1", "localhost:1", "LOCALHOST:1", "dns:///localhost:1", "ipv6:[::1]:1", "unix:/a"):
        assert _channel.proxy_variable(target) == "", target
    monkeypatch.setenv("no_proxy", "b.example, .example,10.0.0.0/8")
    assert [_channel.proxy_variable(f"{host}:1") for host in ("a.example", "10.1.2.3", "a.test")] == ["", "", "http_proxy"]
    assert _target.is_loopback("[::ffff:127.0.0.1]:1") and not _target.is_loopback("127.example:1")


def peer(say):
    """A program that answers each connection by `say`."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            say(listener.accept()[0])

    threading.Thread(target=serve, daemon=True).start()
    return f"127.0.0.1:{listener.getsockname()[1]}"


def answer(content):
    def say(connection):
        with connection:
            connection.recv(4096)
            connection.sendall(content)

    return say


class Other(grpc.GenericRpcHandler):
    def __init__(self, reply):
        self._reply = reply

    def service(self, details):
        if self._reply is None:
            return None
        return grpc.unary_unary_rpc_method_handler(lambda request, context: self._reply)


def failure(target, **options):
    with normd.connect(target, retry=normd.RetryOptions(initial_backoff=0.001, max_backoff=0.001), **options) as client:
        with pytest.raises(normd.Error) as caught:
            client.layer_norm(X, 4)
    return caught.value


@pytest.mark.parametrize("content, plain, secure", [
    (b"HTTP/1.1 400 Bad Request\r\n\r\n", "speaks HTTP/1.1", "speaks no TLS"),
    (b"SSH-2.0-OpenSSH_9.2\r\n", "is another program than normd", "speaks no TLS"),
    (b"", "closes new connections without a word: it may have as many as its max_connections",
     "closes new connections without a word")])
def test_another_program_is_told_from_normd(content, plain, secure):
    target = peer(answer(content))
    for said, options in ((plain, {}), (secure, {"tls": True})):
        error = failure(target, **options)
        assert isinstance(error, normd.Unavailable) and f"{target} {said}" in str(error)


def test_normd_that_speaks_no_tls_is_told_from_one_that_is_not_there(server):
    assert f"{server.tcp} speaks no TLS and was called by it" in str(failure(server.tcp, tls=True))


def test_a_server_that_is_full_is_told_from_one_that_is_not_there():
    full = Server("--max_connections=1")
    try:
        with normd.connect(full.tcp, shared_memory="off") as first:
            first.layer_norm(X, 4)
            said = str(failure(full.tcp))
        assert "max_connections" in said and "TLS" not in said
    finally:
        full.stop()


@pytest.mark.parametrize("reply, kind, said", [
    (None, normd.Unimplemented, "another gRPC server than normd"), (b"\xff\xff junk", normd.DataLoss, "is none of normd's"),
    (b"", normd.DataLoss, "it has no y"), (b"\x7a\x04\x08\x01\x7a\x00", normd.DataLoss, "is none of normd's")])
def test_a_reply_that_is_none_of_normds_is_an_error_of_its_own(reply, kind, said):
    server = grpc.server(futures.ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((Other(reply),))
    target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    error = failure(target)
    server.stop(None).wait()
    assert isinstance(error, kind) and target in str(error) and said in str(error)


def test_a_given_deadline_is_time_for_a_server_to_come(own_server):
    own_server.kill()
    starter = threading.Timer(4, own_server.start)
    starter.start()
    with normd.connect(own_server.unix, deadline=60) as client:
        assert client.layer_norm(X, 4).shape == X.shape
    starter.join()


def test_without_one_a_server_that_was_never_there_is_not_waited_for():
    with normd.connect("127.0.0.1:1", retry=normd.RetryOptions(initial_backoff=0.001)) as nobody:
        start = time.monotonic()
        with pytest.raises(normd.Unavailable):
            nobody.layer_norm(X, 4)
        assert time.monotonic() - start < 25  # of the 30 seconds that are the default deadline
