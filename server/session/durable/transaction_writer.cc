#include "server/session/durable/transaction_writer.h"

#include "absl/time/clock.h"

namespace normd {

namespace {

// The smallest group that shows whether steps share rows. Steps of few sessions may all differ in a smaller one.
constexpr size_t kMinShowingChanges = 24;

}  // namespace

TransactionWriter::TransactionWriter(SessionTable* table, StoreTotals* totals, std::function<void()> on_end)
    : table_(*table), totals_(*totals), shared_table_(table->shared()), thread_(table, std::move(on_end)) {}

// Not where steps share rows, because early rows would be written again.
void TransactionWriter::WriteEarly(size_t left, Transaction* transaction) {
  if (shared_table_ || steps_share_rows_) return;
  if (thread_.open() ? !thread_.wants_rows() : left < kMinEarlyRows) return;
  AddEarlyRows(transaction);
}

void TransactionWriter::AddEarlyRows(Transaction* transaction) {
  if (transaction->group.early_row_count() < kMinEarlyRows) return;
  std::vector<RowChange>* const part = NewPart(transaction);
  transaction->group.EarlyRows(part);
  if (part->empty()) return;
  if (!thread_.open()) totals_.BeginWrite();
  thread_.Add(*part);
}

std::optional<TransactionWriter::Result> TransactionWriter::WriteRest(Transaction* transaction) {
  std::vector<RowChange>* const rest = NewPart(transaction);
  transaction->group.Rows(rest);
  if (!thread_.open()) {
    if (rest->empty()) return Result{.versions = SessionTable::Versions(), .begun = absl::InfiniteFuture()};
    totals_.BeginWrite();
    if (!thread_.busy()) {
      const absl::Time begun = absl::Now();
      Result result = {.versions = table_.Write(*rest), .begun = begun};
      result.table_failed = table_.failed();
      return result;
    }
  }
  thread_.Close(*rest);
  return std::nullopt;
}

void TransactionWriter::Reuse(size_t changes, size_t rows, Transaction* transaction) {
  if (changes >= kMinShowingChanges) steps_share_rows_ = 4 * changes >= 5 * rows;
  // The first part of the next transaction takes what the first one of this transaction had.
  RowParts& parts = transaction->parts;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) used_parts_.push_back(std::move(*part));
  parts.clear();
}

std::vector<RowChange>* TransactionWriter::NewPart(Transaction* transaction) {
  std::vector<RowChange>& part = transaction->parts.emplace_back();
  if (!used_parts_.empty()) {
    part = std::move(used_parts_.back());
    used_parts_.pop_back();
  }
  return &part;
}

}  // namespace normd
