#include "client/cpp/normalize_stream.h"

namespace normd {

NormalizeStream::NormalizeStream(std::unique_ptr<Call> call) : call_(std::move(call)) {}

NormalizeStream::~NormalizeStream() {
  if (call_->finished) return;
  call_->context.TryCancel();
  Finish().IgnoreError();
}

bool NormalizeStream::Write(const v1::StreamRequest& request) { return call_->stream->Write(request); }

void NormalizeStream::WritesDone() {
  if (call_->writes_done) return;
  call_->writes_done = true;
  call_->stream->WritesDone();
}

bool NormalizeStream::Read(v1::StreamResponse* response) {
  if (call_->reads_done) return false;
  call_->reads_done = !call_->stream->Read(response);
  return !call_->reads_done;
}

absl::Status NormalizeStream::Finish() {
  WritesDone();
  // gRPC finishes a stream only after every reply was read.
  for (v1::StreamResponse unread; Read(&unread);) {
  }
  call_->finished = true;
  return client::ExplainConnection(client::FromGrpc(call_->stream->Finish(), call_->context), call_->callee);
}

void NormalizeStream::Cancel() { call_->context.TryCancel(); }

}  // namespace normd
