#include "server/options/option_values.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "kernels/base/errors.h"
#include "kernels/base/strings.h"
#include "server/base/byte_size.h"
#include "server/base/error_reasons.h"

namespace normd {
namespace {

// `what` says what the value is not, such as "a whole number"; it is empty if only the value's range is wrong.
absl::Status ValueError(const Option& option, std::string_view value, std::string_view what) {
  const std::string quoted = Concat("\"", value, "\"");
  const std::string limit = LimitText(option);
  return MakeError(
      ServerReason("BAD_OPTION"), {.field = Concat("--", option.name), .value = quoted, .limit = limit},
      Concat("is ", quoted, what.empty() ? "" : ", which is not ", what, limit.empty() ? "" : "; it must be ", limit));
}

// Parses the text of one option into its field, with one overload for each type of field.
struct ValueReader {
  const Option& option;
  const std::string& text;
  Config& config;

  absl::Status operator()(bool Config::*field) const {
    if (absl::SimpleAtob(text, &(config.*field))) return absl::OkStatus();
    return ValueError(option, text, "");
  }
  absl::Status operator()(int64_t Config::*field) const {
    int64_t value = 0;
    if (option.bytes) {
      const std::optional<int64_t> bytes = ParseBytes(text);
      if (!bytes.has_value()) return ValueError(option, text, "a number of bytes");
      value = *bytes;
    } else if (!absl::SimpleAtoi(text, &value)) {
      return ValueError(option, text, "a whole number");
    }
    if (value < option.min || value > option.max) return ValueError(option, text, "");
    config.*field = value;
    return absl::OkStatus();
  }
  absl::Status operator()(double Config::*field) const {
    double value = 0;
    if (!absl::SimpleAtod(text, &value)) return ValueError(option, text, "a number");
    // Written so that it refuses NaN.
    if (!(value >= static_cast<double>(option.min) && value <= static_cast<double>(option.max))) {
      return ValueError(option, text, "");
    }
    config.*field = value;
    return absl::OkStatus();
  }
  absl::Status operator()(absl::Duration Config::*field) const {
    absl::Duration value;
    if (!absl::ParseDuration(text, &value)) return ValueError(option, text, "a duration like 500ms or 30s");
    if (value < absl::Seconds(option.min) || value > absl::Seconds(option.max)) {
      return ValueError(option, text, "");
    }
    config.*field = value;
    return absl::OkStatus();
  }
  absl::Status operator()(std::string Config::*field) const {
    if (!option.choices.empty() && !text.empty()) {
      const std::vector<std::string> choices = absl::StrSplit(std::string(option.choices), '|');
      if (std::find(choices.begin(), choices.end(), text) == choices.end()) {
        return ValueError(option, text, "");
      }
    }
    config.*field = text;
    return absl::OkStatus();
  }
  absl::Status operator()(std::vector<std::string> Config::*field) const {
    const std::vector<std::string> items = absl::StrSplit(text, ',', absl::SkipWhitespace());
    (config.*field).insert((config.*field).end(), items.begin(), items.end());
    return absl::OkStatus();
  }
};

// The text of an option's value, with one overload for each type of field.
struct ValueWriter {
  const Option& option;
  const Config& config;

  std::string operator()(bool Config::*field) const { return config.*field ? "true" : "false"; }
  std::string operator()(int64_t Config::*field) const {
    return option.bytes ? BytesText(config.*field) : absl::StrCat(config.*field);
  }
  std::string operator()(double Config::*field) const { return absl::StrCat(config.*field); }
  std::string operator()(absl::Duration Config::*field) const { return absl::FormatDuration(config.*field); }
  std::string operator()(std::string Config::*field) const {
    const std::string& text = config.*field;
    const size_t scheme = text.find("://");
    return option.has_secret && scheme != std::string::npos ? text.substr(0, scheme) + "://(not shown)" : text;
  }
  std::string operator()(std::vector<std::string> Config::*field) const { return absl::StrJoin(config.*field, ","); }
};

}  // namespace

absl::Status SetOption(const Option& option, const std::string& text, Config& config) {
  return std::visit(ValueReader{option, text, config}, option.field);
}

std::string ValueText(const Option& option, const Config& config) {
  return std::visit(ValueWriter{option, config}, option.field);
}

bool SameValue(const Option& option, const Config& a, const Config& b) {
  return std::visit([&](auto field) { return a.*field == b.*field; }, option.field);
}

void CopyValue(const Option& option, const Config& from, Config& to) {
  std::visit([&](auto field) { to.*field = from.*field; }, option.field);
}

}  // namespace normd
