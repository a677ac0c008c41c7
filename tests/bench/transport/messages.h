// What the clients send to each service, in the same bytes to both transports.
#ifndef NORMD_TESTS_BENCH_TRANSPORT_MESSAGES_H_
#define NORMD_TESTS_BENCH_TRANSPORT_MESSAGES_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "tests/bench/datapath/driver.h"

namespace normd::bench {

// Method and request for "echo", a message of `bytes`, or for "normd", RMSNorm of a tensor of `bytes` in rows of 1,024
// f32 or in one shorter row. Without channels.
Target TargetOf(std::string_view service, bool stream, int64_t bytes);

// "4 KiB", "64 B"
std::string SizeText(int64_t bytes);

}  // namespace normd::bench

#endif  // NORMD_TESTS_BENCH_TRANSPORT_MESSAGES_H_
