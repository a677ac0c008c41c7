#include "server/session/durable/store_parts.h"

#include <utility>

#include "kernels/base/status_macros.h"

namespace normd {

StoreParts::StoreParts(DurableStoreOptions store_options, StoreTables* tables, Clock* store_clock,
                       const TableTotals& counted)
    : options(std::move(store_options)),
      clock(store_clock),
      shared_table(tables->writer->shared()),
      cache(options.residency),
      totals(counted),
      decoder(options.observer.on_damaged),
      callbacks(options.callback_threads),
      file(std::move(tables->checker), options) {}

absl::StatusOr<bool> StoreParts::Reconnect(SessionTable* table, int64_t* connection) {
  NORMD_ASSIGN_OR_RETURN(const int64_t current, table->Connect());
  if (current == *connection) return false;
  *connection = current;
  cache.Clear();
  return true;
}

void StoreParts::Post(std::string_view id, CallbackThreads::Answer answer) {
  callbacks.Post(callbacks.ThreadOf(id), std::move(answer));
}

void StoreParts::ReportError(const absl::Status& status) const {
  if (options.observer.on_error != nullptr) options.observer.on_error(status);
}

}  // namespace normd
