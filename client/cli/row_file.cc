#include "client/cli/row_file.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/cli/csv.h"
#include "client/cli/npy.h"
#include "client/cli/other_file.h"
#include "client/cli/tensor_file.h"

namespace normd::client {
namespace {

constexpr size_t kReadBytes = size_t{1} << 20;
constexpr size_t kMaxLineBytes = size_t{1} << 28;
constexpr int64_t kMaxChannels = int64_t{1} << 24;
constexpr size_t kRowFileStartBytes = 128 << 10;  // holds every header of a .npy file

absl::Status InFile(absl::string_view path, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

absl::Status InFile(absl::string_view path, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
}

// A file that is read once, from its beginning.
class InputFile {
 public:
  static absl::StatusOr<InputFile> Open(const std::string& path) {
    std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
    if (file == nullptr) return Failure(path, "cannot open");
    return InputFile(path, std::move(file));
  }

  // Appends up to `bytes` bytes to `out`; less only at the end of the file.
  absl::Status Append(size_t bytes, std::string& out) {
    const size_t before = out.size();
    out.resize(before + bytes);
    out.resize(before + std::fread(out.data() + before, 1, bytes, file_.get()));
    is_at_end_ = out.size() < before + bytes;
    return std::ferror(file_.get()) != 0 ? Failure(path_, "cannot read") : absl::OkStatus();
  }

  bool is_at_end() const { return is_at_end_; }
  const std::string& path() const { return path_; }

 private:
  using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
  InputFile(std::string path, File file) : path_(std::move(path)), file_(std::move(file)) {}
  static absl::Status Failure(absl::string_view path, absl::string_view what) {
    return InFile(path, absl::StrCat(what, ": ", std::generic_category().message(errno)));
  }

  std::string path_;
  File file_;
  bool is_at_end_ = false;
};

// The rows of a table of text.
class CsvRows : public RowFile {
 public:
  // `start` was read from `bytes` already.
  CsvRows(InputFile bytes, std::string start, const CsvOptions& csv)
      : bytes_(std::move(bytes)), text_(std::move(start)), reader_(csv) {}

  // Reads up to the first row, with which the channels are known.
  absl::Status Begin() {
    while (channels_ == 0 && !finished_) {
      if (absl::Status status = ReadLines(); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<double>> Next(int64_t rows) override {
    const size_t wanted = static_cast<size_t>(rows) * static_cast<size_t>(channels_);
    while (values_.size() - returned_ < wanted && !finished_) {
      values_.erase(values_.begin(), values_.begin() + static_cast<ptrdiff_t>(std::exchange(returned_, 0)));
      if (absl::Status status = ReadLines(); !status.ok()) return status;
      TakeValues();
    }
    const size_t count = std::min(wanted, values_.size() - returned_);
    const auto begin = values_.begin() + static_cast<ptrdiff_t>(returned_);
    returned_ += count;
    return std::vector<double>(begin, begin + static_cast<ptrdiff_t>(count));
  }

 private:
  // Adds the lines that are complete; after the last line, finishes the table.
  absl::Status ReadLines() {
    absl::string_view rest = CompleteLines();
    if (!rest.empty()) {
      if (absl::Status status = CheckText(rest); !status.ok()) return InFile(bytes_.path(), status);
    }
    const size_t complete = rest.size();
    while (!rest.empty()) {
      if (absl::Status status = reader_.Add(TakeCsvLine(rest), ++number_); !status.ok()) {
        return InFile(bytes_.path(), status);
      }
    }
    text_.erase(0, complete);
    if (channels_ == 0) {
      channels_ = reader_.table().columns;
      names_ = reader_.table().header;
    }
    if (text_.size() > kMaxLineBytes) return InFile(bytes_.path(), "has a line of over 256 MiB");
    if (!bytes_.is_at_end()) return bytes_.Append(kReadBytes, text_);
    return text_.empty() ? Finish() : absl::OkStatus();
  }

  // The text up to the end of its last whole line. A '\r' at the very end may be half of a line's end.
  absl::string_view CompleteLines() const {
    const absl::string_view text = text_;
    if (bytes_.is_at_end()) return text;
    const size_t end = text.substr(0, text.empty() ? 0 : text.size() - 1).find_last_of("\r\n");
    if (end == absl::string_view::npos) return "";
    const bool is_pair = text[end] == '\r' && text[end + 1] == '\n';
    return text.substr(0, end + (is_pair ? 2 : 1));
  }

  void TakeValues() {
    const std::vector<double> taken = reader_.TakeValues();
    values_.insert(values_.end(), taken.begin(), taken.end());
  }

  absl::Status Finish() {
    if (finished_) return absl::OkStatus();
    finished_ = true;
    TakeValues();
    const absl::StatusOr<CsvTable> table = reader_.Finish();
    if (!table.ok()) return InFile(bytes_.path(), table.status());
    if (!table->warning.empty()) warning_ = absl::StrCat(bytes_.path(), ": ", table->warning);
    return absl::OkStatus();
  }

  InputFile bytes_;
  std::string text_;  // read, and not yet added
  CsvReader reader_;
  size_t number_ = 0;  // of the last line
  bool finished_ = false;
  std::vector<double> values_;  // of the rows that were read
  size_t returned_ = 0;         // of these values
};

// The rows of an array in C order.
class NpyRows : public RowFile {
 public:
  NpyRows(InputFile bytes, std::string data, NpyArray array)
      : bytes_(std::move(bytes)), data_(std::move(data)), array_(std::move(array)) {}

  absl::Status Begin() {
    if (array_.shape.empty()) return InFile(bytes_.path(), "is one number, without rows");
    if (array_.kind == 'V') return InFile(bytes_.path(), "holds values without a type: save a.astype('float32')");
    channels_ = array_.shape.size() == 1 ? 1 : array_.shape.back();
    if (channels_ < 1 || channels_ > kMaxChannels) {
      return InFile(bytes_.path(),
                    absl::StrCat("its last axis is ", channels_, "; 1 to ", kMaxChannels, " channels are possible"));
    }
    rows_ = array_.shape[0];
    for (size_t axis = 1; axis + 1 < array_.shape.size(); ++axis) {
      if (__builtin_mul_overflow(rows_, array_.shape[axis], &rows_)) {
        return InFile(bytes_.path(), "the shape's size overflows");
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<double>> Next(int64_t rows) override {
    const int64_t count = std::min(rows, rows_);
    const size_t wanted = static_cast<size_t>(count * channels_) * static_cast<size_t>(array_.item_bytes);
    if (data_.size() < wanted) {
      if (absl::Status status = bytes_.Append(wanted - data_.size(), data_); !status.ok()) return status;
    }
    if (data_.size() < wanted) return InFile(bytes_.path(), "ends before the data of its shape");
    NpyArray block{array_.kind, array_.item_bytes, {count, channels_}, data_.substr(0, wanted)};
    data_.erase(0, wanted);
    rows_ -= count;
    if (rows_ == 0 && data_.empty()) {
      if (absl::Status status = bytes_.Append(1, data_); !status.ok()) return status;
    }
    if (rows_ == 0 && !data_.empty()) return InFile(bytes_.path(), "holds more data than its shape");
    return ToDoubles(block);
  }

 private:
  InputFile bytes_;
  std::string data_;  // read, and not yet returned
  const NpyArray array_;
  int64_t rows_ = 0;  // not yet returned
};

absl::StatusOr<std::unique_ptr<RowFile>> OpenNpy(InputFile bytes, std::string start) {
  const absl::StatusOr<NpyStart> parsed = ParseNpyStart(start);
  if (!parsed.ok()) return InFile(bytes.path(), parsed.status());
  if (parsed->is_fortran && parsed->array.shape.size() > 1) {
    return InFile(bytes.path(), "is in Fortran order, whose rows are scattered: save np.ascontiguousarray(a)");
  }
  auto rows = std::make_unique<NpyRows>(std::move(bytes), start.substr(parsed->header_bytes), parsed->array);
  if (absl::Status status = rows->Begin(); !status.ok()) return status;
  return rows;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RowFile>> RowFile::Open(const std::string& path, const CsvOptions& csv) {
  absl::StatusOr<InputFile> bytes = InputFile::Open(path);
  if (!bytes.ok()) return bytes.status();
  std::string start;
  if (absl::Status status = bytes->Append(kRowFileStartBytes, start); !status.ok()) return status;
  if (start.empty()) return InFile(path, "is empty");
  if (const std::optional<std::string> kind = OtherFileKind(start)) {
    return InFile(path, absl::StrCat(*kind, "; what is read is .npy and .csv"));
  }
  if (IsNpy(start)) return OpenNpy(*std::move(bytes), std::move(start));
  auto rows = std::make_unique<CsvRows>(*std::move(bytes), std::move(start), csv);
  if (absl::Status status = rows->Begin(); !status.ok()) return status;
  return rows;
}

absl::StatusOr<std::string> FileDigest(const std::string& path) {
  absl::StatusOr<InputFile> bytes = InputFile::Open(path);
  if (!bytes.ok()) return bytes.status();
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  bool ok = EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1;
  for (std::string block; ok && !bytes->is_at_end(); block.clear()) {
    if (absl::Status status = bytes->Append(kReadBytes, block); !status.ok()) return status;
    ok = EVP_DigestUpdate(context.get(), block.data(), block.size()) == 1;
  }
  std::string digest(EVP_MAX_MD_SIZE, '\0');
  unsigned int size = 0;
  ok = ok && EVP_DigestFinal_ex(context.get(), reinterpret_cast<unsigned char*>(digest.data()), &size) == 1;
  if (!ok) return absl::InternalError("OpenSSL computes no SHA-256");
  return absl::BytesToHexString(digest.substr(0, size));
}

}  // namespace normd::client
