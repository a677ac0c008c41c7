#include "proto/wire/crc32c.h"

#include <array>
#include <cstring>

namespace normd::wire {

namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // reflected

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table = {};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    table[byte] = crc;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kTable = MakeTable();

uint32_t ExtendByTable(uint32_t crc, std::string_view bytes) {
  for (const char byte : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<uint8_t>(byte)) & 0xff];
  return crc;
}

#ifdef __x86_64__
// The instruction takes 8 bytes in 3 cycles: a record of 4 KiB takes 0.5 us instead of 10.
__attribute__((target("sse4.2"))) uint32_t ExtendByInstruction(uint32_t crc, std::string_view bytes) {
  uint64_t wide = crc;
  while (bytes.size() >= sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof(word));
    wide = __builtin_ia32_crc32di(wide, word);
    bytes.remove_prefix(sizeof(word));
  }
  crc = static_cast<uint32_t>(wide);
  for (const char byte : bytes) crc = __builtin_ia32_crc32qi(crc, static_cast<uint8_t>(byte));
  return crc;
}

bool HasInstruction() { return __builtin_cpu_supports("sse4.2") != 0; }
#else
uint32_t ExtendByInstruction(uint32_t crc, std::string_view bytes) { return ExtendByTable(crc, bytes); }
bool HasInstruction() { return false; }
#endif

}  // namespace

uint32_t ExtendCrc32c(uint32_t crc, std::string_view bytes) {
  static const bool has_instruction = HasInstruction();
  return ~(has_instruction ? ExtendByInstruction(~crc, bytes) : ExtendByTable(~crc, bytes));
}

uint32_t Crc32c(std::string_view bytes) { return ExtendCrc32c(0, bytes); }

uint32_t Crc32cByTable(std::string_view bytes) { return ~ExtendByTable(~uint32_t{0}, bytes); }

}  // namespace normd::wire
