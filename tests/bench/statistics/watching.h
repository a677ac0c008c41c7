// Very many streams of WatchSession at little cost for the client: connections of frames, whose messages are counted
// and not parsed. Threads: thread-compatible. The streams end with the object.
#ifndef NORMD_TESTS_BENCH_STATISTICS_WATCHING_H_
#define NORMD_TESTS_BENCH_STATISTICS_WATCHING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tests/support/raw_http2.h"

namespace normd::bench {

class Watching {
 public:
  Watching();
  ~Watching();
  Watching(const Watching&) = delete;
  Watching& operator=(const Watching&) = delete;

  // Opens `count` more streams, `per_connection` of them on a connection, without waiting for their versions.
  absl::Status Open(const std::string& address, const std::string& session, int count, int per_connection);
  // Counts the versions that come until `end`. An error if a stream or a connection ends.
  absl::Status ReadUntil(absl::Time end);
  // The same until every stream has had a version.
  absl::Status ReadFirstVersions(absl::Duration patience);

  int64_t streams() const { return streams_; }
  int64_t versions() const { return versions_; }  // that all streams together were sent

 private:
  struct Connection {
    explicit Connection(const std::string& address) : http2(address) {}
    RawHttp2 http2;
    std::string head;           // of a frame, and of a message that it begins, as far as they have come
    size_t payload_bytes = 0;   // of the frame, still to come
    std::vector<size_t> left;   // by stream: bytes of its message still to come
    std::vector<bool> started;  // by stream: whether a version has come
  };

  void OpenStream(Connection* connection, std::string_view request);
  absl::Status ReadOnce(absl::Time end);
  absl::Status Take(Connection* connection, std::string_view bytes);
  // The bytes of the head that is coming: a frame's, and with it a message's where one begins.
  static size_t HeadBytes(const Connection& connection);
  absl::Status TakeHead(Connection* connection);

  const int poll_;
  std::string buffer_;
  std::vector<std::unique_ptr<Connection>> connections_;
  int64_t streams_ = 0, started_ = 0, versions_ = 0;
};

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_STATISTICS_WATCHING_H_
