// Decides who makes a call and whether the caller may make it, by the tokens file and the policy file, and reads these
// anew when they change.
// In the path: the dispatcher asks at a call's headers, before anything of the message is read.
// Ownership: server.cc makes one AccessControl, which outlives the connections; each connection has an AccessMemory.
// Threads: everything is safe from any thread. A call takes no lock that another connection takes, except for the first
// call of a connection after the rules changed.
#ifndef NORMD_SERVER_SECURITY_ACCESS_CONTROL_H_
#define NORMD_SERVER_SECURITY_ACCESS_CONTROL_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/security/access_rules.h"
#include "server/security/access_stats.h"
#include "server/security/content_memory.h"
#include "server/security/identity.h"
#include "server/security/source_file.h"

namespace normd {

struct AccessOptions {
  std::string tokens_file;           // empty: no tokens are accepted, and `authorization` is not read
  std::string policy_file;           // empty: everybody who is let in may call everything
  bool asks_certificates = false;    // callers over TCP must show a certificate, or a token if there is a tokens file
  std::vector<std::string> methods;  // the paths of all methods; their index serves as a key
  // Called when a file has changed: OK if the new content is in force, else why the old one stays.
  std::function<void(RulesFile file, const absl::Status& status)> on_change = nullptr;
  Settling settling = {};
};

// What a connection remembers of the rules, so that its calls share nothing with those of others and hash the same
// token once.
class AccessMemory {
 private:
  friend class AccessControl;
  Mutex mu_;
  AccessRulesPtr rules_ ABSL_GUARDED_BY(mu_);  // null before the first call
  CallerPtr own_ ABSL_GUARDED_BY(mu_);         // the identity, by rules_, of calls without a token
  // The last token that somebody has by rules_, and who; empty and null if there was none.
  std::string token_ ABSL_GUARDED_BY(mu_);
  CallerPtr token_caller_ ABSL_GUARDED_BY(mu_);
};

// What a call shows. Borrows everything.
struct Credentials {
  // The name of the connection's peer: by certificate, by user, or "anonymous". Called when the rules have changed.
  absl::FunctionRef<std::string()> peer_name;
  bool is_private = false;                           // nobody else can read the peer's bytes: TLS or a Unix socket
  absl::Span<const std::string_view> authorization;  // the values of each header of this name
};

struct MethodKey {
  size_t index = 0;  // in AccessOptions::methods; beyond them for a method that does not exist
  std::string_view path;
};

struct Verdict {
  IdentityPtr identity;          // null if the caller is not known
  std::optional<Denial> denial;  // none: the call may begin
};

class AccessControl {
 public:
  // Reads both files. Returns BAD_FILE if one of them cannot be used. Borrows `clock`.
  static absl::StatusOr<std::unique_ptr<AccessControl>> Open(AccessOptions options, Clock* clock);

  // The key of the method with this path; one beyond all methods for a path that no method has.
  size_t MethodIndex(std::string_view path) const;

  // `memory` is that of the call's connection.
  Verdict Judge(AccessMemory* memory, const Credentials& credentials, const MethodKey& method);

  // The same for a peer that has shown no credentials but its name, such as "uid:1000".
  Verdict JudgePeer(std::string name, std::string_view path);

  // The error for the caller of a call that was denied.
  absl::Status ErrorOf(const Verdict& verdict, std::string_view path) const;

  // Looks at the files until a new content is still the same kSettleTime later, because a file that is being written
  // may make sense half-way, and takes it. Content that cannot be used, and a file that keeps changing, change nothing.
  // Blocks for kSettleTime, or some of them.
  void Reload() {
    LookUntilSettled(options_.settling, [this] { return Look(); });
  }
  // One look, for a watch that calls this every few seconds: takes a new content at the second look.
  void Watch() { Look(); }

  // The rules in force.
  AccessRulesPtr rules() const;
  AccessStats stats() const;

 private:
  // What was read of a file: its text, or why it could not be read.
  struct Content {
    bool ok = false;
    std::string text;
  };
  struct RulesFileState {
    SourceFile file;
    ContentMemory memory;
    AccessStats::File stats;
  };

  AccessControl(AccessOptions options, Clock* clock);

  static std::string KeyOf(const Content& content);
  // Returns whether both files are settled.
  bool Look();
  // Whether `content` is news; if so, `*status` says whether it was accepted.
  bool Take(RulesFile which, const Content& content, absl::Status* status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The same for a file that is not settled.
  bool ReportChanging(RulesFile which, absl::Status* status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Parse(RulesFile which, const Content& content) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void MakeRules() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Verdict Deny(Denial denial, IdentityPtr identity = nullptr);
  // Brings `memory` up to the rules in force.
  void Renew(AccessMemory* memory, const Credentials& credentials) ABSL_EXCLUSIVE_LOCKS_REQUIRED(memory->mu_);
  Verdict JudgeToken(AccessMemory* memory, const Credentials& credentials, const MethodKey& method);
  Verdict JudgeCaller(const AccessRules& rules, const CallerPtr& caller, const MethodKey& method);

  const AccessOptions options_;
  Clock* const clock_;
  std::atomic<uint64_t> generation_{0};  // of rules_
  std::array<std::atomic<int64_t>, kDenialCount> denied_{};

  mutable Mutex mu_;
  std::array<RulesFileState, kRulesFileCount> files_ ABSL_GUARDED_BY(mu_);
  TokenList tokens_ ABSL_GUARDED_BY(mu_);
  std::optional<Policy> policy_ ABSL_GUARDED_BY(mu_);
  AccessRulesPtr rules_ ABSL_GUARDED_BY(mu_);
};

}  // namespace normd

#endif  // NORMD_SERVER_SECURITY_ACCESS_CONTROL_H_
