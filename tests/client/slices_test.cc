#include "client/cpp/slices.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "normd/v1/normalizer.pb.h"

namespace normd::client {
namespace {

std::shared_ptr<v1::NormalizeRequest> RequestOf(size_t bytes) {
  auto request = std::make_shared<v1::NormalizeRequest>();
  request->mutable_spec()->mutable_layer_norm()->set_eps(1e-6);
  request->mutable_parameters()->mutable_weight()->set_data(std::string(bytes / 2, 'w'));
  request->mutable_x()->set_dtype(v1::DTYPE_F32);
  request->mutable_x()->add_shape(static_cast<int64_t>(bytes / 4));
  request->mutable_x()->set_data(std::string(bytes, 'x'));
  return request;
}

std::vector<grpc::Slice> SlicesOf(const grpc::ByteBuffer& bytes) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(bytes.Dump(&slices).ok());
  return slices;
}

TEST(Slices, AreWhatAnySerialiserWrites) {
  for (const size_t bytes : {0, 4, 500, 1000, 1024, 1500, 2048, 4096, 100000, 3000000}) {
    const auto request = RequestOf(bytes);
    std::string written;
    for (const grpc::Slice& slice : SlicesOf(ToSlices(request))) {
      written.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
    }
    EXPECT_EQ(written, request->SerializeAsString()) << bytes;
  }
  EXPECT_EQ(ToSlices(std::make_shared<v1::NormalizeRequest>()).Length(), 0U);
}

TEST(Slices, ReferToTheTensorInsteadOfCopyingIt) {
  const auto request = RequestOf(1 << 20);
  bool found = false;
  for (const grpc::Slice& slice : SlicesOf(ToSlices(request))) {
    found = found || static_cast<const void*>(slice.begin()) == request->x().data().data();
  }
  EXPECT_TRUE(found);
}

TEST(Slices, KeepTheMessageAsLongAsTheyLive) {
  auto request = RequestOf(1 << 20);
  const std::weak_ptr<const v1::NormalizeRequest> seen = request;
  {
    const grpc::ByteBuffer bytes = ToSlices(request);
    request.reset();
    EXPECT_FALSE(seen.expired());
  }
  EXPECT_TRUE(seen.expired());
}

}  // namespace
}  // namespace normd::client
