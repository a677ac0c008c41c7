// normd.v1.Tensor and the messages of tensors -> views and values, checked: after this, dtype, shape and byte count
// agree. In the path: the first half of decoding, also for sessions. Views borrow from the message or its source.
#ifndef NORMD_SERVER_RPC_CODEC_DECODE_TENSOR_H_
#define NORMD_SERVER_RPC_CODEC_DECODE_TENSOR_H_

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/moments.h"
#include "kernels/tensor.h"
#include "normd/v1/normalizer.pb.h"
#include "normd/v1/tensor.pb.h"
#include "server/rpc/codec/tensor_source.h"

namespace normd::rpc {

// What the elements are.
enum class TensorKind {
  kFloating,  // dtype says
  kMask,      // one byte each, dtype ignored
};

// A present view in one piece (data is never null, also of an empty tensor), which lives as long as `source`; without
// one the bytes are the message's. INVALID_ARGUMENT naming "<field>.dtype", ".shape" or ".data", and "<field>.shared"
// for one in CUDA memory; the source's errors.
absl::StatusOr<TensorView> DecodeTensor(const v1::Tensor& tensor, std::string_view field,
                                        TensorKind kind = TensorKind::kFloating, TensorSource* source = nullptr);
// The same; one in CUDA memory stays there, and the host must not follow `data`.
absl::StatusOr<TensorView> DecodeTensorAnywhere(const v1::Tensor& tensor, std::string_view field, TensorSource* source);
// The same; and one that came in pieces stays so.
absl::StatusOr<TensorView> DecodeScatteredTensor(const v1::Tensor& tensor, std::string_view field,
                                                 TensorSource* source);

// The elements of an f64 tensor of any shape.
absl::StatusOr<std::vector<double>> DecodeF64(const v1::Tensor& tensor, std::string_view field);

// Three f64 tensors of one length; counts are integers >= 0, m2 is not negative. NaN and Inf are let through in mean
// and m2: they are what non-finite data gives.
absl::StatusOr<Moments> DecodeMoments(const v1::Moments& moments, std::string_view field);

// INVALID_ARGUMENT naming `field`: `value` is no number of the enum.
absl::Status UnknownEnumError(std::string_view field, int value);

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_CODEC_DECODE_TENSOR_H_
