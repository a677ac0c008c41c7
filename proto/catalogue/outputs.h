// The outputs that a call may ask for, once for the kernels, the server and the clients: a row a kind. Constants.
//
//   if (const OutputInfo* output = FindOutput(request.outputs(i).kind()); output != nullptr && output->is_like_x) ...
#ifndef NORMD_PROTO_CATALOGUE_OUTPUTS_H_
#define NORMD_PROTO_CATALOGUE_OUTPUTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace normd {

enum class OutputKind : uint8_t { kY = 1, kH, kMean, kInverseStd, kMoments };  // the numbers of v1.OutputKind

struct OutputInfo {
  OutputKind kind;
  std::string_view name;
  bool is_like_x;         // has the shape and dtype of x; otherwise it has one value for each statistics group
  bool may_be_shared;     // may be written to shared memory of the caller's
  bool may_be_on_device;  // which may be a device's
};

// In the order of their numbers, which begin with 1.
inline constexpr std::array<OutputInfo, 5> kOutputs = {{
    {OutputKind::kY, "y", true, true, true},
    {OutputKind::kH, "h", true, true, true},
    {OutputKind::kMean, "mean", false, true, false},
    {OutputKind::kInverseStd, "inv_std", false, true, false},
    {OutputKind::kMoments, "moments", false, false, false},
}};

constexpr const OutputInfo& Info(OutputKind kind) { return kOutputs[static_cast<size_t>(kind) - 1]; }

// The kind with this number on the wire; null if there is none.
constexpr const OutputInfo* FindOutput(int number) {
  if (number < 1 || number > static_cast<int>(kOutputs.size())) return nullptr;
  return &kOutputs[static_cast<size_t>(number) - 1];
}

// Whether an output of this number has the shape and dtype of x.
constexpr bool IsLikeX(int number) {
  const OutputInfo* const output = FindOutput(number);
  return output != nullptr && output->is_like_x;
}

}  // namespace normd

#endif  // NORMD_PROTO_CATALOGUE_OUTPUTS_H_
