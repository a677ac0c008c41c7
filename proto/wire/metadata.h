// Names in the metadata of calls. Shared by server and client.
#ifndef NORMD_PROTO_WIRE_METADATA_H_
#define NORMD_PROTO_WIRE_METADATA_H_

namespace normd::wire {

// Sent by clients with large requests: the length of the (first) message in bytes, as a decimal number. A server
// decides by it whether the message fits before any of it is read; without it, it has to guess.
inline constexpr char kMessageBytesKey[] = "normd-message-bytes";

}  // namespace normd::wire

#endif  // NORMD_PROTO_WIRE_METADATA_H_
