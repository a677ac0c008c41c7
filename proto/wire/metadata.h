// Names in the metadata of calls.
// In the path: the client sends them, the transport reads them before the first message. Constants.
#ifndef NORMD_PROTO_WIRE_METADATA_H_
#define NORMD_PROTO_WIRE_METADATA_H_

namespace normd::wire {

// Clients send it with large requests: the length of the (first) message in bytes, as a decimal number. From it the
// server knows whether the message fits before it reads any of it; without it the server has to guess.
inline constexpr char kMessageBytesKey[] = "normd-message-bytes";

}  // namespace normd::wire

#endif  // NORMD_PROTO_WIRE_METADATA_H_
