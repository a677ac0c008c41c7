// What a watch remembers of the content that it reads again and again, so that it does something about each content
// once, and nothing about one that is still being written.
// In the path: beside it; AccessControl has one for each file, ServerCertificates one for its files together.
// Threads: thread-compatible.
#ifndef NORMD_SERVER_SECURITY_CONTENT_MEMORY_H_
#define NORMD_SERVER_SECURITY_CONTENT_MEMORY_H_

#include <optional>
#include <string>
#include <utility>

namespace normd {

class ContentMemory {
 public:
  // Takes the key of what a look has read, which no other content has. Returns whether the look before has read the
  // same.
  bool See(const std::string& key) { return std::exchange(seen_, key) == key; }

  // Takes the key of a content that is taken, or reported because it cannot be. Returns whether the last one was
  // another, so that there is something to do.
  bool Note(const std::string& key) { return std::exchange(noted_, key) != key; }

 private:
  std::optional<std::string> seen_, noted_;
};

}  // namespace normd

#endif  // NORMD_SERVER_SECURITY_CONTENT_MEMORY_H_
