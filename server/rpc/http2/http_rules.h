// What HTTP/2 asks of a request's fields and of its length (RFC 9113, 8), which nghttp2 would check, but for the
// authority: gRPC's clients send the path of a Unix socket, or nothing, where nghttp2 wants a host. gRPC's server takes
// any, and nothing here reads it.
// In the path: first; HTTP/2's layer shows it each field before the field is kept. Threads: the loop's thread.
#ifndef NORMD_SERVER_RPC_HTTP2_HTTP_RULES_H_
#define NORMD_SERVER_RPC_HTTP2_HTTP_RULES_H_

#include <cstdint>
#include <string_view>

namespace normd::rpc::http2 {

class HttpRules {
 public:
  enum class Verdict : uint8_t {
    kGood,
    kIgnored,  // a field whose name or value has characters that it may not have: it is left out
    kBroken,   // the request is malformed
  };

  // Judges the next field of the request's headers, or of its trailers.
  Verdict AddHeader(std::string_view name, std::string_view value);
  Verdict AddTrailer(std::string_view name, std::string_view value) const;
  // Whether the headers, which are complete, are those of a request.
  bool IsComplete() const;
  // Counts bytes of the body. False if there are more than content-length says.
  bool AddBody(size_t bytes);
  // Whether the body that has ended is as long as content-length says.
  bool IsWhole() const { return content_length_ < 0 || received_ == content_length_; }

 private:
  Verdict AddPseudo(std::string_view name, std::string_view value);
  Verdict AddRegular(std::string_view name, std::string_view value);
  // Notes a field that may come once. False if it has come before.
  bool Once(uint16_t field);

  uint16_t seen_ = 0;
  int64_t content_length_ = -1;  // -1: it is not given
  int64_t received_ = 0;
};

}  // namespace normd::rpc::http2

#endif  // NORMD_SERVER_RPC_HTTP2_HTTP_RULES_H_
