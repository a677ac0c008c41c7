#include "server/session/durable/row_decoder.h"

#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/session/record/record.h"
#include "server/session/session_changes.h"

namespace normd {

namespace {

// More sessions than this are not repaired by one sweep.
constexpr size_t kMaxMisfits = 1024;

}  // namespace

absl::StatusOr<StoredSession> RowDecoder::Decode(const SessionRow& row) {
  absl::StatusOr<StoredSession> stored = ParseParts(row.head, row.state, row.clients);
  if (stored.ok() && stored->published->id != row.id) stored = DataLossError("the record of another session");
  NORMD_RETURN_IF_ERROR(ReportDamage(row.id, stored.status()));
  return stored;
}

absl::StatusOr<SessionPtr> RowDecoder::DecodeSummary(const SessionRow& row) {
  absl::StatusOr<SessionPtr> session = ParseSummary(row.head, row.state);
  if (session.ok() && *session != nullptr && (*session)->id != row.id) {
    session = DataLossError("the record of another session");
  }
  NORMD_RETURN_IF_ERROR(ReportDamage(row.id, session.status()));
  return session;
}

bool RowDecoder::ColumnsFit(const SessionRow& row, const Session& session) {
  const std::optional<absl::Time> expires = ExpireTime(session);
  // Tables keep microseconds, and some round up.
  const bool same_expiry =
      expires.has_value() == row.expires_at.has_value() &&
      (!expires.has_value() || absl::AbsDuration(*expires - *row.expires_at) <= absl::Microseconds(1));
  if (same_expiry && row.bytes == QuotaBytes(session) && row.labels == LabelText(session.labels)) return true;
  ReportDamage(row.id, DataLossError("the columns labels, bytes and expires_at do not fit the record")).IgnoreError();
  return false;
}

void RowDecoder::RepairLater(const std::string& id) {
  MutexLock lock(mu_);
  if (misfits_.size() < kMaxMisfits) misfits_.insert(id);
}

std::set<std::string> RowDecoder::TakeMisfits() {
  MutexLock lock(mu_);
  return std::exchange(misfits_, {});
}

int64_t RowDecoder::damaged() const {
  MutexLock lock(mu_);
  return damaged_;
}

absl::Status RowDecoder::ReportDamage(const std::string& id, absl::Status status) {
  if (status.ok()) return status;
  // This store has written the record itself, so whatever is wrong with it is damage.
  if (absl::IsInvalidArgument(status)) status = DataLossError("a record that no server has written");
  {
    MutexLock lock(mu_);
    ++damaged_;
  }
  if (on_damaged_ != nullptr) on_damaged_(id, status);
  return status;
}

}  // namespace normd
