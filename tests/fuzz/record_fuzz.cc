// Any bytes as an exported session: refused, or read into a session that is written and read again to the same bytes.
// A checksum would keep nearly every input out, so the input is also tried with the right one.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "normd/store/v1/record.pb.h"
#include "server/session/record/record.h"

namespace normd {
namespace {

std::string Deterministic(const store::v1::SessionRecord& record) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  record.SerializeToCodedStream(&coded);
  coded.Trim();
  return bytes;
}

void Read(std::string_view bytes) {
  const absl::StatusOr<StoredSession> stored = ParseRecord(bytes);
  if (!stored.ok()) return;
  const std::string written = SerializeRecord(*stored);
  const absl::StatusOr<StoredSession> again = ParseRecord(written);
  if (!again.ok() || SerializeRecord(*again) != written) std::abort();  // reported with the input
}

// As a store reads a row: the input's first byte says where one half ends and the other begins.
void ReadParts(std::string_view bytes) {
  if (bytes.empty()) return;
  const size_t split = (bytes.size() - 1) * static_cast<uint8_t>(bytes[0]) / 255;
  bytes.remove_prefix(1);
  const std::string head(bytes.substr(0, split));
  const std::string state(bytes.substr(split));
  const absl::StatusOr<StoredSession> stored = ParseParts(SealRecord(head), SealRecord(state));
  if (!stored.ok()) return;
  const absl::StatusOr<StoredSession> again = ParseParts(SerializeHead(*stored->published), SerializeState(*stored));
  if (!again.ok() || SerializeRecord(*again) != SerializeRecord(*stored)) std::abort();
}

}  // namespace
}  // namespace normd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  normd::Read(bytes);
  normd::ReadParts(bytes);
  normd::store::v1::SessionRecord record;
  if (!record.ParseFromArray(data, static_cast<int>(size))) return 0;
  record.set_crc32c(0);
  normd::Read(normd::SealRecord(normd::Deterministic(record)));
  return 0;
}
