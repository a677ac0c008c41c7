#include "server/rpc/services/describe.h"

#include <string>

#include "kernels/methods.h"
#include "server/rpc/edge/admission.h"
#include "server/shm/region_table.h"

namespace normd::rpc {
namespace {

void DescribeMethod(const MethodInfo& info, v1::MethodDescription* message) {
  message->set_name(std::string(info.name));
  message->set_title(std::string(info.title));
  message->set_formula(std::string(info.formula));
  message->set_subtracts_mean(info.subtracts_mean);
  message->set_divides_by(std::string(info.divides_by));
  message->set_axes_bchw(std::string(info.axes_bchw));
  message->set_axes_bld(std::string(info.axes_bld));
  message->set_axes_bc(std::string(info.axes_bc));
  message->set_depends_on_batch(info.depends_on_batch);
  message->set_parameters(std::string(info.parameters));
  message->set_training_equals_inference(info.training_equals_inference);
  message->set_used_by(std::string(info.used_by));
  message->set_when_to_choose(std::string(info.when_to_choose));
  message->set_default_eps(info.default_eps);
  message->set_default_eps_mode(static_cast<v1::EpsMode>(info.default_eps_mode));
  for (const AttributeInfo& attribute : info.attributes) {
    v1::AttributeDescription* described = message->add_attributes();
    described->set_name(std::string(attribute.name));
    described->set_type(std::string(attribute.type));
    described->set_default_value(std::string(attribute.default_value));
    described->set_limits(std::string(attribute.limits));
  }
}

void DescribeLimits(const RpcOptions& options, const SessionLimits& sessions, v1::Limits* message) {
  message->set_max_message_bytes(options.max_message_bytes);
  message->set_max_chunk_bytes(kMaxChunkBytes);
  message->set_max_tensor_bytes(MaxTensorBytes(options));
  message->set_max_rank(kMaxRank);
  message->set_max_sessions(sessions.max_sessions);
  message->set_max_parameter_bytes(sessions.max_parameter_bytes);
  message->set_max_batch_items(options.max_batch_items);
  message->set_max_session_clients(sessions.max_clients);
  message->set_replay_window(sessions.replay_window);
  if (options.regions == nullptr) return;
  message->set_max_regions(options.regions->limits().max_regions);
  message->set_max_region_bytes(options.regions->limits().max_total_bytes);
}

}  // namespace

v1::DescribeResponse Describe(const RpcOptions& options, const Engine& engine) {
  v1::DescribeResponse response;
  response.set_server_version(options.server_version);
  response.set_numerics(std::string(kNumerics));
  for (const MethodDefinition* method : AllMethods()) DescribeMethod(method->info, response.add_methods());
  for (const DType dtype : kAllDTypes) response.add_dtypes(static_cast<v1::DType>(dtype));
  for (const DeviceInfo& device : options.devices) {
    v1::DeviceDescription* described = response.add_devices();
    described->set_name(device.name);
    described->set_usable(device.usable);
    described->set_detail(device.detail);
  }
  DescribeLimits(options, engine.session_limits(), response.mutable_limits());
  response.set_durability(static_cast<v1::Durability>(engine.durability()));
  response.set_calibration(options.calibration == nullptr ? "AUTO runs on the CPU" : options.calibration());
  response.set_server_uid(options.server_uid);
  response.set_unix_socket(options.unix_socket);
  return response;
}

}  // namespace normd::rpc
