// What the driver sends to each kind of server, and what must come back: the same rows for all, in each one's message.
#ifndef NORMD_TESTS_BENCH_DATAPATH_EXCHANGE_H_
#define NORMD_TESTS_BENCH_DATAPATH_EXCHANGE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "normd/v1/normalizer.pb.h"
#include "tests/bench/datapath/driver.h"

namespace normd::bench {

grpc::ByteBuffer Serialize(const google::protobuf::Message& message);
bool Parse(const grpc::ByteBuffer& bytes, google::protobuf::Message* message);

// x of `bytes`, made up, and what RMSNorm makes of it, by the kernel in this process.
struct Rows {
  std::string x, y;
};
absl::StatusOr<Rows> MakeRows(int64_t bytes);

// RMSNorm of `bytes` of rows; x has no data. REQUIRES: whole rows.
v1::NormalizeRequest MakeRequestHead(int64_t bytes);
v1::NormalizeRequest MakeNormalizeRequest(const std::string& x);

// Method and request for a server of `kind`, and the least that a reply has; no channels. The echo gets what normd
// gets.
Target MakeTarget(std::string_view kind, bool stream, const Rows& rows);

// INTERNAL when `reply` is not the one that a server of `kind` has to give.
absl::Status CheckReply(std::string_view kind, bool stream, const Rows& rows, const grpc::ByteBuffer& reply);

// "4 KiB", "16 MiB"
std::string BytesText(int64_t bytes);

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_DATAPATH_EXCHANGE_H_
