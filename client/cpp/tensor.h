// A dense tensor as clients hold it: dtype, shape and row-major little-endian bytes. It converts from and to spans of
// float and double, and from and to the wire's message.
//
//   #include <normd/client.h>
//
//   using normd::client::Tensor;
//   const Tensor weight = Tensor::Rounded(normd::v1::DTYPE_BF16, {2}, {0.1, 0.2});
//   *request.mutable_parameters()->mutable_weight() = weight.ToProto();
//   *request.mutable_x() = Tensor::F32({2, 2}, {1, 2, 3, 4}).ToProto();  // a temporary: moves the bytes
//   ...
//   const absl::StatusOr<Tensor> y = Tensor::FromProto(std::move(*response.mutable_outputs(0)->mutable_tensor()));
//   if (y.ok()) Use(y->ToFloats());
//
// Threads: a plain value. Ownership: a Tensor owns its bytes. Header only.
#ifndef NORMD_CLIENT_CPP_TENSOR_H_
#define NORMD_CLIENT_CPP_TENSOR_H_

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "client/cpp/half.h"
#include "normd/v1/tensor.pb.h"

namespace normd::client {

static_assert(std::endian::native == std::endian::little, "normd's wire format is little-endian");

using DType = v1::DType;

// Bytes of one element; 0 for values that name no element type.
constexpr int64_t ElementBytes(DType dtype) {
  switch (dtype) {
    case v1::DTYPE_F16:
    case v1::DTYPE_BF16:
      return 2;
    case v1::DTYPE_F32:
      return 4;
    case v1::DTYPE_F64:
      return 8;
    default:
      return 0;
  }
}

// "f32", as flags and tables write the dtype.
constexpr absl::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case v1::DTYPE_F16:
      return "f16";
    case v1::DTYPE_BF16:
      return "bf16";
    case v1::DTYPE_F32:
      return "f32";
    case v1::DTYPE_F64:
      return "f64";
    default:
      return "unspecified";
  }
}

// `data` holds the elements in row-major order, little-endian: the product of `shape` times ElementBytes(dtype) bytes.
// The server checks the size.
struct Tensor {
  DType dtype = v1::DTYPE_UNSPECIFIED;
  std::vector<int64_t> shape;
  std::string data;

  // Copies `values`. REQUIRES: the product of `shape` equals the number of values (the server checks it again).
  static Tensor F32(std::vector<int64_t> shape, absl::Span<const float> values) {
    return FromElements(v1::DTYPE_F32, std::move(shape), values.data(), values.size());
  }
  static Tensor F64(std::vector<int64_t> shape, absl::Span<const double> values) {
    return FromElements(v1::DTYPE_F64, std::move(shape), values.data(), values.size());
  }
  // Rounds every value once, to nearest even. REQUIRES: `dtype` is F16, BF16, F32 or F64.
  static Tensor Rounded(DType dtype, std::vector<int64_t> shape, absl::Span<const double> values);

  // The number of elements that `data` holds.
  int64_t elements() const {
    const int64_t bytes = ElementBytes(dtype);
    return bytes == 0 ? 0 : static_cast<int64_t>(data.size()) / bytes;
  }

  // The values in row-major order. Widening is exact; only ToFloats of an f64 tensor rounds.
  std::vector<float> ToFloats() const { return Widen<float>(); }
  std::vector<double> ToDoubles() const { return Widen<double>(); }

  // The wire's message. The rvalue form moves the bytes instead of copying them.
  v1::Tensor ToProto() const& {
    v1::Tensor out = Metadata();
    out.set_data(data);
    return out;
  }
  v1::Tensor ToProto() && {
    v1::Tensor out = Metadata();
    out.set_data(std::move(data));
    return out;
  }
  // Takes over the message's bytes. INTERNAL if they do not match dtype and shape, which no server sends. Outputs in
  // shared memory carry no bytes: read them from their block.
  static absl::StatusOr<Tensor> FromProto(v1::Tensor proto) {
    Tensor out;
    out.dtype = proto.dtype();
    out.shape.assign(proto.shape().begin(), proto.shape().end());
    out.data = std::move(*proto.mutable_data());
    int64_t bytes = ElementBytes(out.dtype);
    bool fits = bytes > 0;
    for (int64_t extent : out.shape) fits = fits && extent >= 0 && !__builtin_mul_overflow(bytes, extent, &bytes);
    if (!fits || static_cast<uint64_t>(bytes) != out.data.size()) {
      return absl::InternalError(absl::StrCat("a tensor of ", out.data.size(), " bytes does not match its shape"));
    }
    return out;
  }

 private:
  template <typename T>
  static Tensor FromElements(DType dtype, std::vector<int64_t> shape, const T* values, size_t count) {
    Tensor out{dtype, std::move(shape), {}};
    if (count > 0) out.data.assign(reinterpret_cast<const char*>(values), count * sizeof(T));
    return out;
  }

  v1::Tensor Metadata() const {
    v1::Tensor out;
    out.set_dtype(dtype);
    out.mutable_shape()->Add(shape.begin(), shape.end());
    return out;
  }

  template <typename T>
  T Load(int64_t index) const {
    T value;
    std::memcpy(&value, data.data() + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return value;
  }

  template <typename To>
  std::vector<To> Widen() const {
    std::vector<To> out(static_cast<size_t>(elements()));
    for (int64_t i = 0; i < elements(); ++i) {
      switch (dtype) {
        case v1::DTYPE_F16:
          out[i] = static_cast<To>(F16ToFloat(Load<uint16_t>(i)));
          break;
        case v1::DTYPE_BF16:
          out[i] = static_cast<To>(Bf16ToFloat(Load<uint16_t>(i)));
          break;
        case v1::DTYPE_F32:
          out[i] = static_cast<To>(Load<float>(i));
          break;
        default:
          out[i] = static_cast<To>(Load<double>(i));
          break;
      }
    }
    return out;
  }
};

inline Tensor Tensor::Rounded(DType dtype, std::vector<int64_t> shape, absl::Span<const double> values) {
  if (dtype == v1::DTYPE_F64) return F64(std::move(shape), values);
  Tensor out{dtype, std::move(shape), {}};
  const int64_t bytes = ElementBytes(dtype);
  out.data.resize(values.size() * static_cast<size_t>(bytes));
  char* to = out.data.data();
  for (double value : values) {
    if (dtype == v1::DTYPE_F32) {
      const float narrow = static_cast<float>(value);
      std::memcpy(to, &narrow, sizeof(narrow));
    } else if (bytes == 2) {
      const uint16_t bits = dtype == v1::DTYPE_F16 ? DoubleToF16(value) : DoubleToBf16(value);
      std::memcpy(to, &bits, sizeof(bits));
    }
    to += bytes;
  }
  return out;
}

}  // namespace normd::client

#endif  // NORMD_CLIENT_CPP_TENSOR_H_
