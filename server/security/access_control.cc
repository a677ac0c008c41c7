#include "server/security/access_control.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/strings.h"
#include "server/base/errors.h"
#include "server/security/policy_file.h"

namespace normd {
namespace {

constexpr std::string_view kAnonymous = "anonymous";
constexpr std::string_view kScheme = "Bearer ";
// Longer ones are not hashed. A token that --make_token makes has 70 bytes.
constexpr size_t kMaxTokenBytes = 4096;

// The token in "Bearer TOKEN", where the case of the scheme does not matter; empty if the value is not of this form.
std::string_view TokenIn(std::string_view value) {
  const std::string_view scheme = value.substr(0, kScheme.size());
  if (!absl::EqualsIgnoreCase(absl::string_view(scheme.data(), scheme.size()),
                              absl::string_view(kScheme.data(), kScheme.size()))) {
    return {};
  }
  value.remove_prefix(kScheme.size());
  value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
  return value.size() <= kMaxTokenBytes && value.find(' ') == std::string_view::npos ? value : std::string_view();
}

// In a time that does not depend on how much of them is equal.
bool IsSameToken(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

IdentityPtr IdentityOf(const CallerPtr& caller) { return {caller, &caller->identity}; }

}  // namespace

absl::StatusOr<std::unique_ptr<AccessControl>> AccessControl::Open(AccessOptions options, Clock* clock) {
  std::unique_ptr<AccessControl> control(new AccessControl(std::move(options), clock));
  MutexLock lock(control->mu_);
  for (const RulesFile which : {RulesFile::kTokens, RulesFile::kPolicy}) {
    RulesFileState& state = control->files_[static_cast<size_t>(which)];
    if (state.file.path.empty()) continue;
    NORMD_ASSIGN_OR_RETURN(std::string text, ReadSourceFile(state.file));
    absl::Status status;
    control->Take(which, {.ok = true, .text = std::move(text)}, &status);
    NORMD_RETURN_IF_ERROR(status);
  }
  return control;
}

AccessControl::AccessControl(AccessOptions options, Clock* clock) : options_(std::move(options)), clock_(clock) {
  MutexLock lock(mu_);
  files_[static_cast<size_t>(RulesFile::kTokens)].file = {"--tokens_file", options_.tokens_file, /*secret=*/true};
  files_[static_cast<size_t>(RulesFile::kPolicy)].file = {"--policy_file", options_.policy_file};
  MakeRules();
}

void AccessControl::MakeRules() {
  const uint64_t generation = generation_.load(std::memory_order_relaxed) + 1;
  rules_ = std::make_shared<const AccessRules>(generation, options_.methods, tokens_, policy_);
  generation_.store(generation, std::memory_order_release);
}

AccessRulesPtr AccessControl::rules() const {
  MutexLock lock(mu_);
  return rules_;
}

size_t AccessControl::MethodIndex(std::string_view path) const {
  const auto found = std::find(options_.methods.begin(), options_.methods.end(), path);
  return static_cast<size_t>(found - options_.methods.begin());
}

std::string AccessControl::KeyOf(const Content& content) { return Concat(content.ok ? "+" : "-", content.text); }

absl::Status AccessControl::Parse(RulesFile which, const Content& content) {
  const SourceFile& file = files_[static_cast<size_t>(which)].file;
  if (!content.ok) return BadFileError(file, 0, content.text);
  if (which == RulesFile::kTokens) {
    NORMD_ASSIGN_OR_RETURN(tokens_, TokenList::Parse(file, content.text));
  } else {
    NORMD_ASSIGN_OR_RETURN(policy_, ParsePolicy(file, content.text, options_.methods));
  }
  return absl::OkStatus();
}

bool AccessControl::Take(RulesFile which, const Content& content, absl::Status* status) {
  RulesFileState& state = files_[static_cast<size_t>(which)];
  if (!state.memory.Note(KeyOf(content))) return false;
  *status = Parse(which, content);
  state.stats.stale = status->ok() ? 0 : 1;
  ++(status->ok() ? state.stats.loads : state.stats.failures);
  if (status->ok()) MakeRules();
  return true;
}

bool AccessControl::ReportChanging(RulesFile which, absl::Status* status) {
  RulesFileState& state = files_[static_cast<size_t>(which)];
  // No content has this key.
  if (!state.memory.KeepsChanging() || !state.memory.Note("")) return false;
  *status = FileChangingError(state.file.option, state.file.path);
  state.stats.stale = 1;
  ++state.stats.failures;
  return true;
}

bool AccessControl::Look() {
  bool all_settled = true;
  for (const RulesFile which : {RulesFile::kTokens, RulesFile::kPolicy}) {
    SourceFile file;
    {
      MutexLock lock(mu_);
      file = files_[static_cast<size_t>(which)].file;
    }
    if (file.path.empty()) continue;
    const absl::Time now = options_.settling.now();
    std::string file_state;
    absl::StatusOr<std::string> text = ReadSourceFile(file, &file_state);
    const Content content = {.ok = text.ok(), .text = text.ok() ? *text : std::string(text.status().message())};
    absl::Status status;
    bool news = false, settled = false;
    {
      MutexLock lock(mu_);
      settled = files_[static_cast<size_t>(which)].memory.See(Concat(file_state, KeyOf(content)), now);
      news = settled ? Take(which, content, &status) : ReportChanging(which, &status);
    }
    all_settled = all_settled && settled;
    if (settled && !text.ok()) status = text.status();
    if (news && options_.on_change != nullptr) options_.on_change(which, status);
  }
  return all_settled;
}

void AccessControl::Renew(AccessMemory* memory, const Credentials& credentials) {
  if (memory->rules_ != nullptr && memory->rules_->generation() == generation_.load(std::memory_order_acquire)) return;
  memory->rules_ = this->rules();
  memory->own_ = memory->rules_->MakeCaller(credentials.peer_name());
  memory->token_.clear();
  memory->token_caller_ = nullptr;
}

Verdict AccessControl::Judge(AccessMemory* memory, const Credentials& credentials, const MethodKey& method) {
  if (!options_.tokens_file.empty() && !credentials.authorization.empty()) {
    return JudgeToken(memory, credentials, method);
  }
  AccessRulesPtr rules;
  CallerPtr own;
  {
    MutexLock lock(memory->mu_);
    Renew(memory, credentials);
    rules = memory->rules_;
    own = memory->own_;
  }
  const bool must_show = options_.asks_certificates || !options_.tokens_file.empty();
  if (must_show && own->identity.name == kAnonymous) return Deny(Denial::kNoCredentials);
  return JudgeCaller(*rules, own, method);
}

Verdict AccessControl::JudgePeer(std::string name, std::string_view path) {
  const AccessRulesPtr rules = this->rules();
  return JudgeCaller(*rules, rules->MakeCaller(std::move(name)), {.index = MethodIndex(path), .path = path});
}

Verdict AccessControl::JudgeToken(AccessMemory* memory, const Credentials& credentials, const MethodKey& method) {
  // Somebody may have read the token on its way, so it proves nothing, and the reply does not reveal whether it is
  // good.
  if (!credentials.is_private) return Deny(Denial::kTokenInPlainText);
  const std::string_view token = TokenIn(credentials.authorization[0]);
  if (token.empty() || credentials.authorization.size() != 1) return Deny(Denial::kMalformedCredentials);
  AccessRulesPtr rules;
  CallerPtr caller;
  {
    MutexLock lock(memory->mu_);
    Renew(memory, credentials);
    rules = memory->rules_;
    // The callers of a connection nearly always show one token, and a comparison costs less than a hash.
    if (IsSameToken(memory->token_, token)) caller = memory->token_caller_;
  }
  if (caller == nullptr) {
    caller = rules->CallerOfToken(token);
    if (caller == nullptr) return Deny(Denial::kUnknownToken);
    MutexLock lock(memory->mu_);
    if (memory->rules_ == rules) {
      memory->token_ = token;
      memory->token_caller_ = caller;
    }
  }
  if (caller->expires != absl::InfiniteFuture() && clock_->Now() >= caller->expires) {
    return Deny(Denial::kExpiredToken, IdentityOf(caller));
  }
  return JudgeCaller(*rules, caller, method);
}

Verdict AccessControl::JudgeCaller(const AccessRules& rules, const CallerPtr& caller, const MethodKey& method) {
  if (rules.Allows(*caller, method.index, method.path)) return {IdentityOf(caller), std::nullopt};
  return Deny(Denial::kMethod, IdentityOf(caller));
}

Verdict AccessControl::Deny(Denial denial, IdentityPtr identity) {
  denied_[static_cast<size_t>(denial)].fetch_add(1, std::memory_order_relaxed);
  return {std::move(identity), denial};
}

absl::Status AccessControl::ErrorOf(const Verdict& verdict, std::string_view path) const {
  const bool tokens = !options_.tokens_file.empty();
  switch (*verdict.denial) {
    case Denial::kNoCredentials:
      if (!tokens) return NoCredentialsError("a client certificate");
      return NoCredentialsError(options_.asks_certificates ? "a client certificate or a bearer token over TLS"
                                                           : "a bearer token over TLS or the Unix socket");
    case Denial::kMalformedCredentials:
      return MalformedCredentialsError();
    case Denial::kUnknownToken:
      return UnknownTokenError();
    case Denial::kExpiredToken:
      return ExpiredTokenError();
    case Denial::kTokenInPlainText:
      return TokenInPlainTextError();
    case Denial::kMethod:
      break;
  }
  return MethodDeniedError(verdict.identity->name, path);
}

AccessStats AccessControl::stats() const {
  AccessStats stats;
  for (size_t i = 0; i < kDenialCount; ++i) stats.denied[i] = denied_[i].load(std::memory_order_relaxed);
  MutexLock lock(mu_);
  for (size_t i = 0; i < kRulesFileCount; ++i) stats.files[i] = files_[i].stats;
  return stats;
}

}  // namespace normd
