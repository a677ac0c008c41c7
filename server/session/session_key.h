// The keys under which stores keep sessions: a key says whose the session is. The session "a" of the tenant "vision"
// has the key "/vision/a". A session of the default tenant, whose name is empty, has its id as its key, as all sessions
// had before there were tenants. Ids begin with a letter or digit, so the keys of each tenant are one contiguous range.
// In the path: rpc makes keys of the ids in requests, and shows ids alone; the engine and the stores know keys only.
// Pure functions, safe from any thread.
#ifndef NORMD_SERVER_SESSION_SESSION_KEY_H_
#define NORMD_SERVER_SESSION_SESSION_KEY_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace normd {

struct ListQuery;

// The key of the session `id` of `tenant`. With an empty id, the key of a session to create whose id the store chooses.
std::string SessionKey(std::string_view tenant, std::string_view id);

// The parts of a key; the views borrow from `key`.
std::string_view TenantOf(std::string_view key);  // "" for the default tenant
std::string_view IdOf(std::string_view key);      // what callers see

// INVALID_ARGUMENT unless `key` consists of a tenant's name (1 to 63 characters of a-z 0-9 -) or none, and an id that
// ValidateSessionId accepts.
absl::Status ValidateSessionKey(std::string_view key);

// The keys that a query may list, in bytewise order: those behind `after` and before `end`.
struct KeyRange {
  std::string after;
  std::string end;
};
KeyRange RangeOf(const ListQuery& query);

}  // namespace normd

#endif  // NORMD_SERVER_SESSION_SESSION_KEY_H_
