// A file of the test's own, which goes away with it.
#ifndef NORMD_TESTS_SUPPORT_TEMPORARY_FILE_H_
#define NORMD_TESTS_SUPPORT_TEMPORARY_FILE_H_

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace normd {

class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text = "") {
    char name[] = "/tmp/normd-security-XXXXXX";
    folder_ = mkdtemp(name);
    Write(text);
  }
  ~TemporaryFile() { std::filesystem::remove_all(folder_); }

  std::string path() const { return folder_ + "/file"; }
  const std::string& folder() const { return folder_; }
  void Write(const std::string& text) {
    std::ofstream(path(), std::ios::trunc) << text;
    Allow(std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  }
  void Allow(std::filesystem::perms perms) { std::filesystem::permissions(path(), perms); }
  std::string Read() const {
    std::ostringstream text;
    text << std::ifstream(path()).rdbuf();
    return text.str();
  }

 private:
  std::string folder_;
};

}  // namespace normd

#endif  // NORMD_TESTS_SUPPORT_TEMPORARY_FILE_H_
