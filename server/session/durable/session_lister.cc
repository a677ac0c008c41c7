#include "server/session/durable/session_lister.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/base/status_macros.h"
#include "server/base/errors.h"

namespace normd {

SessionLister::SessionLister(std::unique_ptr<SessionTable> table, StoreParts* parts)
    : parts_(*parts), table_(std::move(table)), thread_([this] { Run(); }) {}

SessionLister::~SessionLister() { Stop(); }

void SessionLister::Stop() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(mu_);
    stopping_ = true;
  }
  ready_.SignalAll();
  thread_.join();
}

void SessionLister::List(ListQuery query, SessionStore::Done<ListPage> done) {
  const int64_t limit = parts_.options.max_queued_reads;
  int64_t queued = 0;
  {
    MutexLock lock(mu_);
    queued = static_cast<int64_t>(queued_.size());
    if (queued < limit) {
      queued_.push_back({std::move(query), std::move(done)});
      ready_.Signal();
      return;
    }
  }
  done(LimitExceededError("queued lists", queued + 1, limit));
}

WaitStats SessionLister::waiting(absl::Time now) const {
  MutexLock lock(mu_);
  WaitStats stats = {.waiting = static_cast<int64_t>(queued_.size())};
  if (!queued_.empty()) stats.oldest = now - queued_.front().since;
  return stats;
}

void SessionLister::Run() {
  while (std::optional<QueuedList> list = TakeList()) {
    const std::string after_id = list->query.after_id;
    absl::StatusOr<ListPage> page = ReadPage(std::move(list->query));
    if (!page.ok()) parts_.ReportError(page.status());
    parts_.Post(after_id, [done = std::move(list->done), page = std::move(page)]() mutable { done(std::move(page)); });
  }
}

std::optional<SessionLister::QueuedList> SessionLister::TakeList() {
  while (true) {
    {
      MutexLock lock(mu_);
      if (queued_.empty() && !stopping_) ready_.WaitFor(mu_, parts_.options.sweep_interval);
      if (!queued_.empty()) {
        QueuedList list = std::move(queued_.front());
        queued_.pop_front();
        return list;
      }
      if (stopping_) return std::nullopt;
    }
    if (parts_.shared_table) CountTotals();
  }
}

void SessionLister::CountTotals() {
  const std::optional<int64_t> count = parts_.totals.BeginCount();
  if (!count.has_value()) return;
  const absl::StatusOr<TableTotals> counted = table_->Totals();
  if (counted.ok()) parts_.totals.EndCount(*count, *counted);
}

absl::StatusOr<ListPage> SessionLister::ReadPage(ListQuery query) {
  const auto wanted = static_cast<size_t>(std::max(query.page_size, 1));
  query.page_size = static_cast<int>(wanted) + 1;  // the additional row tells whether there is a next page
  NORMD_ASSIGN_OR_RETURN(std::vector<SessionRow> rows, table_->Page(query, parts_.clock->Now()));
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

absl::StatusOr<SessionPtr> SessionLister::ReadSummary(const SessionRow& row) {
  NORMD_ASSIGN_OR_RETURN(SessionPtr session, parts_.decoder.DecodeSummary(row));
  if (session != nullptr) return session;
  // An older server has written the record: it is read as a whole, one at a time, and only what is shown is kept.
  const RowRequest request = {.id = row.id, .known = {}};
  NORMD_ASSIGN_OR_RETURN(const std::vector<SessionRow> whole, table_->Load({&request, 1}, /*max_bytes=*/0));
  if (whole.empty()) return SessionPtr();
  NORMD_ASSIGN_OR_RETURN(const StoredSession stored, parts_.decoder.Decode(whole.front()));
  Session summary = *stored.published;
  summary.parameters = std::make_shared<const OwnedParameters>();
  summary.state = {.mean = {}, .var = {}, .phi = {}, .num_batches = summary.state.num_batches};
  return std::make_shared<const Session>(std::move(summary));
}

absl::Status SessionLister::AddWhole(const ListQuery& query, absl::Span<const SessionRow> rows, ListPage* page) {
  std::vector<RowRequest> requests;
  requests.reserve(rows.size());
  for (const SessionRow& row : rows) requests.push_back({row.id, {}});
  NORMD_ASSIGN_OR_RETURN(const std::vector<SessionRow> whole, table_->Load(requests, query.max_bytes));
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
    absl::StatusOr<StoredSession> stored = parts_.decoder.Decode(*found->second);
    if (stored.ok()) {
      page->sessions.push_back(std::move(stored->published));
    } else {
      ++page->damaged;
    }
  }
  return absl::OkStatus();
}

}  // namespace normd
