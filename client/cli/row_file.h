// Reads the rows of a .csv or .npy file a block at a time, in memory that does not depend on the length of the file.
// The columns, or the last axis of an array, are the channels. What is read, and what is refused, is as in
// tensor_file.h; numbers of every kind are widened to f64.
// Threads: thread-compatible. Ownership: a RowFile owns its open file.
#ifndef NORMD_CLIENT_CLI_ROW_FILE_H_
#define NORMD_CLIENT_CLI_ROW_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/csv_line.h"

namespace normd::client {

// Two kinds of files have rows: tables of text, and arrays.
class RowFile {
 public:
  // INVALID_ARGUMENT, with the path, for a file that cannot be opened or has no rows of numbers. An array in Fortran
  // order is refused, because its rows are scattered over the whole file.
  static absl::StatusOr<std::unique_ptr<RowFile>> Open(const std::string& path, const CsvOptions& csv);
  virtual ~RowFile() = default;

  int64_t channels() const { return channels_; }
  const std::vector<std::string>& names() const { return names_; }  // of the channels; empty: it has none

  // The next rows, at most `rows`, row by row; empty at the end. INVALID_ARGUMENT, with the path, for a mistake.
  virtual absl::StatusOr<std::vector<double>> Next(int64_t rows) = 0;
  // What a person should know of the file, with its path, once it was read; empty if there is nothing.
  const std::string& warning() const { return warning_; }

 protected:
  int64_t channels_ = 0;
  std::vector<std::string> names_;
  std::string warning_;
};

// The SHA-256 of a file's bytes, in hexadecimal: what names the file wherever it lies. Errors name the path.
absl::StatusOr<std::string> FileDigest(const std::string& path);

}  // namespace normd::client

#endif  // NORMD_CLIENT_CLI_ROW_FILE_H_
