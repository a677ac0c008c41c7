"""What goes wrong is said by a class of its own, with field, value and limit."""

import functools
import time

import numpy as np
import pytest

import normd

X = np.ones((4, 8), np.float32)


def test_a_wrong_shape_names_field_value_and_limit(client):
    with pytest.raises(normd.InvalidArgument) as caught:
        client.layer_norm(X, (7,))
    error = caught.value
    assert isinstance(error, ValueError) and isinstance(error, normd.Error)
    assert error.code == "INVALID_ARGUMENT"
    assert error.field == "spec.layer_norm.normalized_shape"
    assert error.value == "[7]"
    assert error.limit == "the trailing extents of x, whose shape is [4,8]"
    assert error.reason == "SHAPE_MISMATCH"
    assert error.field in str(error)
    assert len(error.request_id) == 16 and int(error.request_id, 16) >= 0


@pytest.mark.parametrize("x, message", [
    (np.float32(1), "x has rank 0; 1 to 8 are possible"),
    (np.ones((1,) * 9, np.float32), "x has rank 9; 1 to 8 are possible"),
    (np.arange(8), "x has dtype int64; float32, float16, bfloat16 and float64 are possible"),
    (np.ones(8, bool), "x has dtype bool; float32"),
    (np.ones(8, complex), "x has dtype complex128; float32"),
    (np.array(["a"]), "x has dtype <U1; float32"),
    ([1, 2, 3], "x has dtype int64; float32"),
    (np.ma.masked_equal(np.ones(8), 2), "x is a masked array, whose mask would be lost"),
])
def test_what_is_no_tensor_is_refused_without_a_server(x, message):
    with normd.connect("127.0.0.1:1") as nobody, pytest.raises(normd.InvalidArgument) as caught:
        nobody.layer_norm(x, 8)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("options, field", [
    ({"precision": "quick"}, "precision"), ({"device": "tpu"}, "device"), ({"eps_mode": "outside"}, "eps_mode"),
    ({"residual_out": X}, "residual_out"), ({"out": np.empty((4, 7), np.float32)}, "out"),
    ({"out": np.empty((4, 8), np.float64)}, "out"),
    ({"out": np.frombuffer(X.tobytes(), np.float32).reshape(4, 8)}, "out"),
    ({"mask": np.ones(4)}, "mask.dtype")])
def test_wrong_options_are_named(client, options, field):
    with pytest.raises(normd.InvalidArgument) as caught:
        client.layer_norm(X, 8, **options)
    assert caught.value.field == field


@pytest.mark.parametrize("shape", [6.5, 8.0, (8.0,), ("8",), "8"])
def test_a_shape_that_is_not_of_integers_is_refused(client, shape):
    for make in (normd.LayerNorm, normd.RMSNorm, lambda shape: client.layer_norm(X, shape)):
        with pytest.raises(normd.InvalidArgument, match="normalized_shape is .*; it must be an integer") as caught:
            make(shape)
        assert caught.value.field == "normalized_shape"


def test_unknown_keywords_and_outputs_are_refused(client):
    def assert_refused(function, call):
        with pytest.raises(TypeError) as caught:
            call(**{keyword: "fast"})
        assert str(caught.value) == f"{function}() got an unexpected keyword argument '{keyword}'"

    session = client.session("t-keywords", normd.BatchNorm(8)).eval()
    ones = np.ones(8)
    for keyword in ("presicion", "step", "destinations"):
        assert_refused("layer_norm", functools.partial(client.layer_norm, X, 8))
        assert_refused("batch_norm", functools.partial(client.batch_norm, X, None, None, training=True))
        assert_refused("instance_norm", functools.partial(client.instance_norm, X, ones, ones, use_input_stats=False))
        assert_refused("power_norm", functools.partial(client.power_norm, X, ones))
        assert_refused("normalize", functools.partial(client.normalize, normd.LayerNorm(8), X))
    keyword = "cast_order"
    assert_refused("lp_norm", functools.partial(client.lp_norm, X))
    keyword = "presicion"
    assert_refused("Session.normalize", functools.partial(session, X))
    session.delete()
    with pytest.raises(normd.InvalidArgument, match="outputs has 'z'; y, h, mean, inv_std, moments are possible"):
        client.normalize(normd.LayerNorm(8), X, outputs=("z",))


def test_no_server_is_a_connection_error_that_asks_whether_one_is_running():
    with normd.connect("127.0.0.1:1", deadline=0.5) as nobody, pytest.raises(ConnectionError) as caught:
        nobody.layer_norm(X, 8)
    assert isinstance(caught.value, normd.Unavailable)
    assert "is normd running there?" in str(caught.value) and "127.0.0.1:1" in str(caught.value)


def test_the_admin_port_is_recognised(server):
    assert server.admin
    with normd.connect(server.admin, deadline=2) as wrong, pytest.raises(normd.Error, match="admin port") as caught:
        wrong.layer_norm(X, 8)
    assert caught.value.code == "UNAVAILABLE"


def test_a_server_that_is_silent_is_a_timeout(own_server):
    with normd.connect(own_server.unix) as client:
        client.layer_norm(X, 8)
        own_server.pause()
        start = time.monotonic()
        with pytest.raises(TimeoutError) as caught:
            client.layer_norm(X, 8, timeout=0.3)
        assert isinstance(caught.value, normd.DeadlineExceeded)
        assert time.monotonic() - start < 5


def test_an_unknown_session_is_a_key_error_in_plain_words(client):
    with pytest.raises(KeyError) as caught:
        client.session("nobody-made-this")
    assert isinstance(caught.value, normd.NotFound)
    assert caught.value.value == "sessions/nobody-made-this"
    assert str(caught.value).startswith("session sessions/nobody-made-this does not exist")


def test_a_cuda_device_that_is_not_there_is_a_failed_precondition(client):
    if any(device.name.startswith("cuda") and device.usable for device in client.describe().devices):
        pytest.skip("this server has a CUDA device")
    with pytest.raises(normd.FailedPrecondition, match="device is cuda") as caught:
        client.layer_norm(X, 8, device="cuda")
    assert "DEVICE_" not in str(caught.value) + caught.value.value + caught.value.limit


def test_a_closed_client_says_so(server):
    client = normd.connect(server.unix)
    client.layer_norm(X, 8)
    client.close()
    with pytest.raises(normd.Unavailable, match="closed"):
        client.layer_norm(X, 8)
    client.close()


def test_a_wrong_choice_of_shared_memory_is_refused():
    with pytest.raises(normd.InvalidArgument, match="auto, on and off are possible"):
        normd.connect(shared_memory="yes")


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 0, -1, 1e300, "a", True])
def test_seconds_that_are_none_are_refused(client, value):
    moments = client.moments(normd.BatchNorm(8), X)
    session = client.session("t-seconds", normd.BatchNorm(8))
    for call in (lambda: client.layer_norm(X, 8, timeout=value), lambda: client.batch([], timeout=value),
                 lambda: client.moments(normd.BatchNorm(8), X, timeout=value),
                 lambda: session.commit([moments], timeout=value), lambda: session(X, timeout=value)):
        with pytest.raises(normd.InvalidArgument, match="timeout is .*; it must be a number of seconds") as caught:
            call()
        assert (caught.value.field, caught.value.value) == ("timeout", str(value)) and caught.value.limit
    assert session.version == 0
    session.delete()


@pytest.mark.parametrize("arguments, field", [
    ({"deadline": None}, "deadline"), ({"deadline": "a"}, "deadline"), ({"deadline": float("nan")}, "deadline"),
    ({"target": 5}, "target"), ({"target": b"localhost:8001"}, "target")])
def test_a_client_of_wrong_arguments_is_not_made(arguments, field):
    for connect in (normd.connect, normd.aio.connect):
        with pytest.raises(normd.InvalidArgument) as caught:
            connect(**arguments)
        assert (caught.value.field, caught.value.value) == (field, str(arguments[field])) and caught.value.limit


def test_a_long_deadline_is_no_short_one(server):
    with normd.connect(server.unix, deadline=1e9) as client:
        assert client.layer_norm(X, 8, timeout=np.float32(1e9)).shape == X.shape


def test_every_status_code_has_a_class_or_is_a_plain_error():
    from normd._proto import status_pb2
    from normd.errors import from_status

    for number, kind in ((3, normd.InvalidArgument), (4, normd.DeadlineExceeded), (5, normd.NotFound),
                         (8, normd.ResourceExhausted), (10, normd.Aborted), (13, normd.Internal), (15, normd.DataLoss),
                         (16, normd.Unauthenticated), (2, normd.Error), (99, normd.Error)):
        error = from_status(status_pb2.Status(code=number, message="text"))
        assert type(error) is kind and str(error) == "text"
