#include "server/rpc/edge/call_places.h"

#include "server/base/errors.h"

namespace normd::rpc {

CallPlace::~CallPlace() {
  if (places_ == nullptr) return;
  peer_->held.fetch_sub(1, std::memory_order_relaxed);
  places_->held_.fetch_sub(1, std::memory_order_relaxed);
}

absl::Status CallPlaces::Take(const Connection& connection, CallPlace* place) {
  PeerCalls& peer = connection.peer_calls();
  CallPlace taken;
  taken.places_ = this;
  taken.peer_ = &peer;
  const int own = peer.held.fetch_add(1, std::memory_order_relaxed) + 1;
  const int all = held_.fetch_add(1, std::memory_order_relaxed) + 1;
  if (own > Crowded(limits_.max_calls_per_peer) || all > Crowded(limits_.max_calls)) {
    crowded_.store(true, std::memory_order_relaxed);
  }
  if (own > limits_.max_calls_per_peer) return NoRoomError("calls_of_peer", own, limits_.max_calls_per_peer);
  const int most = limits_.max_calls - (connection.is_unix() ? 0 : limits_.kept_for_unix);
  if (all > most) return NoRoomError("calls", all, most);
  *place = std::move(taken);
  return absl::OkStatus();
}

bool CallPlaces::TakeCrowded() {
  return crowded_.load(std::memory_order_relaxed) && crowded_.exchange(false, std::memory_order_relaxed);
}

}  // namespace normd::rpc
