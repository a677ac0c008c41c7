#include "tests/device/bench/shapes.h"

#include <utility>

#include "kernels/tensor.h"
#include "nlohmann/json.hpp"

namespace normd::bench {

namespace {

// By width. Between 512 and 2 Ki nothing is stated; what is stated for the narrow is taken.
double RowFloor(int64_t row) {
  constexpr int64_t kKi = 1 << 10;
  return row >= 2 * kKi && row <= 16 * kKi ? 0.90 : 0.85;
}

struct ImageShape {
  int64_t images, channels, side;
};

class List {
 public:
  void AddRows(Op op, int64_t rows, int64_t row) {
    Add({.workload = {.op = op, .outer = rows, .row = row}, .floor = RowFloor(row)});
  }
  void AddFusedAdd(Op op, int64_t rows, int64_t row) {
    Add({.workload = {.op = op, .outer = rows, .row = row}, .residual = true, .floor = 0.90});
  }
  void AddImages(Op op, Layout layout, const ImageShape& c) {
    GpuShape shape = {
        .workload = {.op = op, .layout = layout, .outer = c.images, .channels = c.channels, .side = c.side}};
    shape.floor = op == Op::kGroup ? 0.58 : op == Op::kBatchInference ? 0.90 : 0.55;
    shape.floor_fits = op == Op::kGroup ? 0.75 : 0;
    if (op == Op::kGroup || layout == Layout::kChannelsFirst) shape.eager_floor = 2;
    Add(shape);
  }
  void AddWithoutFloors(const Workload& workload, bool residual = false) {
    shapes_.push_back({.workload = workload, .residual = residual, .compile_floor = 0});
  }
  std::vector<GpuShape> Take() { return std::move(shapes_); }

 private:
  void Add(GpuShape shape) {
    for (const DType dtype : {DType::kBF16, DType::kF32}) {
      shape.workload.dtype = dtype;
      shapes_.push_back(shape);
    }
  }
  std::vector<GpuShape> shapes_;
};

constexpr int64_t kMostRowElements = 1 << 24;  // of a tensor of the further list

void AddServing(List* list) {
  for (const int64_t row : {4096, 5120, 7168, 8192}) {
    for (const int64_t rows : {1, 8, 32, 64, 256}) {
      if (rows == 1 && row == 7168) continue;  // is in the standard table
      list->AddWithoutFloors({.op = Op::kRms, .outer = rows, .row = row, .dtype = DType::kBF16});
    }
    list->AddWithoutFloors({.op = Op::kRms, .outer = 64, .row = row, .dtype = DType::kBF16}, true);
  }
}

void AddNarrowAndOdd(List* list) {
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    const auto add = [&](Op op, int64_t row) {
      list->AddWithoutFloors({.op = op, .outer = kMostRowElements / row, .row = row, .dtype = dtype});
    };
    for (const int64_t row : {64, 256, 512, 1024, 2048}) {
      add(Op::kRms, row);
      add(Op::kLayer, row);
    }
    for (const int64_t row : {769, 1128, 3073}) add(Op::kLayer, row);
  }
}

void AddF16(List* list) {
  constexpr DType kF16 = DType::kF16;
  list->AddWithoutFloors({.op = Op::kRms, .outer = 16384, .row = 4096, .dtype = kF16});
  list->AddWithoutFloors({.op = Op::kRms, .outer = 16384, .row = 4096, .dtype = kF16}, true);
  list->AddWithoutFloors({.op = Op::kRms, .outer = 64, .row = 8192, .dtype = kF16});
  list->AddWithoutFloors({.op = Op::kLayer, .outer = 32768, .row = 768, .dtype = kF16});
  for (const Layout layout : {Layout::kChannelsFirst, Layout::kChannelsLast}) {
    for (const Op op : {Op::kBatchTraining, Op::kBatchInference}) {
      list->AddWithoutFloors({.op = op, .layout = layout, .outer = 50, .channels = 256, .side = 56, .dtype = kF16});
    }
    list->AddWithoutFloors(
        {.op = Op::kGroup, .layout = layout, .outer = 2, .channels = 320, .side = 64, .dtype = kF16});
  }
}

}  // namespace

int64_t GpuShape::GroupElements() const {
  if (workload.IsRows()) return workload.row;
  const int64_t pixels = workload.side * workload.side;
  return workload.op == Op::kGroup ? workload.channels / kGroups * pixels : pixels;
}

// Transformers, ResNet-50 in batches of 50, Stable Diffusion and its decoder's last layer.
std::vector<GpuShape> GpuShapes(bool more) {
  List list;
  for (const auto& [rows, row] : std::vector<std::pair<int64_t, int64_t>>{{16384, 4096},
                                                                          {8192, 8192},
                                                                          {4096, 16384},
                                                                          {2048, 7168},
                                                                          {1, 7168},
                                                                          {131072, 128},
                                                                          {32768, 65536},
                                                                          {16384, 131072},
                                                                          {8192, 262144}}) {
    list.AddRows(Op::kRms, rows, row);
  }
  list.AddRows(Op::kLayer, 32768, 768);
  list.AddRows(Op::kLayer, 1024, 12288);
  list.AddRows(Op::kLayer, 4005, 4005);
  list.AddFusedAdd(Op::kRms, 16384, 4096);
  list.AddFusedAdd(Op::kLayer, 1024, 12288);
  constexpr ImageShape kResNet[] = {{50, 64, 112}, {50, 256, 56}, {50, 512, 28}, {50, 1024, 14}, {50, 2048, 7}};
  constexpr ImageShape kDiffusion[] = {{2, 320, 64}, {2, 640, 32}, {2, 1280, 16},
                                       {2, 1280, 8}, {2, 2560, 8}, {1, 128, 768}};
  for (const Layout layout : {Layout::kChannelsFirst, Layout::kChannelsLast}) {
    for (const Op op : {Op::kBatchTraining, Op::kBatchInference}) {
      for (const ImageShape& c : kResNet) list.AddImages(op, layout, c);
    }
    for (const ImageShape& c : kDiffusion) list.AddImages(Op::kGroup, layout, c);
  }
  if (more) {
    AddServing(&list);
    AddNarrowAndOdd(&list);
    AddF16(&list);
  }
  return list.Take();
}

std::string GpuShapesJson(bool more) {
  nlohmann::json all = nlohmann::json::array();
  for (const GpuShape& shape : GpuShapes(more)) {
    const Workload& workload = shape.workload;
    const std::string kind = workload.Kind();
    all.push_back({{"name", shape.Name()},
                   {"op", kind.substr(0, kind.find(' '))},
                   {"dtype", std::string(Name(workload.dtype))},
                   {"shape", workload.ShapeOf()},
                   {"channels_last", workload.layout == Layout::kChannelsLast},
                   {"groups", kGroups},
                   {"residual", shape.residual},
                   {"bytes", 2 * shape.BytesRead()}});
  }
  return all.dump(1);
}

}  // namespace normd::bench
