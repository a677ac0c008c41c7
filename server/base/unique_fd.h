// A file descriptor that closes itself: what every path holds that opens one, so that none leaks.
// Move-only; thread-compatible.
#ifndef NORMD_SERVER_BASE_UNIQUE_FD_H_
#define NORMD_SERVER_BASE_UNIQUE_FD_H_

#include <unistd.h>

#include <utility>

namespace normd {

class UniqueFd {
 public:
  UniqueFd() = default;
  // Takes `fd` over; a negative one is none.
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd() { Close(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

}  // namespace normd

#endif  // NORMD_SERVER_BASE_UNIQUE_FD_H_
