#include "server/base/regular_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <string>

#include "tests/support/temporary_file.h"

namespace normd {
namespace {

constexpr size_t kMost = 10'000;  // more than is read at once

// What ReadRegularFile returns where nothing is checked; the last two get the problem.
absl::StatusOr<std::string> ReadSmall(const std::string& path, FileProblem* problem, int* number) {
  const auto error_of = [&](FileProblem what, int why) {
    *problem = what;
    *number = why;
    return absl::UnknownError("problem");
  };
  return ReadRegularFile(
      path, kMost, [](const struct stat&) { return absl::OkStatus(); }, error_of);
}

TEST(ReadRegularFile, ReadsUpToTheLimit) {
  TemporaryFile file(std::string(kMost, 'x'));
  FileProblem problem = FileProblem::kRead;
  int number = -1;
  EXPECT_EQ(*ReadSmall(file.path(), &problem, &number), std::string(kMost, 'x'));
  file.Write("");
  EXPECT_EQ(*ReadSmall(file.path(), &problem, &number), "");
}

TEST(ReadRegularFile, NamesTheError) {
  TemporaryFile file(std::string(kMost + 1, 'x'));
  FileProblem problem = FileProblem::kRead;
  int number = -1;
  EXPECT_FALSE(ReadSmall(file.path(), &problem, &number).ok());
  EXPECT_EQ(problem, FileProblem::kTooLarge);
  EXPECT_EQ(number, 0);
  EXPECT_FALSE(ReadSmall(file.folder(), &problem, &number).ok());
  EXPECT_EQ(problem, FileProblem::kNotRegular);
  EXPECT_FALSE(ReadSmall(file.path() + ".not-there", &problem, &number).ok());
  EXPECT_EQ(problem, FileProblem::kOpen);
  EXPECT_EQ(number, ENOENT);
}

TEST(ReadRegularFile, APipeWithoutAWriterIsNotWaitedFor) {
  const TemporaryFile file;
  const std::string pipe = file.folder() + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  FileProblem problem = FileProblem::kRead;
  int number = -1;
  EXPECT_FALSE(ReadSmall(pipe, &problem, &number).ok());
  EXPECT_EQ(problem, FileProblem::kNotRegular);
}

TEST(ReadRegularFile, TheCheckSeesTheModeAndItsErrorIsReturned) {
  const TemporaryFile file("text");
  const absl::Status status = ReadRegularFile(
                                  file.path(), kMost,
                                  [](const struct stat& info) {
                                    EXPECT_EQ(info.st_mode & 0777, 0600U);
                                    return absl::PermissionDeniedError("not this one");
                                  },
                                  [](FileProblem, int) { return absl::UnknownError("problem"); })
                                  .status();
  EXPECT_EQ(status, absl::PermissionDeniedError("not this one"));
}

}  // namespace
}  // namespace normd
