// The lists of DurableStore: pages, on a thread and a connection of their own. The values that a list shows stand at
// the beginning of a record; parameters and statistics are read only if the query wants them, and then few bytes at a
// time.
#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/session/durable/durable_store.h"

namespace normd {

void DurableStore::RunLists() {
  while (std::optional<ListRead> list = TakeList()) {
    const std::string after_id = list->query.after_id;
    absl::StatusOr<ListPage> page = ReadPage(std::move(list->query));
    if (!page.ok() && options_.observer.on_error != nullptr) options_.observer.on_error(page.status());
    Post(after_id, [done = std::move(list->done), page = std::move(page)]() mutable { done(std::move(page)); });
  }
}

std::optional<DurableStore::ListRead> DurableStore::TakeList() {
  while (true) {
    {
      MutexLock lock(mu_);
      if (lists_.empty() && !stopping_) lists_ready_.WaitFor(mu_, options_.sweep_interval);
      if (!lists_.empty()) {
        ListRead list = std::move(lists_.front());
        lists_.pop_front();
        return list;
      }
      if (stopping_) return std::nullopt;
    }
    if (shared_) RefreshTotals();
  }
}

void DurableStore::RefreshTotals() {
  const std::optional<int64_t> count = totals_.BeginCount();
  if (!count.has_value()) return;
  const absl::StatusOr<TableTotals> counted = list_table_->Totals();
  if (counted.ok()) totals_.EndCount(*count, *counted);
}

absl::StatusOr<ListPage> DurableStore::ReadPage(ListQuery query) {
  const auto wanted = static_cast<size_t>(std::max(query.page_size, 1));
  query.page_size = static_cast<int>(wanted) + 1;  // the additional row tells whether there is a next page
  NORMD_ASSIGN_OR_RETURN(std::vector<SessionRow> rows, list_table_->Page(query, clock_->Now()));
  ListPage page;
  if (rows.size() > wanted) {
    rows.resize(wanted);
    page.next_after = rows.back().id;
  }
  if (query.whole) {
    NORMD_RETURN_IF_ERROR(AddWhole(query, rows, &page));
    return page;
  }
  for (const SessionRow& row : rows) {
    absl::StatusOr<SessionPtr> session = ReadSummary(row);
    if (!session.ok() && !absl::IsDataLoss(session.status())) return session.status();
    if (!session.ok()) {
      ++page.damaged;
    } else if (*session != nullptr) {
      page.sessions.push_back(*std::move(session));
    }
  }
  return page;
}

absl::StatusOr<SessionPtr> DurableStore::ReadSummary(const SessionRow& row) {
  NORMD_ASSIGN_OR_RETURN(SessionPtr session, decoder_.DecodeSummary(row));
  if (session != nullptr) return session;
  // An older server has written the record: it is read as a whole, one at a time, and only what is shown is kept.
  const RowRequest request = {.id = row.id, .known = {}};
  NORMD_ASSIGN_OR_RETURN(const std::vector<SessionRow> whole, list_table_->Load({&request, 1}, /*max_bytes=*/0));
  if (whole.empty()) return SessionPtr();
  NORMD_ASSIGN_OR_RETURN(const StoredSession stored, decoder_.Decode(whole.front()));
  Session summary = *stored.published;
  summary.parameters = std::make_shared<const OwnedParameters>();
  summary.state = {.mean = {}, .var = {}, .phi = {}, .num_batches = summary.state.num_batches};
  return std::make_shared<const Session>(std::move(summary));
}

absl::Status DurableStore::AddWhole(const ListQuery& query, absl::Span<const SessionRow> rows, ListPage* page) {
  std::vector<RowRequest> requests;
  requests.reserve(rows.size());
  for (const SessionRow& row : rows) requests.push_back({row.id, {}});
  NORMD_ASSIGN_OR_RETURN(const std::vector<SessionRow> whole, list_table_->Load(requests, query.max_bytes));
  std::map<std::string_view, const SessionRow*> by_id;
  for (const SessionRow& row : whole) by_id.emplace(row.id, &row);
  std::string last = query.after_id;
  for (const RowRequest& request : requests) {
    const auto found = by_id.find(request.id);
    if (found != by_id.end() && found->second->left_out) {
      page->next_after = last;  // the page ends before this session
      return absl::OkStatus();
    }
    last = request.id;
    if (found == by_id.end()) continue;  // deleted meanwhile
    absl::StatusOr<StoredSession> stored = decoder_.Decode(*found->second);
    if (stored.ok()) {
      page->sessions.push_back(std::move(stored->published));
    } else {
      ++page->damaged;
    }
  }
  return absl::OkStatus();
}

}  // namespace normd
