"""On the same host tensors lie in memory that client and server share, by the rules of server/shm/README.md."""

import errno
import gc
import os
import resource
import threading
from concurrent import futures

import grpc
import ml_dtypes
import numpy as np
import pytest

import normd
from normd import _region
from normd._transport import run
from normd._proto import normalizer_pb2

SHAPE = (256, 1024)  # 1 MiB of float32


def address(array):
    return array.__array_interface__["data"][0]


def is_shared(client, array):
    return client._core._local is not None and client._core._local.sharing.arrays.find(address(array), 1) is not None


@pytest.fixture
def x(random):
    return random.standard_normal(SHAPE).astype(np.float32)


@pytest.fixture
def sharing_client(server):
    """A client that must share, so that a test does not pass over the wire."""
    with normd.connect(server.unix, shared_memory="on") as made:
        made.empty(1)
        yield made


class Requests:
    """The requests that a client sends, parsed."""

    def __init__(self, client, monkeypatch):
        self.seen = []
        transport = client._transport
        unary = transport.unary

        async def watched(method, request, timeout):
            if method.endswith("/Normalize"):
                self.seen.append(normalizer_pb2.NormalizeRequest.FromString(request))
            return await unary(method, request, timeout)

        monkeypatch.setattr(transport, "unary", watched)


def test_large_tensors_are_shared_and_small_ones_are_sent(server, client, sending_client, x, monkeypatch):
    requests = Requests(client, monkeypatch)
    np.testing.assert_array_equal(client.layer_norm(x, 1024), sending_client.layer_norm(x, 1024))
    np.testing.assert_array_equal(client.layer_norm(x[:4], 1024), sending_client.layer_norm(x[:4], 1024))
    large, small = requests.seen
    assert large.x.WhichOneof("payload") == "shared" and large.outputs[0].HasField("shared")
    assert small.x.WhichOneof("payload") == "data"


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, ml_dtypes.bfloat16])
def test_every_dtype_gives_the_bytes_of_a_tensor_that_was_sent(client, sending_client, x, dtype):
    x = x.astype(dtype)
    w, r = x[0], x[::-1]
    arguments = dict(residual=r, residual_scale=0.5, outputs=("y", "h", "mean", "moments"))
    shared = client.normalize(normd.LayerNorm(1024), x, w, **arguments)
    sent = sending_client.normalize(normd.LayerNorm(1024), x, w, **arguments)
    for name in ("y", "h", "mean"):
        assert getattr(shared, name).dtype == getattr(sent, name).dtype
        np.testing.assert_array_equal(getattr(shared, name), getattr(sent, name))
    np.testing.assert_array_equal(shared.moments.m2, sent.moments.m2)


def test_arrays_in_shared_memory_are_named_by_address_and_never_copied(server, sharing_client, x, monkeypatch):
    shared, out = sharing_client.shared_array(x), sharing_client.empty(SHAPE)
    requests = Requests(sharing_client, monkeypatch)
    copied = []
    monkeypatch.setattr(np, "copyto", lambda *arguments: copied.append(arguments))
    monkeypatch.setattr(_region.Region, "take", lambda *arguments: pytest.fail("memory was taken"))
    assert sharing_client.layer_norm(shared, 1024, out=out) is out
    arena = sharing_client._core._local.sharing.arrays
    (request,) = requests.seen
    for array, where in ((shared, request.x.shared), (out, request.outputs[0].shared)):
        region, offset = arena.find(address(array), array.nbytes)
        assert (where.region, where.offset, where.size_bytes) == (region.name, offset, array.nbytes)
    assert not copied
    monkeypatch.undo()
    np.testing.assert_array_equal(out, sharing_client.layer_norm(x, 1024))


def test_a_call_without_copies_takes_no_new_pages(sharing_client, random):
    """The page faults of many calls over 8 MiB are far fewer than the pages of one result."""
    x = sharing_client.shared_array(random.standard_normal((2048, 1024)).astype(np.float32))
    out = sharing_client.empty(x.shape)
    for _ in range(3):
        sharing_client.layer_norm(x, 1024, out=out)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        sharing_client.layer_norm(x, 1024, out=out)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < x.nbytes // 4096


def test_a_result_of_a_shared_array_is_a_shared_array_that_keeps_its_memory(sharing_client, x):
    y = sharing_client.layer_norm(sharing_client.shared_array(x), 1024)
    assert is_shared(sharing_client, y)
    kept = y[3:5]
    expected = kept.copy()
    del y
    gc.collect()
    for _ in range(5):
        sharing_client.layer_norm(sharing_client.shared_array(x * 2), 1024)
    np.testing.assert_array_equal(kept, expected)


def test_small_arrays_are_sent_wherever_they_lie(sharing_client, random, monkeypatch):
    x = random.standard_normal((2, 8)).astype(np.float32)
    expected = sharing_client.layer_norm(x, 8)
    shared, out = sharing_client.shared_array(x), sharing_client.empty(x.shape)
    requests = Requests(sharing_client, monkeypatch)
    for _ in range(2):
        assert sharing_client.layer_norm(shared, 8, out=out) is out
        np.testing.assert_array_equal(out, expected)
        out[:] = 0
    assert [request.x.WhichOneof("payload") for request in requests.seen] == ["data", "data"]


def test_y_may_replace_x(sharing_client, sending_client, x):
    shared = sharing_client.shared_array(x)
    assert sharing_client.layer_norm(shared, 1024, out=shared) is shared
    np.testing.assert_array_equal(shared, sending_client.layer_norm(x, 1024))


def test_outputs_that_overlap_other_ranges_are_copied(sharing_client, sending_client, x, monkeypatch):
    """The server would refuse such ranges, and the tensors would be sent after all."""
    shared, residual = sharing_client.shared_array(x), sharing_client.shared_array(x * 3)
    requests = Requests(sharing_client, monkeypatch)
    y = sharing_client.layer_norm(shared, 1024, residual=residual, out=residual)
    assert y is residual
    np.testing.assert_array_equal(y, sending_client.layer_norm(x, 1024, residual=x * 3))
    both = sharing_client.shared_array(np.concatenate([x, x]))
    sharing_client.layer_norm(both[:256], 1024, out=both[128:384])
    np.testing.assert_array_equal(both[128:384], sending_client.layer_norm(x, 1024))
    assert [request.x.WhichOneof("payload") for request in requests.seen] == ["shared", "shared"]


@pytest.mark.parametrize("function", ["memfd_create", "socket"])
def test_without_descriptors_left_the_tensors_are_sent(server, sending_client, x, monkeypatch, function):
    def fail(*arguments, **keywords):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with normd.connect(server.unix) as client:
        client.layer_norm(x[:4], 1024)  # connects
        monkeypatch.setattr(os if function == "memfd_create" else _region.socket, function, fail)
        np.testing.assert_array_equal(client.layer_norm(x, 1024), sending_client.layer_norm(x, 1024))
        assert client.empty(4).shape == (4,)


def test_memory_is_used_again_and_regions_follow_the_need(sharing_client, x):
    arena = sharing_client._core._local.sharing.calls
    for _ in range(20):
        sharing_client.layer_norm(x, 1024)
    assert arena.mapped_bytes == 32 << 20
    big = np.tile(x, (40, 1))  # 40 MiB
    sharing_client.layer_norm(big, 1024)
    sharing_client.layer_norm(big, 1024)
    assert arena.mapped_bytes < 200 << 20


def test_blocks_are_merged_when_they_come_back(server):
    region = _region.Region(server.socket + ".shm", 1 << 20, 5)
    blocks = [region.take(100_000) for _ in range(9)]
    assert all(blocks) and region.take(200_000) is None
    taken = sorted((block.offset, block.size) for block in blocks)
    assert all(first + size <= second for (first, size), (second, _) in zip(taken, taken[1:]))
    for index in (3, 1, 2, 0, 8, 6, 7, 5, 4):
        blocks[index] = None
    assert region.unused and region.take(1_000_000) is not None


def test_the_region_is_given_up_after_a_deadline_and_the_server_may_go_on(own_server, x):
    with normd.connect(own_server.unix, shared_memory="on") as client:
        expected = client.layer_norm(x, 1024)
        arena = client._core._local.sharing.calls
        (region,) = arena._regions
        own_server.pause()
        with pytest.raises(normd.DeadlineExceeded):
            client.layer_norm(x, 1024, timeout=0.2)
        assert not region.registered and not arena._regions
        own_server.resume()
        np.testing.assert_array_equal(client.layer_norm(x, 1024), expected)
        assert arena._regions and arena._regions[0].name != region.name


def test_arrays_of_a_region_that_was_given_up_are_ordinary_ones(own_server, x):
    with normd.connect(own_server.unix, shared_memory="on") as client:
        shared = client.shared_array(x)
        expected = client.layer_norm(shared, 1024)
        own_server.pause()
        with pytest.raises(normd.DeadlineExceeded):
            client.layer_norm(shared, 1024, timeout=0.2)
        own_server.resume()
        assert not is_shared(client, shared)
        np.testing.assert_array_equal(client.layer_norm(shared, 1024), expected)


def test_a_restarted_server_gets_new_regions(own_server, x):
    with normd.connect(own_server.unix) as client:
        shared = client.shared_array(x)
        expected = client.layer_norm(shared, 1024)
        own_server.kill()
        own_server.start()
        np.testing.assert_array_equal(client.layer_norm(shared, 1024), expected)
        np.testing.assert_array_equal(client.layer_norm(x, 1024), expected)
        sharing = client._core._local.sharing
        assert sharing.calls.mapped_bytes > 0  # new regions, of the new server
        assert sharing.arrays.mapped_bytes == 0  # the one of `shared` is gone


def test_a_server_without_shared_memory_is_sent_the_tensors(random, x):
    from conftest import Server

    server = Server("--shared_memory=off")
    try:
        with normd.connect(server.unix) as client:
            assert client.layer_norm(x, 1024).shape == SHAPE
            assert client.empty(4).shape == (4,)
        with normd.connect(server.unix, shared_memory="on") as client:
            assert client.layer_norm(x, 1024).shape == SHAPE
            with pytest.raises(normd.Error, match="shared memory"):
                client.empty(4)
    finally:
        server.stop()


def test_closing_gives_memory_back_and_leaves_the_arrays(server, x):
    client = normd.connect(server.unix, shared_memory="on")
    shared = client.shared_array(x)
    regions = list(client._core._local.sharing.arrays._regions)
    client.close()
    assert not any(region.registered for region in regions)
    np.testing.assert_array_equal(shared, x)
    for again in (lambda: client.empty(4), lambda: client.shared_array(x), lambda: client.layer_norm(shared, 1024)):
        with pytest.raises(normd.Unavailable, match="closed"):
            again()


def test_a_forked_child_shares_nothing_and_can_call(sharing_client, x):
    shared = sharing_client.shared_array(x)
    expected = sharing_client.layer_norm(x, 1024)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            good = bool((shared == x).all())
            shared[:] = 0
            good &= bool((sharing_client.layer_norm(x, 1024) == expected).all())
            good &= bool((sharing_client.layer_norm(sharing_client.shared_array(x), 1024) == expected).all())
            os.write(writing, b"good" if good else b"bad")
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert pipe.read() == b"good"
    assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_array_equal(shared, x)
    np.testing.assert_array_equal(sharing_client.layer_norm(shared, 1024), expected)


def test_clients_that_are_gone_leave_nothing_for_forks(server):
    from normd.client import _clients

    gc.collect()
    before = len(_clients)
    client = normd.connect(server.unix)
    assert len(_clients) == before + 1
    client.close()
    del client
    gc.collect()
    assert len(_clients) == before


def test_threads_share_a_client(sharing_client, random):
    arrays = [random.standard_normal((64 + number, 1024)).astype(np.float32) for number in range(8)]
    expected = [sharing_client.layer_norm(array, 1024) for array in arrays]
    failures = []

    def call(number):
        for _ in range(20):
            if not (sharing_client.layer_norm(arrays[number], 1024) == expected[number]).all():
                failures.append(number)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(len(arrays))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


# ---- A server that is reached over TCP


class Described(grpc.GenericRpcHandler):
    """Answers Describe, and nothing else."""

    def __init__(self, uid, unix_socket):
        self._reply = normalizer_pb2.DescribeResponse(server_uid=uid, unix_socket=unix_socket).SerializeToString()

    def service(self, details):
        if details.method.endswith("/Describe"):
            return grpc.unary_unary_rpc_method_handler(lambda request, context: self._reply)
        return None


def serve(address, handler):
    server = grpc.server(futures.ThreadPoolExecutor(2), handlers=(handler,))
    port = server.add_insecure_port(address)
    server.start()
    return server, port


@pytest.mark.parametrize("uid_there, found", [("one", True), ("another", False)])
def test_over_tcp_the_unix_socket_of_the_same_process_is_taken_and_no_other(tmp_path, uid_there, found):
    path = str(tmp_path / "s")
    over_tcp, port = serve("127.0.0.1:0", Described("one", path))
    over_unix, _ = serve(f"unix:{path}", Described(uid_there, path))
    try:
        with normd.connect(f"127.0.0.1:{port}") as client:
            local = run(client._core.local())
            assert (local is not None) == found
            if local is not None:
                assert local.transport.target == f"unix:{path}"
    finally:
        over_tcp.stop(0)
        over_unix.stop(0)


def test_a_server_over_tcp_is_shared_with_if_it_says_where_its_socket_is(server, x, client):
    with normd.connect(server.tcp) as over_tcp:
        said = over_tcp.describe().unix_socket
        np.testing.assert_array_equal(over_tcp.layer_norm(x, 1024), client.layer_norm(x, 1024))
        assert (over_tcp._core._local is not None) == bool(said)
    with normd.connect(server.tcp, shared_memory="off") as sending:
        sending.layer_norm(x, 1024)
        assert sending._core._local is None
