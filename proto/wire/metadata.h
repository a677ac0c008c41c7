// Names in the metadata of calls.
// In the path: the client sends them; the transport, or a balancer, reads them before the first message. Constants.
#ifndef NORMD_PROTO_WIRE_METADATA_H_
#define NORMD_PROTO_WIRE_METADATA_H_

namespace normd::wire {

// Clients send it with large requests: the length of the (first) message in bytes, as a decimal number. From it the
// server knows whether the message fits before it reads any of it; without it the server has to guess.
inline constexpr char kMessageBytesKey[] = "normd-message-bytes";

// Clients send it with calls to one session: the session's name, "sessions/bn". The server does not read it: a balancer
// in front of several servers can send all calls of a session to one of them by it, which then has the session in
// memory.
inline constexpr char kSessionKey[] = "normd-session";

// Of the standards: the caller's span (W3C Trace Context), and the caller's name for the call. Both come back in the
// trailers; every call that fails has an x-request-id there.
inline constexpr char kTraceparentKey[] = "traceparent";
inline constexpr char kRequestIdKey[] = "x-request-id";

// With the value "1" or "true" in a unary call's headers, the trailers explain the call under the same key: a JSON
// object with its phases in microseconds, the kernel, the device and the versions.
inline constexpr char kExplainKey[] = "normd-explain";

}  // namespace normd::wire

#endif  // NORMD_PROTO_WIRE_METADATA_H_
