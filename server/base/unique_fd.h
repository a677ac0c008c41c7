// An owned file descriptor, which is closed on destruction. Move-only; thread-compatible.
#ifndef NORMD_SERVER_BASE_UNIQUE_FD_H_
#define NORMD_SERVER_BASE_UNIQUE_FD_H_

#include <unistd.h>

#include <utility>

namespace normd {

class UniqueFd {
 public:
  UniqueFd() = default;
  // Takes ownership of `fd`; a negative `fd` means none.
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd() { Close(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  // Gives up the descriptor without closing it.
  int Release() { return std::exchange(fd_, -1); }
  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

}  // namespace normd

#endif  // NORMD_SERVER_BASE_UNIQUE_FD_H_
