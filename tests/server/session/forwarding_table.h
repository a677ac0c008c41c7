// A table that hands every call to another one: tests put their own Load or Write in front.
#ifndef NORMD_TESTS_SERVER_SESSION_FORWARDING_TABLE_H_
#define NORMD_TESTS_SERVER_SESSION_FORWARDING_TABLE_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/session/session_table.h"

namespace normd::session_test {

class ForwardingTable : public SessionTable {
 public:
  explicit ForwardingTable(std::unique_ptr<SessionTable> table) : table_(std::move(table)) {}
  bool shared() const override { return table_->shared(); }
  bool failed() const override { return table_->failed(); }
  std::string_view failure() const override { return table_->failure(); }
  absl::StatusOr<int64_t> Connect() override { return table_->Connect(); }
  absl::StatusOr<TableTotals> Totals() override { return table_->Totals(); }
  absl::StatusOr<std::vector<SessionRow>> Load(absl::Span<const RowRequest> requests, int64_t max_bytes) override {
    return table_->Load(requests, max_bytes);
  }
  absl::StatusOr<std::vector<SessionRow>> Page(const ListQuery& query, absl::Time now) override {
    return table_->Page(query, now);
  }
  absl::StatusOr<std::vector<std::string>> Expired(absl::Time now, int64_t limit) override {
    return table_->Expired(now, limit);
  }
  using SessionTable::Write;
  absl::StatusOr<Versions> Write(NextPart next) override { return table_->Write(next); }

 private:
  const std::unique_ptr<SessionTable> table_;
};

}  // namespace normd::session_test

#endif  // NORMD_TESTS_SERVER_SESSION_FORWARDING_TABLE_H_
