#include "server/rpc/edge/idle_streams.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "server/base/errors.h"
#include "server/rpc/edge/rpc_call.h"

namespace normd::rpc {
namespace {

struct Idle {
  int64_t since = 0;
  std::shared_ptr<RpcCall> stream;
  int own = 0;    // the calls of its peer
  int level = 0;  // the calls of its peer that are left when it is this stream's turn to end
};

// The streams that wait, those of one peer in the order of their turns.
std::vector<Idle> FindIdle(LiveCalls& live) {
  std::vector<Idle> idle;
  for (std::shared_ptr<RpcCall>& stream : live.Collect([](const RpcCall& one) { return one.waiting_since() != 0; })) {
    const int64_t since = stream->waiting_since();
    if (since != 0) idle.push_back({.since = since, .stream = std::move(stream)});
  }
  std::sort(idle.begin(), idle.end(), [](const Idle& a, const Idle& b) { return a.since < b.since; });
  std::unordered_map<const PeerCalls*, int> ended_of;
  for (Idle& one : idle) {
    const PeerCalls& peer = one.stream->connection().peer_calls();
    int& ended = ended_of.emplace(&peer, 0).first->second;
    one.own = peer.held.load(std::memory_order_relaxed);
    one.level = one.own - ended++;
  }
  return idle;
}

void End(const Idle& idle, std::string_view field, int calls, int limit) {
  // A message may have begun to come meanwhile.
  idle.stream->EndReading(IdleStreamError(field, calls, CallPlaces::Crowded(limit), limit), /*keep_current=*/true);
}

}  // namespace

void IdleStreams::Look() {
  if (!places_->TakeCrowded()) return;
  const CallPlaces::Limits& limits = places_->limits();
  const int all = places_->held();
  int too_many = all > CallPlaces::Crowded(limits.max_calls) ? all - CallPlaces::Relieved(limits.max_calls) : 0;
  std::vector<Idle> idle = FindIdle(*live_);
  std::stable_sort(idle.begin(), idle.end(), [](const Idle& a, const Idle& b) { return a.level > b.level; });
  for (const Idle& one : idle) {
    if (one.own > CallPlaces::Crowded(limits.max_calls_per_peer) &&
        one.level > CallPlaces::Relieved(limits.max_calls_per_peer)) {
      End(one, "calls_of_peer", one.own, limits.max_calls_per_peer);
    } else if (too_many > 0) {
      End(one, "calls", all, limits.max_calls);
    } else {
      continue;
    }
    --too_many;
    ended_.fetch_add(1, std::memory_order_relaxed);
  }
}

}  // namespace normd::rpc
