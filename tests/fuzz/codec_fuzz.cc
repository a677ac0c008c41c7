// Any bytes as any message of tensors, cut anywhere: what the walker takes is what the generated parser sees.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/codec_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  normd::fuzz::CheckCodec(data, size);
  return 0;
}
