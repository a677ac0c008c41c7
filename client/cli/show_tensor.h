// A tensor as text for people: aligned columns, and of large tensors the corners only, as NumPy prints them. Pure.
#ifndef NORMD_CLIENT_CLI_SHOW_TENSOR_H_
#define NORMD_CLIENT_CLI_SHOW_TENSOR_H_

#include <string>

#include "absl/types/span.h"
#include "client/cpp/tensor.h"

namespace normd::client {

// For a terminal of `width` columns. Values have up to eight significant digits. Of a tensor of more than 1000 elements
// each axis shows its first and last three indices with "..." between them, and columns that do not fit the width are
// left out in the same way. `header`, if any, has a name for each column.
// The matrices of a tensor of rank 3 and more follow each other under their leading indices, "[0, 1]".
std::string ShowTensor(const Tensor& tensor, absl::Span<const std::string> header, int width);

// The whole tensor as .csv text. Before each matrix of a tensor of rank 3 and more a line names the matrix: "# [0, 1]",
// a comment for readers such as numpy.loadtxt.
std::string TensorAsLines(const Tensor& tensor, absl::Span<const std::string> header);

}  // namespace normd::client

#endif  // NORMD_CLIENT_CLI_SHOW_TENSOR_H_
