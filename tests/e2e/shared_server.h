// A server on a Unix socket (and on TCP) with shared memory: table and registrar as server.cc wires them; and a client.
#ifndef NORMD_TESTS_E2E_SHARED_SERVER_H_
#define NORMD_TESTS_E2E_SHARED_SERVER_H_

#include <memory>
#include <string>
#include <utility>

#include "client/cpp/client.h"
#include "server/shm/region_table.h"
#include "server/shm/registrar.h"
#include "tests/e2e/test_server.h"

namespace normd::e2e {

class SharedServer {
 public:
  explicit SharedServer(bool with_registrar = true, bool anywhere = false)
      : with_registrar_(with_registrar), anywhere_(anywhere) {
    Start();
  }

  void Start() {
    table_ = std::make_unique<RegionTable>(RegionLimits());
    if (with_registrar_) {
      registrar_ = Registrar::Start({.socket_path = RegistrarPath(folder_.path() + "/s")}, table_.get()).value();
    }
    RpcOptions options;
    options.listeners = {target(), "127.0.0.1:0"};
    options.regions = table_.get();
    options.shared_memory_anywhere = anywhere_;
    server_ = std::make_unique<TestServer>(std::move(options));
  }
  void Stop() {
    server_.reset();
    registrar_.reset();
    table_.reset();
  }

  std::string target() const { return "unix:" + folder_.path() + "/s"; }
  std::string tcp_target() { return "127.0.0.1:" + std::to_string(server_->server().ports()[1]); }
  TestServer& server() { return *server_; }
  RegionTable& table() { return *table_; }
  void StopRegistrar() { registrar_.reset(); }

  std::unique_ptr<Client> NewClient(ClientOptions options = {}) const {
    return Client::Connect(target(), std::move(options)).value();
  }

 private:
  const bool with_registrar_, anywhere_;
  TemporaryFolder folder_;
  std::unique_ptr<RegionTable> table_;
  std::unique_ptr<Registrar> registrar_;
  std::unique_ptr<TestServer> server_;
};

inline std::string BytesOf(const client::SharedBlock& block) {
  return std::string(reinterpret_cast<const char*>(block.data()), static_cast<size_t>(block.size_bytes()));
}

// The tensor's bytes in a block, and the block named instead of them.
inline client::SharedBlock MoveToBlock(Client& client, v1::Tensor* tensor) {
  client::SharedBlock block = client.AllocateShared(static_cast<int64_t>(tensor->data().size())).value();
  std::memcpy(block.data(), tensor->data().data(), tensor->data().size());
  client::SetShared(block, tensor);
  return block;
}

// An output in a new block of `size_bytes`.
inline client::SharedBlock AddSharedOutput(Client& client, v1::OutputKind kind, size_t size_bytes,
                                           v1::NormalizeRequest* request) {
  client::SharedBlock block = client.AllocateShared(static_cast<int64_t>(size_bytes)).value();
  v1::OutputRequest* const output = request->add_outputs();
  output->set_kind(kind);
  client::SetShared(block, output);
  return block;
}

// `rows` of 1024 f32: 4 KiB each.
inline v1::NormalizeRequest LargeRequest(int rows) {
  std::vector<float> values(static_cast<size_t>(rows) * 1024);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 97) - 40.0F;
  v1::NormalizeRequest request;
  request.mutable_spec()->mutable_rms_norm();
  SetTensor({rows, 1024}, values, request.mutable_x());
  return request;
}

}  // namespace normd::e2e

#endif  // NORMD_TESTS_E2E_SHARED_SERVER_H_
