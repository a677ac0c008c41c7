// Connects the registrar of shared memory to the access check and the audit log: a region that comes by descriptor is
// judged and reported as one that comes by RegisterRegion.
// In the path: beside it; server.cc passes the hooks on. Threads: the hooks run on the registrar's thread.
#ifndef NORMD_SERVER_WIRING_REGISTRAR_HOOKS_H_
#define NORMD_SERVER_WIRING_REGISTRAR_HOOKS_H_

#include "server/security/access_control.h"
#include "server/shm/registrar.h"
#include "server/wiring/audit_log.h"

namespace normd {

// Borrows both, which must outlive the registrar.
RegistrarHooks MakeRegistrarHooks(AccessControl* access, AuditLog* audit);

}  // namespace normd

#endif  // NORMD_SERVER_WIRING_REGISTRAR_HOOKS_H_
