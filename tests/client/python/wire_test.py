"""Hand-written bytes are those of the contract: protobuf reads what is written, and reads as this package reads."""

import ml_dtypes
import numpy as np
import pytest

import normd
from normd import _arrays, _chunks, _wire
from normd._crc32c import crc32c
from normd._proto import normalizer_pb2, tensor_pb2
from normd._request import Place, Target, make_call


def encode(call, place=Place()):
    return normalizer_pb2.NormalizeRequest.FromString(_wire.join(call.encode(place)))


def test_a_request_with_everything_is_what_protobuf_reads(random):
    x, w, r = (random.standard_normal(shape) for shape in ((2, 300), 300, (2, 300)))
    call = make_call(
        Target(session="sessions/s"), x, (w.astype(np.float16), None, w), training=True, outputs=("y", "mean"),
        residual=r, residual_scale=0.5, residual_rounding="keep_wide", residual_out=np.empty_like(r),
        mask=np.array([True, False]), precision="fast", device="cpu", step=normd.Step("me", 7), expected_version=0,
        max_staleness=1.5, validate_only=True, want_timings=True)
    request = encode(call)
    assert request.session == "sessions/s" and request.mode == normalizer_pb2.MODE_TRAINING
    assert request.parameters.weight.data == w.astype(np.float16).tobytes()
    assert request.parameters.weight.dtype == tensor_pb2.DTYPE_F16 and not request.parameters.HasField("bias")
    assert request.parameters.running_mean.shape == [300]
    assert request.residual.tensor.data == r.tobytes() and request.residual.scale == 0.5
    assert request.residual.rounding == normalizer_pb2.RESIDUAL_ROUNDING_KEEP_WIDE
    assert (request.mask.dtype, request.mask.data) == (0, b"\x01\x00")
    assert [output.kind for output in request.outputs] == [1, 3, 2]
    assert request.precision == normalizer_pb2.PRECISION_FAST and request.device == normalizer_pb2.DEVICE_CPU
    assert (request.step.client_id, request.step.sequence) == ("me", 7)
    assert request.HasField("expected_version") and request.max_staleness.ToNanoseconds() == 1_500_000_000
    assert request.validate_only and request.want_timings
    assert (request.x.dtype, list(request.x.shape), request.x.data) == (tensor_pb2.DTYPE_F64, [2, 300], x.tobytes())


@pytest.mark.parametrize("dtype, number", [(np.float32, 1), (np.float16, 2), (ml_dtypes.bfloat16, 3), (np.float64, 4)])
def test_every_dtype_has_its_number_and_its_bytes(random, dtype, number):
    x = random.standard_normal((3, 5)).astype(dtype)
    tensor = encode(make_call(Target(normd.LayerNorm(5)), x)).x
    assert tensor.dtype == number and tensor.data == x.tobytes()


def test_tensors_elsewhere_are_named_in_their_place(random):
    x = random.standard_normal((3, 5))
    call = make_call(Target(normd.LayerNorm(5)), x)
    request = encode(call, Place(x=_wire.SharedRange("r-1", 300, 120), outputs={1: _wire.SharedRange("r-1", 0, 120)}))
    assert (request.x.shared.region, request.x.shared.offset, request.x.shared.size_bytes) == ("r-1", 300, 120)
    assert request.outputs[0].shared.size_bytes == 120
    assert encode(call, Place(chunked=True)).x.chunked.size_bytes == 120
    empty = encode(make_call(Target(normd.LayerNorm(5)), x[:0]), Place(chunked=True))
    assert empty.x.WhichOneof("payload") == "chunked"


def test_an_empty_tensor_has_its_payload():
    x = np.empty((0, 5), np.float32)
    assert encode(make_call(Target(normd.LayerNorm(5)), x)).x.WhichOneof("payload") == "data"


def reply_message(random):
    reply = normalizer_pb2.NormalizeResponse()
    reply.applied.method, reply.applied.eps = "layer_norm", 1e-5
    reply.state.version = 300
    reply.timings.compute_ns = 7
    for kind, shape in ((1, (3, 200)), (3, (3,))):
        data = random.standard_normal(shape).astype(np.float32)
        reply.outputs.add(kind=kind, tensor=tensor_pb2.Tensor(dtype=1, shape=shape, data=data.tobytes()))
    return reply


def check_reply(read, message):
    assert read.read_applied() == message.applied and read.read_state() == message.state
    assert read.read_timings() == message.timings
    for found, output in zip(read.outputs, message.outputs):
        words = _arrays.take_output(read.data, found.offset, found.dtype, found.shape)
        assert (found.kind, words.tobytes()) == (output.kind, output.tensor.data)
        assert list(found.shape) == list(output.tensor.shape)


def test_a_reply_is_read_as_protobuf_reads_it(random):
    message = reply_message(random)
    check_reply(_wire.read_reply(message.SerializeToString()), message)


def test_a_reply_with_unknown_fields_is_left_to_protobuf(random):
    message = reply_message(random)
    unknown = _wire.key(99) + b"\x03abc" + _wire.key(98, 0) + b"\x05"
    for data in (message.SerializeToString() + unknown, unknown + message.SerializeToString()):
        check_reply(_wire.read_reply(data), message)
    # An unknown field within an output, and a tensor whose shape is not packed.
    tensor = b"\x08\x01" + b"\x10\x02" + _wire.key(31) + b"\x01z" + b"\x7a\x08" + b"\0" * 8
    output = b"\x08\x01" + _wire.key(15) + _wire.varint(len(tensor)) + tensor
    read = _wire.read_reply(b"\x7a" + _wire.varint(len(output)) + output)
    assert read.outputs[0].shape == (2,) and read.outputs[0].size == 8


def test_bytes_that_are_no_reply_are_an_error_and_never_a_result(random):
    from google.protobuf.message import DecodeError

    whole = reply_message(random).SerializeToString()
    for size in range(1, len(whole) - 1, 7):
        try:
            read = _wire.read_reply(whole[:size])
        except DecodeError:
            continue
        for output in read.outputs:
            assert output.offset + output.size <= len(read.data)


def test_crc32c_is_that_of_rfc_3720(random):
    known = [(b"\0" * 32, 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43), (bytes(range(32)), 0x46DD794E),
             (b"123456789", 0xE3069283), (b"", 0)]
    for data, expected in known:
        assert crc32c(np.frombuffer(data, np.uint8)) == expected

    def bit_by_bit(data):
        sum_ = 0xFFFFFFFF
        for byte in data:
            sum_ ^= byte
            for _ in range(8):
                sum_ = sum_ >> 1 ^ (0x82F63B78 if sum_ & 1 else 0)
        return sum_ ^ 0xFFFFFFFF

    for size in (1, 255, 256, 257, 1023, 5000):
        data = random.integers(0, 256, size, dtype=np.uint8)
        assert crc32c(data) == bit_by_bit(data.tobytes())


def test_rows_are_independent_where_statistics_do_not_cross_axis_0():
    independent = [normd.LayerNorm(8), normd.LayerNorm(axes=(1,)), normd.RMSNorm(), normd.RMSNorm(8), normd.ScaleNorm(),
                   normd.PRMSNorm(0.5), normd.GroupNorm(2), normd.InstanceNorm(), normd.LpNorm(), normd.LpNorm(dim=-1),
                   normd.LpNorm(dim=None)]
    crossing = [normd.LayerNorm((4, 8)), normd.LayerNorm(axes=(0,)), normd.LayerNorm(axes=(-2,)), normd.BatchNorm(),
                normd.LpNorm(dim=0), normd.LpNorm(dim=(0, 1)), normd.LpNorm(dim=-2), normd.PowerNorm(), None]
    assert all(_chunks.rows_are_independent(spec, 2) for spec in independent)
    assert not any(_chunks.rows_are_independent(spec, 2) for spec in crossing)
    assert not _chunks.rows_are_independent(normd.LpNorm(dim=-1), 1)


def test_specs_carry_every_attribute():
    running = normd.BatchNorm(momentum=None, momentum_of="old", running_variance="biased", single_value="zero_variance",
                              accept_non_finite=True).to_proto().batch_norm.running
    assert running.cumulative and not running.HasField("momentum")
    assert (running.momentum_of, running.variance, running.single_value, running.accept_non_finite) == (2, 2, 2, True)
    assert normd.LpNorm(3.0).to_proto().lp_norm.order == 3 and normd.LpNorm(2.5).to_proto().lp_norm.p == 2.5
    assert normd.PRMSNorm(k=3, k_rounding="floor").to_proto().p_rms_norm.k_rounding == 2
    group_norm = normd.GroupNorm(2, affine_per_group=True, cast_order="cast_then_affine").to_proto().group_norm
    assert group_norm.affine_per_group and group_norm.cast_order == 2
    assert not normd.InstanceNorm().to_proto().instance_norm.HasField("running")
    with pytest.raises(normd.InvalidArgument, match="layout is 'NCWH'; channels_first, channels_last are possible"):
        normd.BatchNorm(layout="NCWH").to_proto()
