#include "client/cli/show_tensor.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "client/cli/csv.h"
#include "client/cli/table.h"

namespace normd::client {
namespace {

// The defaults of numpy.set_printoptions.
constexpr int64_t kSummarisedElements = 1000;
constexpr int64_t kEdgeIndices = 3;

constexpr int64_t kLeftOut = -1;  // stands for the indices that are left out
constexpr absl::string_view kDots = "...";
constexpr size_t kColumnGap = 2;

// 0 to count - 1; if `edges` is given and leaves something out, only that many at each end, with kLeftOut between them.
std::vector<int64_t> ShownIndices(int64_t count, int64_t edges) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < count; ++i) {
    if (count > 2 * edges && i == edges) {
      out.push_back(kLeftOut);
      i = count - edges;
    }
    out.push_back(i);
  }
  return out;
}

// The matrices of a tensor: its last two axes. A tensor of rank 1 is one row.
struct Matrices {
  explicit Matrices(const Tensor& tensor) : values(tensor.ToDoubles()) {
    const size_t rank = tensor.shape.size();
    columns = rank == 0 ? 1 : tensor.shape.back();
    rows = rank < 2 ? 1 : tensor.shape[rank - 2];
    if (rank > 2) leading.assign(tensor.shape.begin(), tensor.shape.end() - 2);
  }
  double At(int64_t matrix, int64_t row, int64_t column) const {
    return values[static_cast<size_t>((matrix * rows + row) * columns + column)];
  }

  std::vector<double> values;
  std::vector<int64_t> leading;
  int64_t rows = 1, columns = 1;
};

// Calls `show(number, indices)` for the matrix at each combination of the shown leading indices.
void ForEachMatrix(const Matrices& matrices, int64_t edges, std::vector<int64_t>& indices, int64_t number,
                   const std::function<void(int64_t, const std::vector<int64_t>&)>& show) {
  if (indices.size() == matrices.leading.size()) return show(number, indices);
  const int64_t extent = matrices.leading[indices.size()];
  for (const int64_t index : ShownIndices(extent, edges)) {
    if (index == kLeftOut) {
      show(kLeftOut, indices);
      continue;
    }
    indices.push_back(index);
    ForEachMatrix(matrices, edges, indices, number * extent + index, show);
    indices.pop_back();
  }
}

using Cells = std::vector<std::vector<std::string>>;  // by row

// The cells of one matrix with the given columns.
Cells MakeCells(const Matrices& matrices, int64_t matrix, const std::vector<int64_t>& rows,
                const std::vector<int64_t>& columns, absl::Span<const std::string> header) {
  Cells out;
  const auto add = [&](const std::function<std::string(int64_t)>& cell) {
    std::vector<std::string>& row = out.emplace_back();
    for (const int64_t column : columns) row.push_back(column == kLeftOut ? std::string(kDots) : cell(column));
  };
  if (static_cast<int64_t>(header.size()) == matrices.columns) {
    add([&](int64_t column) { return header[static_cast<size_t>(column)]; });
  }
  for (const int64_t row : rows) {
    add([&](int64_t column) {
      return row == kLeftOut ? std::string(kDots) : absl::StrFormat("%.8g", matrices.At(matrix, row, column));
    });
  }
  return out;
}

// Appends the cells, right-aligned. Returns false and appends nothing if a line would be wider than `width`.
bool AppendAligned(const Cells& cells, size_t width, std::string& out) {
  std::vector<size_t> widths(cells.empty() ? 0 : cells[0].size());
  for (const auto& row : cells) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], DisplayWidth(row[i]));
  }
  size_t line = 0;
  for (const size_t of_column : widths) line += of_column + kColumnGap;
  if (line > width + kColumnGap) return false;
  for (const auto& row : cells) {
    for (size_t i = 0; i < row.size(); ++i) {
      absl::StrAppend(&out, std::string(widths[i] - DisplayWidth(row[i]) + (i == 0 ? 0 : kColumnGap), ' '), row[i]);
    }
    absl::StrAppend(&out, "\n");
  }
  return true;
}

// Appends one matrix with as many columns as fit, of which there is at least one at each end.
void AppendMatrix(const Matrices& matrices, int64_t matrix, int64_t edges, absl::Span<const std::string> header,
                  int width, std::string& out) {
  const std::vector<int64_t> rows = ShownIndices(matrices.rows, edges);
  // A value and its gap take three columns of the terminal at least.
  const int64_t at_most = std::min({edges, (matrices.columns + 1) / 2, static_cast<int64_t>(width) / 3 + 1});
  for (int64_t column_edges = std::max<int64_t>(at_most, 1);; --column_edges) {
    const std::vector<int64_t> columns = ShownIndices(matrices.columns, column_edges);
    const Cells cells = MakeCells(matrices, matrix, rows, columns, header);
    const size_t room = column_edges == 1 ? std::string::npos / 2 : static_cast<size_t>(width);
    if (AppendAligned(cells, room, out)) return;
  }
}

}  // namespace

std::string ShowTensor(const Tensor& tensor, absl::Span<const std::string> header, int width) {
  const Matrices matrices(tensor);
  const int64_t edges = tensor.elements() > kSummarisedElements ? kEdgeIndices : kSummarisedElements;
  std::string out;
  std::vector<int64_t> indices;
  ForEachMatrix(matrices, edges, indices, 0, [&](int64_t matrix, const std::vector<int64_t>& at) {
    if (matrix == kLeftOut) {
      absl::StrAppend(&out, kDots, "\n");
      return;
    }
    if (!at.empty()) absl::StrAppend(&out, ShapeText(at), "\n");
    AppendMatrix(matrices, matrix, edges, header, width, out);
  });
  return out;
}

std::string TensorAsLines(const Tensor& tensor, absl::Span<const std::string> header) {
  if (tensor.shape.size() <= 2) return WriteCsv(tensor, header);
  const Matrices matrices(tensor);
  const size_t rank = tensor.shape.size();
  const auto matrix_bytes =
      static_cast<size_t>(matrices.rows * matrices.columns) * static_cast<size_t>(ElementBytes(tensor.dtype));
  std::string out;
  std::vector<int64_t> indices;
  constexpr int64_t kAll = std::numeric_limits<int64_t>::max() / 2;
  ForEachMatrix(matrices, kAll, indices, 0, [&](int64_t matrix, const std::vector<int64_t>& at) {
    const Tensor slice{tensor.dtype,
                       {tensor.shape[rank - 2], tensor.shape[rank - 1]},
                       tensor.data.substr(static_cast<size_t>(matrix) * matrix_bytes, matrix_bytes)};
    absl::StrAppend(&out, "# ", ShapeText(at), "\n", WriteCsv(slice));
  });
  return out;
}

}  // namespace normd::client
