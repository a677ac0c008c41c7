#include "server/wiring/registrar_hooks.h"

#include <string>

#include "kernels/base/strings.h"
#include "server/rpc/services/method_names.h"

namespace normd {
namespace {

std::string Name(uid_t uid) { return Concat("uid:", uid); }

}  // namespace

RegistrarHooks MakeRegistrarHooks(AccessControl* access, AuditLog* audit) {
  const std::string path = rpc::MethodPath("normd.v1.SharedMemory", "RegisterRegion");
  RegistrarHooks hooks;
  hooks.tenant_of = [access](uid_t uid) { return access->rules()->MakeCaller(Name(uid))->identity.tenant; };
  hooks.may_register = [access, path](uid_t uid) {
    const Verdict verdict = access->JudgePeer(Name(uid), path);
    return verdict.denial.has_value() ? access->ErrorOf(verdict, path) : absl::OkStatus();
  };
  hooks.on_registration = [access, audit, path](uid_t uid, const absl::Status& status) {
    const CallerPtr caller = access->rules()->MakeCaller(Name(uid));
    const bool denied = absl::IsPermissionDenied(status);
    audit->Write({.method = path,
                  .identity = {caller, &caller->identity},
                  .peer = "registrar",
                  .denied = denied ? kDenialNames[static_cast<size_t>(Denial::kMethod)] : std::string_view(),
                  .code = status.code()});
  };
  return hooks;
}

}  // namespace normd
