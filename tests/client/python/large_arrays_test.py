"""Arrays beyond the message limit, by pieces and by chunks, and .npy files."""

import errno
import os
import time

import ml_dtypes
import numpy as np
import pytest
import reference

import normd
from normd import _core, aio


@pytest.fixture
def small_client(small_server):
    """A client whose messages hold 256 KiB."""
    with normd.connect(small_server.tcp, shared_memory="off") as made:
        yield made


@pytest.fixture(autouse=True)
def ask_early(monkeypatch):
    """The limit is asked for from 64 KiB on, and pieces are small, so that modest arrays show what large ones do."""
    monkeypatch.setattr(_core, "UNASKED_BYTES", 64 << 10)
    monkeypatch.setattr(_core, "PIECE_BYTES", 100 << 10)


@pytest.fixture
def x(random):
    return random.standard_normal((300, 1024)).astype(np.float32)  # 1.2 MiB


@pytest.fixture
def streams(small_client, monkeypatch):
    """The streams that were opened."""
    opened = []
    stream = small_client._transport.stream
    monkeypatch.setattr(
        small_client._transport, "stream", lambda *arguments: opened.append(arguments) or stream(*arguments))
    return opened


def test_independent_rows_go_in_pieces(small_client, client, x, streams):
    w, r = x[0], x[::-1]
    np.testing.assert_array_equal(small_client.layer_norm(x, 1024, w), client.layer_norm(x, 1024, w))
    out = np.empty_like(x)
    assert small_client.layer_norm(x, 1024, residual=r, out=out) is out
    np.testing.assert_array_equal(out, client.layer_norm(x, 1024, residual=r))
    images = x.reshape(300, 64, 16)
    np.testing.assert_array_equal(small_client.group_norm(images, 4), client.group_norm(images, 4))
    mean, var = np.zeros(64), np.ones(64)
    np.testing.assert_array_equal(
        small_client.batch_norm(images, mean, var), client.batch_norm(images, mean, var))
    assert not streams


@pytest.mark.parametrize("pieces_bytes", [256 << 10, 1 << 30])
def test_a_timeout_bounds_all_pieces_together_and_the_deadline_each(small_client, x, monkeypatch, pieces_bytes):
    monkeypatch.setattr(_core, "PIECES_BYTES", pieces_bytes)  # cut by size, or by the limit of a message
    left, unary = [], small_client._transport.unary

    async def slow(method, request, timeout):
        if method.endswith("/Normalize"):
            left.append(timeout)
            time.sleep(0.05)
        return await unary(method, request, timeout)

    monkeypatch.setattr(small_client._transport, "unary", slow)
    small_client.layer_norm(x, 1024)
    assert len(left) > 3 and min(left) > 29
    left.clear()
    small_client.layer_norm(x, 1024, timeout=20)
    assert left[0] <= 20 and all(later <= earlier - 0.05 for earlier, later in zip(left, left[1:]))
    with pytest.raises(normd.DeadlineExceeded):
        small_client.layer_norm(x, 1024, timeout=0.12)


def test_statistics_across_rows_go_as_chunks_of_a_stream(small_client, client, x, streams):
    r = x[::-1]
    y = small_client.batch_norm(x, None, None, training=True, residual=r)
    np.testing.assert_array_equal(y, client.batch_norm(x, None, None, training=True, residual=r))
    result = small_client.normalize(normd.LayerNorm(1024), x, outputs=("y", "mean", "moments"))
    expected = client.normalize(normd.LayerNorm(1024), x, outputs=("y", "mean", "moments"))
    np.testing.assert_array_equal(result.y, expected.y)
    np.testing.assert_array_equal(result.mean, expected.mean)
    np.testing.assert_array_equal(result.moments.m2, expected.moments.m2)
    out = np.empty_like(x)
    assert small_client.lp_norm(x, dim=0, out=out) is out
    np.testing.assert_array_equal(out, client.lp_norm(x, dim=0))
    assert len(streams) == 3


def test_an_in_place_call_in_chunks_is_sent_again_with_the_x_that_it_was_given(small_client, client, x, monkeypatch):
    expected = client.batch_norm(x, None, None, training=True)
    stream, cut = small_client._transport.stream, []

    async def cut_once(*arguments):
        received = 0
        async for reply in stream(*arguments):
            received += 1
            if received == 3 and not cut:  # a chunk of y has come
                cut.append(received)
                raise normd.Unavailable("the connection is lost")
            yield reply

    monkeypatch.setattr(small_client._transport, "stream", cut_once)
    assert small_client.batch_norm(x, None, None, training=True, out=x) is x
    assert cut
    np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize("shift", [1, -1])
@pytest.mark.parametrize("field", ["x", "residual"])
def test_an_output_that_overlaps_later_rows_is_written_after_they_were_sent(
        small_client, client, x, monkeypatch, shift, field):
    first, second = (slice(None, -1), slice(1, None)) if shift > 0 else (slice(1, None), slice(None, -1))
    other = x[::-1].copy()
    for one, pieces_bytes in ((small_client, 1 << 30), (client, 256 << 10)):
        monkeypatch.setattr(_core, "PIECES_BYTES", pieces_bytes)
        buffer = x.copy()
        given = {"x": buffer[first], "residual": other[first]}
        if field == "residual":
            given = {"x": given["residual"], "residual": given["x"]}
        expected = client.layer_norm(given["x"].copy(), 1024, residual=given["residual"].copy())
        one.layer_norm(given["x"], 1024, residual=given["residual"], out=buffer[second])
        np.testing.assert_array_equal(buffer[second], expected)


def test_one_row_beyond_the_limit_goes_as_chunks(small_client, client, x, streams):
    wide = x.reshape(2, -1)
    np.testing.assert_array_equal(small_client.layer_norm(wide, wide.shape[1]), client.layer_norm(wide, wide.shape[1]))
    assert len(streams) == 2


def test_errors_in_chunks_are_those_of_a_message(small_client, x):
    with pytest.raises(normd.InvalidArgument) as caught:
        small_client.batch_norm(x, None, None, np.ones(3, np.float32), training=True)
    error = caught.value
    assert (error.field, error.value, error.reason) == ("parameters.weight", "3", "PARAMETER_LENGTH")
    assert str(error).startswith("parameters.weight has 3 values")


def test_a_training_step_in_chunks_counts_once(small_client, x):
    bn = small_client.session("t-chunked", normd.BatchNorm(1024))
    mean, var, _ = reference.batch_statistics(x)
    np.testing.assert_allclose(bn(x), reference.batch_norm(x, mean, var), atol=1e-5)
    assert bn.num_batches_tracked == 1
    bn.delete()


def test_the_asyncio_client_goes_the_same_ways(small_server, client, x):
    import asyncio

    async def use():
        async with aio.connect(small_server.tcp, shared_memory="off") as there:
            return await asyncio.gather(
                there.layer_norm(x, 1024), there.batch_norm(x, None, None, training=True))

    rows, columns = asyncio.run(use())
    np.testing.assert_array_equal(rows, client.layer_norm(x, 1024))
    np.testing.assert_array_equal(columns, client.batch_norm(x, None, None, training=True))


def test_large_arrays_go_in_pieces_through_shared_memory(client, x, monkeypatch):
    expected = client.layer_norm(x, 1024)
    monkeypatch.setattr(_core, "PIECES_BYTES", 256 << 10)
    arena = client._core._local.sharing.calls
    np.testing.assert_array_equal(client.layer_norm(x, 1024), expected)
    assert arena.mapped_bytes == 32 << 20


@pytest.mark.parametrize("spec", [normd.LayerNorm(1024), normd.LpNorm(dim=0)])
def test_a_file_is_normalised_into_a_file(small_client, client, x, tmp_path, spec):
    source, target = tmp_path / "in.npy", tmp_path / "out.npy"
    np.save(source, x)
    seen = []
    small_client.normalize_file(source, target, spec, progress=lambda done, total: seen.append((done, total)))
    np.testing.assert_array_equal(np.load(target), client.normalize(spec, x).y)
    assert sorted(os.listdir(tmp_path)) == ["in.npy", "out.npy"]
    if isinstance(spec, normd.LayerNorm):
        assert len(seen) > 2 and seen[-1] == (300, 300) and seen == sorted(seen)


def test_progress_rises_to_the_rows_of_the_file_and_no_further(small_client, client, x, tmp_path, monkeypatch):
    """Pieces of pieces, chunks, one message, shared memory: each reports the file's rows."""
    np.save(tmp_path / "in.npy", x)

    def reported(one, spec, **options):
        seen = []
        one.normalize_file(tmp_path / "in.npy", tmp_path / "out.npy", spec,
                           progress=lambda done, total: seen.append((done, total)), **options)
        assert seen == sorted(set(seen)) and seen[-1] == (300, 300)
        assert {total for _, total in seen} == {300}
        return len(seen)

    assert reported(client, normd.LayerNorm(1024)) == 1
    assert reported(small_client, normd.BatchNorm(), training=True) == 1
    monkeypatch.setattr(_core, "PIECES_BYTES", 512 << 10)
    monkeypatch.setattr(_core, "PIECE_BYTES", 400 << 10)  # beyond the limit of a message: pieces are cut again
    assert reported(small_client, normd.LayerNorm(1024)) > 2


def test_a_full_disk_is_an_error_that_leaves_nothing_behind(client, x, tmp_path, monkeypatch):
    """The file's blocks are reserved first: under a memory map a full disk would end the process."""
    np.save(tmp_path / "in.npy", x)
    reserved = []

    def full(descriptor, offset, size):
        reserved.append(size)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left on device"):
        client.normalize_file(tmp_path / "in.npy", tmp_path / "out.npy", normd.LayerNorm(1024))
    assert reserved[0] > x.nbytes and os.listdir(tmp_path) == ["in.npy"]


def test_a_file_has_the_mode_of_any_new_file_and_umask_is_left_alone(client, x, tmp_path, monkeypatch):
    """umask is the process's: another thread's file would get the wrong mode."""
    np.save(tmp_path / "in.npy", x)
    before = os.umask(0o027)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(os, "umask", lambda mask: pytest.fail("umask was changed"))
            client.normalize_file(tmp_path / "in.npy", tmp_path / "out.npy", normd.LayerNorm(1024))
        assert os.stat(tmp_path / "out.npy").st_mode & 0o777 == 0o640
    finally:
        os.umask(before)


def test_progress_is_shown_with_and_without_tqdm(small_client, x, tmp_path, capsys, monkeypatch):
    import sys

    np.save(tmp_path / "in.npy", x)
    small_client.normalize_file(tmp_path / "in.npy", tmp_path / "out.npy", normd.LayerNorm(1024), progress=True)
    assert "300/300" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    small_client.normalize_file(tmp_path / "in.npy", tmp_path / "out.npy", normd.LayerNorm(1024), progress=True)
    assert "out.npy: 100 %" in capsys.readouterr().err


@pytest.mark.parametrize("change", [lambda x: x.astype(">f4"), np.asfortranarray])
def test_a_file_in_another_order_becomes_a_native_one(client, x, tmp_path, change):
    np.save(tmp_path / "in.npy", change(x))
    client.normalize_file(tmp_path / "in.npy", tmp_path / "out.npy", normd.LayerNorm(1024))
    y = np.load(tmp_path / "out.npy")
    assert y.dtype.isnative and y.flags.c_contiguous
    np.testing.assert_array_equal(y, client.layer_norm(x, 1024))


def test_a_file_of_bfloat16_is_refused_with_a_hint(client, x, tmp_path):
    np.save(tmp_path / "in.npy", x.astype(ml_dtypes.bfloat16))
    with pytest.raises(normd.InvalidArgument, match=r"if they are bfloat16, give dtype='bfloat16'"):
        client.normalize_file(tmp_path / "in.npy", tmp_path / "out.npy", normd.LayerNorm(1024))
    client.layer_norm(np.load(tmp_path / "in.npy").view(ml_dtypes.bfloat16), 1024)
    assert os.listdir(tmp_path) == ["in.npy"]


def test_a_file_that_cannot_be_normalised_leaves_nothing_behind(small_client, x, tmp_path):
    np.save(tmp_path / "in.npy", x)
    np.savez(tmp_path / "in.npz", first=x, second=x)
    with pytest.raises(normd.InvalidArgument):
        small_client.normalize_file(tmp_path / "in.npy", tmp_path / "out.npy", normd.LayerNorm(7))
    with pytest.raises(normd.InvalidArgument, match="is an archive of first, second"):
        small_client.normalize_file(tmp_path / "in.npz", tmp_path / "out.npy", normd.LayerNorm(1024))
    with pytest.raises(normd.InvalidArgument, match="is the input, too"):
        small_client.normalize_file(tmp_path / "in.npy", tmp_path / "in.npy", normd.LayerNorm(1024))
    with pytest.raises(FileNotFoundError):
        small_client.normalize_file(tmp_path / "no.npy", tmp_path / "out.npy", normd.LayerNorm(1024))
    assert sorted(os.listdir(tmp_path)) == ["in.npy", "in.npz"]
