// --name=value options of the two test programs. No list of known ones: the only caller is run.sh.
#ifndef NORMD_TESTS_CRASH_FLAGS_H_
#define NORMD_TESTS_CRASH_FLAGS_H_

#include <cstdint>
#include <map>
#include <string>

namespace normd::crash {

class Flags {
 public:
  Flags(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
      const std::string text = argv[i];
      const size_t equals = text.find('=');
      values_[text.substr(0, equals)] = equals == std::string::npos ? "1" : text.substr(equals + 1);
    }
  }
  std::string Get(const std::string& name, const std::string& absent = "") const {
    const auto it = values_.find("--" + name);
    return it == values_.end() ? absent : it->second;
  }
  int64_t Number(const std::string& name, int64_t absent = 0) const {
    const std::string text = Get(name);
    return text.empty() ? absent : std::stoll(text);
  }
  bool Has(const std::string& name) const { return !Get(name).empty(); }

 private:
  std::map<std::string, std::string> values_;
};

}  // namespace normd::crash

#endif  // NORMD_TESTS_CRASH_FLAGS_H_
