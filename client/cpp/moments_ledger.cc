#include "client/cpp/moments_ledger.h"

#include <algorithm>
#include <utility>

namespace normd::client {

void MergeRule::Merge(const SampleMoments& contribution, SampleMoments* state) const {
  state->Merge(max_count.has_value() ? contribution.Below(*max_count, *state) : contribution, decay);
}

MomentsLedger::MomentsLedger(KnownState known, MergeRule rule)
    : rule_(rule), known_(std::move(known)), pending_(SampleMoments::None(known_.samples.channels())) {}

SampleMoments MomentsLedger::View() const {
  SampleMoments view = known_.samples;
  if (sent_.has_value()) rule_.Merge(sent_->samples, &view);
  rule_.Merge(pending_, &view);
  return view;
}

void MomentsLedger::Add(const SampleMoments& samples) { pending_.Merge(samples, rule_.decay); }

const MomentsLedger::Contribution* MomentsLedger::Take(uint64_t least_sequence) {
  if (!sent_.has_value()) {
    if (pending_.empty()) return nullptr;
    const size_t channels = pending_.channels();
    last_sequence_ = std::max(last_sequence_ + 1, least_sequence);
    sent_ = {.samples = std::exchange(pending_, SampleMoments::None(channels)), .sequence = last_sequence_};
  }
  return &*sent_;
}

void MomentsLedger::Acknowledge(std::optional<KnownState> state) {
  const Contribution sent = *std::exchange(sent_, std::nullopt);
  if (state.has_value()) {
    known_ = *std::move(state);
  } else {
    rule_.Merge(sent.samples, &known_.samples);
    known_.digest.clear();
  }
  std::optional<KnownState> newer = std::exchange(newer_, std::nullopt);
  if (newer.has_value()) See(*std::move(newer));
}

void MomentsLedger::See(KnownState state) {
  if (sent_.has_value()) {
    newer_ = std::move(state);
    return;
  }
  // The same version again may bring the digest that a reply to a contribution does not have.
  const bool adds_digest = state.version == known_.version && known_.digest.empty();
  if (state.version > known_.version || adds_digest) known_ = std::move(state);
}

}  // namespace normd::client
