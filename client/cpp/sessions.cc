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

}  // namespace

absl::StatusOr<v1::Session> Client::CreateSession(const v1::CreateSessionRequest& request) {
  auto& stub = *channels_->For(options_, request.ByteSizeLong()).sessions;
  return RunUnary<v1::Session>(options_, false, [&](grpc::ClientContext* context, auto* response) {
    return stub.CreateSession(context, request, response);
  });
}

absl::StatusOr<v1::Session> Client::GetSession(const std::string& name, v1::SessionView view) {
  v1::GetSessionRequest request;
  request.set_name(name);
  request.set_view(view);
  return RunUnary<v1::Session>(options_, true, [&](grpc::ClientContext* context, auto* response) {
    return channels_->small.sessions->GetSession(context, request, response);
  });
}

absl::StatusOr<v1::ListSessionsResponse> Client::ListSessions(const v1::ListSessionsRequest& request) {
  return RunUnary<v1::ListSessionsResponse>(options_, true, [&](grpc::ClientContext* context, auto* response) {
    return channels_->small.sessions->ListSessions(context, request, response);
  });
}

absl::StatusOr<v1::Session> Client::UpdateSession(const v1::UpdateSessionRequest& request) {
  auto& stub = *channels_->For(options_, request.ByteSizeLong()).sessions;
  return RunUnary<v1::Session>(options_, false, [&](grpc::ClientContext* context, auto* response) {
    return stub.UpdateSession(context, request, response);
  });
}

absl::StatusOr<v1::Session> Client::ResetSession(const v1::ResetSessionRequest& request) {
  return RunUnary<v1::Session>(options_, false, [&](grpc::ClientContext* context, auto* response) {
    return channels_->small.sessions->ResetSession(context, request, response);
  });
}

absl::StatusOr<v1::Session> Client::ForkSession(const v1::ForkSessionRequest& request) {
  return RunUnary<v1::Session>(options_, false, [&](grpc::ClientContext* context, auto* response) {
    return channels_->small.sessions->ForkSession(context, request, response);
  });
}

absl::Status Client::DeleteSession(const v1::DeleteSessionRequest& request) {
  using google::protobuf::Empty;
  return RunUnary<Empty>(options_, false,
                         [&](grpc::ClientContext* context, auto* response) {
                           return channels_->small.sessions->DeleteSession(context, request, response);
                         })
      .status();
}

absl::StatusOr<v1::StateResult> Client::CommitMoments(const v1::CommitMomentsRequest& request) {
  auto& stub = *channels_->For(options_, request.ByteSizeLong()).sessions;
  return RunUnary<v1::StateResult>(
      options_, client::IsSafeToRetry(request),
      [&](grpc::ClientContext* context, auto* response) { return stub.CommitMoments(context, request, response); });
}

absl::StatusOr<std::string> Client::ExportSession(const std::string& name) {
  v1::ExportSessionRequest request;
  request.set_name(name);
  return RunUnary<std::string>(options_, true, [&](grpc::ClientContext* context, std::string* record) -> grpc::Status {
    const auto reader = channels_->large.sessions->ExportSession(context, request);
    absl::Status problem;
    bool last = false;
    for (v1::SessionChunk message; reader->Read(&message);) {
      if (!problem.ok()) continue;  // Finish needs every message read
      problem = AppendChunk(message.chunk(), *record);
      last = message.chunk().last();
      if (!problem.ok()) context->TryCancel();
    }
    grpc::Status status = reader->Finish();
    if (!problem.ok()) return {grpc::StatusCode::DATA_LOSS, std::string(problem.message())};
    if (status.ok() && !last) return {grpc::StatusCode::DATA_LOSS, "export: the stream ended before the last chunk"};
    return status;
  });
}

absl::StatusOr<v1::Session> Client::ImportSession(absl::string_view record, const std::string& session_id) {
  return RunUnary<v1::Session>(options_, false, [&](grpc::ClientContext* context, v1::Session* session) {
    const auto writer = channels_->large.sessions->ImportSession(context, session);
    size_t offset = 0;
    do {
      const absl::string_view piece = record.substr(offset, kImportChunkBytes);
      v1::ImportSessionRequest message;
      if (offset == 0) message.set_session_id(session_id);
      message.mutable_chunk()->set_offset(static_cast<int64_t>(offset));
      message.mutable_chunk()->set_data(piece.data(), piece.size());
      message.mutable_chunk()->set_crc32c(wire::Crc32c(message.chunk().data()));
      offset += piece.size();
      message.mutable_chunk()->set_last(offset == record.size());
      if (!writer->Write(message)) break;  // Finish says why
    } while (offset < record.size());
    writer->WritesDone();
    return writer->Finish();
  });
}

}  // namespace normd
