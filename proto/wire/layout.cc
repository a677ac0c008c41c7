#include "proto/wire/layout.h"

namespace normd::wire {
namespace {

using Field = MessageLayout::Field;

constexpr Field kTensorFields[] = {{15, nullptr}};
constexpr MessageLayout kTensor = {kTensorFields};
constexpr Field kMomentsFields[] = {{1, &kTensor}, {2, &kTensor}, {3, &kTensor},
                                    {4, &kTensor}, {5, &kTensor}, {6, &kTensor}};
constexpr MessageLayout kMoments = {kMomentsFields};
constexpr Field kRunningStateFields[] = {{1, &kTensor}, {2, &kTensor}, {3, &kTensor}, {5, &kTensor},
                                         {6, &kTensor}, {7, &kTensor}, {8, &kTensor}};
constexpr MessageLayout kRunningState = {kRunningStateFields};
constexpr Field kStateResultFields[] = {{10, &kRunningState}};
constexpr MessageLayout kStateResult = {kStateResultFields};
constexpr Field kParametersFields[] = {{1, &kTensor}, {2, &kTensor}, {3, &kTensor}, {4, &kTensor}};
constexpr MessageLayout kParameters = {kParametersFields};
constexpr Field kResidualFields[] = {{1, &kTensor}};
constexpr MessageLayout kResidual = {kResidualFields};
constexpr Field kOutputFields[] = {{2, &kMoments}, {15, &kTensor}};
constexpr MessageLayout kOutput = {kOutputFields};
constexpr Field kChunkFields[] = {{2, nullptr}};
constexpr MessageLayout kChunk = {kChunkFields};

constexpr Field kNormalizeRequestFields[] = {{4, &kParameters}, {5, &kResidual}, {6, &kTensor}, {15, &kTensor}};
constexpr Field kNormalizeResponseFields[] = {{2, &kStateResult}, {15, &kOutput}};
constexpr Field kDefaultsFields[] = {{1, &kNormalizeRequest}};
constexpr MessageLayout kDefaults = {kDefaultsFields};
constexpr Field kBatchItemResultFields[] = {{15, &kNormalizeResponse}};
constexpr MessageLayout kBatchItemResult = {kBatchItemResultFields};
constexpr Field kBatchNormalizeRequestFields[] = {{1, &kNormalizeRequest}};
constexpr Field kBatchNormalizeResponseFields[] = {{1, &kBatchItemResult}};
constexpr Field kStreamRequestFields[] = {{2, &kDefaults}, {3, &kChunk}, {15, &kNormalizeRequest}};
constexpr Field kStreamResponseFields[] = {{3, &kChunk}, {15, &kNormalizeResponse}};
constexpr Field kComputeMomentsRequestFields[] = {{6, &kTensor}, {15, &kTensor}};
constexpr Field kComputeMomentsResponseFields[] = {{15, &kMoments}};

}  // namespace

constexpr MessageLayout kNormalizeRequest = {kNormalizeRequestFields};
constexpr MessageLayout kNormalizeResponse = {kNormalizeResponseFields};
constexpr MessageLayout kBatchNormalizeRequest = {kBatchNormalizeRequestFields};
constexpr MessageLayout kBatchNormalizeResponse = {kBatchNormalizeResponseFields};
constexpr MessageLayout kStreamRequest = {kStreamRequestFields};
constexpr MessageLayout kStreamResponse = {kStreamResponseFields};
constexpr MessageLayout kComputeMomentsRequest = {kComputeMomentsRequestFields};
constexpr MessageLayout kComputeMomentsResponse = {kComputeMomentsResponseFields};

}  // namespace normd::wire
