// Decodes normd.v1.Tensor and messages of tensors into views and values, and checks that dtype, shape and byte count
// agree.
// In the path: the first step of decoding, for calls and for sessions.
// Ownership: views borrow from the message or its source. Threads: as TensorSource.
#ifndef NORMD_SERVER_RPC_CODEC_DECODE_TENSOR_H_
#define NORMD_SERVER_RPC_CODEC_DECODE_TENSOR_H_

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/moments.h"
#include "kernels/tensor.h"
#include "normd/v1/normalizer.pb.h"
#include "normd/v1/tensor.pb.h"
#include "server/engine/pooled_step.h"
#include "server/rpc/codec/tensor_source.h"

namespace normd::rpc {

// The kind of a tensor's elements.
enum class TensorKind {
  kFloating,  // as dtype says
  kMask,      // one byte each; dtype is ignored
};

// Returns a contiguous view of `tensor`; its `data` is not null, even if the tensor is empty. The view lives as long as
// `source`, or, if `source` is null, as long as the message, which then has the bytes. Returns INVALID_ARGUMENT naming
// "<field>.dtype", ".shape" or the payload, or "<field>.shared" for a tensor in CUDA memory, and the errors of
// TensorSource::Find.
absl::StatusOr<TensorView> DecodeTensor(const v1::Tensor& tensor, std::string_view field,
                                        TensorKind kind = TensorKind::kFloating, TensorSource* source = nullptr);
// Like DecodeTensor, but the tensor may lie in CUDA memory; then the host must not dereference `data`.
absl::StatusOr<TensorView> DecodeTensorAnywhere(const v1::Tensor& tensor, std::string_view field, TensorSource* source);
// Like DecodeTensorAnywhere, but the view may also be scattered.
absl::StatusOr<TensorView> DecodeScatteredTensor(const v1::Tensor& tensor, std::string_view field,
                                                 TensorSource* source);

// Copies the elements of an f64 tensor of any shape.
absl::StatusOr<std::vector<double>> DecodeF64(const v1::Tensor& tensor, std::string_view field);

// Decodes f64 tensors of one length. Counts must be at least 0, and m2 must not be negative. mean and m2 may be NaN or
// Inf, because non-finite data has such moments. Extremes are given both or not at all. Exact sums must be such that
// some elements have; whether they are those of the moments is not checked.
absl::StatusOr<MomentsPart> DecodeMoments(const v1::Moments& moments, std::string_view field);

// INVALID_ARGUMENT naming `field`: the enum has no `value`.
absl::Status UnknownEnumError(std::string_view field, int value);

}  // namespace normd::rpc

#endif  // NORMD_SERVER_RPC_CODEC_DECODE_TENSOR_H_
