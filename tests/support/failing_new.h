// Makes `new T[]` throw std::bad_alloc, as it does when the host has no memory left. A program that uses this class has
// its own `operator new[]`, which otherwise does what the library's does.
#ifndef NORMD_TESTS_SUPPORT_FAILING_NEW_H_
#define NORMD_TESTS_SUPPORT_FAILING_NEW_H_

#include <cstddef>
#include <cstdint>

namespace normd {

// While one exists, no thread gets an array of exactly `size_bytes`. One at a time.
//
//   const FailingNew failing(400'000);
//   EXPECT_EQ(RunJobs(*backend, {job}).code(), absl::StatusCode::kResourceExhausted);
class FailingNew {
 public:
  explicit FailingNew(size_t size_bytes);
  ~FailingNew();
  FailingNew(const FailingNew&) = delete;
  FailingNew& operator=(const FailingNew&) = delete;

  int64_t failures() const;
};

}  // namespace normd

#endif  // NORMD_TESTS_SUPPORT_FAILING_NEW_H_
