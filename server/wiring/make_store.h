// Makes the session store that the options ask for. No other code knows which stores exist.
// In the path: around it; server.cc opens the store at the start.
// Threads: called from one thread.
#ifndef NORMD_SERVER_WIRING_MAKE_STORE_H_
#define NORMD_SERVER_WIRING_MAKE_STORE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/base/clock.h"
#include "server/base/tenant_quotas.h"
#include "server/options/config.h"
#include "server/session/durable/durable_options.h"
#include "server/session/session_store.h"

namespace normd {

// The limits of `config` in the store's terms, for SessionStore::SetLimits. `quotas` are as in OpenSessionStore.
SessionLimits LimitsOf(const Config& config, TenantQuotaTable* quotas);
ResidencyLimits ResidencyOf(const Config& config);

// Opens the store of `config`; for sqlite this makes data_dir. Borrows `clock` and `quotas`, the limits of tenants,
// which may be null; both must outlive the store. Errors
// say what is wrong with the store, and none names a password.
absl::StatusOr<std::unique_ptr<SessionStore>> OpenSessionStore(const Config& config, StoreObserver observer,
                                                               Clock* clock, TenantQuotaTable* quotas = nullptr);

}  // namespace normd

#endif  // NORMD_SERVER_WIRING_MAKE_STORE_H_
