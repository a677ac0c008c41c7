#include <algorithm>
#include <string>

#include "absl/strings/string_view.h"
#include "client/cpp/channels.h"
#include "client/cpp/client.h"
#include "proto/wire/crc32c.h"

namespace normd {
namespace {

using client::RunUnary;

constexpr size_t kImportChunkBytes = 256 << 10;  // below every server's chunk limit

absl::Status AppendChunk(const v1::Chunk& chunk, std::string& record) {
  if (static_cast<uint64_t>(chunk.offset()) != record.size()) {
    return absl::DataLossError(absl::StrCat("export: a chunk for offset ", chunk.offset(), " came at ", record.size()));
  }
  if (wire::Crc32c(chunk.data()) != chunk.crc32c()) {
    return absl::DataLossError(absl::StrCat("export: the checksum of the chunk at ", chunk.offset(), " is wrong"));
  }
  record += chunk.data();
  return absl::OkStatus();
}

bool SameLabels(const v1::Session& a, const v1::Session& b) {
  return a.labels_size() == b.labels_size() &&
         std::all_of(a.labels().begin(), a.labels().end(), [&b](const auto& label) {
           const auto found = b.labels().find(label.first);
           return found != b.labels().end() && found->second == label.second;
         });
}

}  // namespace

// Creates a session under an id that the caller chose, so that creation may be tried again: if a try was carried out
// and its answer was lost, the next try gets ALREADY_EXISTS. `create(context, response)` makes one try;
// `is_ours(session)` says whether an existing session can be the one that was asked for.
template <typename Create, typename IsOurs>
absl::StatusOr<v1::Session> Client::CreateWithId(const std::string& id, Create create, IsOurs is_ours) {
  const absl::Time deadline = absl::Now() + options_.deadline;
  bool may_be_made = false;
  absl::StatusOr<v1::Session> created = RunUnary<v1::Session>(
      channels_->Terms(options_), !id.empty(), [&](grpc::ClientContext* context, v1::Session* response) {
        grpc::Status status = create(context, response);
        may_be_made = may_be_made || status.error_code() == grpc::StatusCode::UNAVAILABLE;
        return status;
      });
  if (!may_be_made || !absl::IsAlreadyExists(created.status())) return created;
  v1::GetSessionRequest get;
  get.set_name("sessions/" + id);
  ClientOptions rest = options_;
  rest.deadline = deadline - absl::Now();
  absl::StatusOr<v1::Session> found =
      RunUnary<v1::Session>(channels_->Terms(rest), true, [&](grpc::ClientContext* context, v1::Session* response) {
        return channels_->small.sessions->GetSession(context, get, response);
      });
  if (found.ok() && !is_ours(*found)) return created;
  return found;
}

absl::StatusOr<v1::Session> Client::CreateSession(const v1::CreateSessionRequest& request) {
  auto& stub = *channels_->For(options_, request.ByteSizeLong()).sessions;
  const v1::Session& wanted = request.session();
  return CreateWithId(
      request.session_id(),
      [&](grpc::ClientContext* context, v1::Session* response) {
        return stub.CreateSession(context, request, response);
      },
      [&wanted](const v1::Session& found) {
        return found.spec().method_case() == wanted.spec().method_case() &&
               found.num_channels() == wanted.num_channels() && SameLabels(found, wanted);
      });
}

absl::StatusOr<v1::Session> Client::GetSession(const std::string& name, v1::SessionView view,
                                               std::optional<uint64_t> newer_than_version) {
  v1::GetSessionRequest request;
  request.set_name(name);
  request.set_view(view);
  if (newer_than_version.has_value()) request.set_newer_than_version(*newer_than_version);
  return RunUnary<v1::Session>(channels_->Terms(options_, name), true,
                               [&](grpc::ClientContext* context, auto* response) {
                                 return channels_->small.sessions->GetSession(context, request, response);
                               });
}

absl::StatusOr<v1::ListSessionsResponse> Client::ListSessions(const v1::ListSessionsRequest& request) {
  return RunUnary<v1::ListSessionsResponse>(
      channels_->Terms(options_), true, [&](grpc::ClientContext* context, auto* response) {
        return channels_->small.sessions->ListSessions(context, request, response);
      });
}

absl::StatusOr<v1::Session> Client::UpdateSession(const v1::UpdateSessionRequest& request) {
  auto& stub = *channels_->For(options_, request.ByteSizeLong()).sessions;
  return RunUnary<v1::Session>(
      channels_->Terms(options_, request.session().name()), false,
      [&](grpc::ClientContext* context, auto* response) { return stub.UpdateSession(context, request, response); });
}

absl::StatusOr<v1::Session> Client::FreezeSession(const std::string& name) {
  v1::UpdateSessionRequest request;
  request.mutable_session()->set_name(name);
  request.mutable_session()->set_frozen(true);
  request.mutable_update_mask()->add_paths("frozen");
  absl::StatusOr<v1::Session> frozen =
      RunUnary<v1::Session>(channels_->Terms(options_, name), true, [&](grpc::ClientContext* context, auto* response) {
        return channels_->small.sessions->UpdateSession(context, request, response);
      });
  const std::optional<client::ErrorInfo> refusal = client::GetErrorInfo(frozen.status());
  if (refusal.has_value() && refusal->reason == "SESSION_FROZEN") return GetSession(name);
  return frozen;
}

absl::StatusOr<v1::Session> Client::ResetSession(const v1::ResetSessionRequest& request) {
  return RunUnary<v1::Session>(channels_->Terms(options_, request.name()), false,
                               [&](grpc::ClientContext* context, auto* response) {
                                 return channels_->small.sessions->ResetSession(context, request, response);
                               });
}

absl::StatusOr<v1::Session> Client::ForkSession(const v1::ForkSessionRequest& request) {
  return CreateWithId(
      request.session_id(),
      [&](grpc::ClientContext* context, v1::Session* response) {
        return channels_->small.sessions->ForkSession(context, request, response);
      },
      [](const v1::Session&) { return true; });
}

absl::Status Client::DeleteSession(const v1::DeleteSessionRequest& request) {
  using google::protobuf::Empty;
  return RunUnary<Empty>(channels_->Terms(options_, request.name()), false,
                         [&](grpc::ClientContext* context, auto* response) {
                           return channels_->small.sessions->DeleteSession(context, request, response);
                         })
      .status();
}

absl::StatusOr<v1::StateResult> Client::CommitMoments(const v1::CommitMomentsRequest& request) {
  auto& stub = *channels_->For(options_, request.ByteSizeLong()).sessions;
  return RunUnary<v1::StateResult>(
      channels_->Terms(options_, request.session()), client::IsSafeToRetry(request),
      [&](grpc::ClientContext* context, auto* response) { return stub.CommitMoments(context, request, response); });
}

absl::StatusOr<std::string> Client::ExportSession(const std::string& name) {
  v1::ExportSessionRequest request;
  request.set_name(name);
  return RunUnary<std::string>(
      channels_->Terms(options_, name), true, [&](grpc::ClientContext* context, std::string* record) -> grpc::Status {
        const auto reader = channels_->large.sessions->ExportSession(context, request);
        absl::Status problem;
        bool last = false;
        for (v1::SessionChunk message; reader->Read(&message);) {
          if (!problem.ok()) continue;  // gRPC finishes only when every message was read
          problem = AppendChunk(message.chunk(), *record);
          last = message.chunk().last();
          if (!problem.ok()) context->TryCancel();
        }
        grpc::Status status = reader->Finish();
        if (!problem.ok()) return {grpc::StatusCode::DATA_LOSS, std::string(problem.message())};
        if (status.ok() && !last)
          return {grpc::StatusCode::DATA_LOSS, "export: the stream ended before the last chunk"};
        return status;
      });
}

absl::StatusOr<v1::Session> Client::ImportSession(absl::string_view record, const std::string& session_id) {
  return RunUnary<v1::Session>(channels_->Terms(options_), false,
                               [&](grpc::ClientContext* context, v1::Session* session) {
                                 const auto writer = channels_->large.sessions->ImportSession(context, session);
                                 size_t offset = 0;
                                 do {
                                   const absl::string_view piece = record.substr(offset, kImportChunkBytes);
                                   v1::ImportSessionRequest message;
                                   if (offset == 0) message.set_session_id(session_id);
                                   message.mutable_chunk()->set_offset(static_cast<int64_t>(offset));
                                   message.mutable_chunk()->mutable_data()->assign(piece.data(), piece.size());
                                   message.mutable_chunk()->set_crc32c(wire::Crc32c(message.chunk().data()));
                                   offset += piece.size();
                                   message.mutable_chunk()->set_last(offset == record.size());
                                   if (!writer->Write(message)) break;  // Finish returns the reason
                                 } while (offset < record.size());
                                 writer->WritesDone();
                                 return writer->Finish();
                               });
}

}  // namespace normd
