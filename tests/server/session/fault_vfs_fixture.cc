#include "tests/server/session/fault_vfs_fixture.h"

#include <sqlite3.h>

#include <atomic>
#include <cstring>

namespace normd::session_test {

namespace {

struct Plan {
  std::atomic<Fault> fault{Fault::kEio};
  std::atomic<int64_t> n{0};
  std::atomic<bool> persistent{false};
  std::atomic<int64_t> count{0};
};

Plan& ThePlan() {
  static Plan plan;
  return plan;
}

sqlite3_vfs* System() { return sqlite3_vfs_find("unix"); }

enum class Operation { kRead, kWrite, kSync, kTruncate, kOpen };

bool CanFail(Fault fault, Operation operation) {
  switch (fault) {
    case Fault::kEio:
      return operation != Operation::kSync;
    case Fault::kEnospc:
    case Fault::kShortWrite:
      return operation == Operation::kWrite;
    case Fault::kFsync:
      return operation == Operation::kSync;
  }
  return false;
}

// Counts, and says whether this call is to fail.
bool Fails(Operation operation) {
  Plan& plan = ThePlan();
  if (!CanFail(plan.fault, operation)) return false;
  const int64_t count = ++plan.count;
  if (plan.n == 0) return false;
  return plan.persistent ? count >= plan.n : count == plan.n;
}

struct File {
  sqlite3_file base;
  sqlite3_file* real;  // behind this struct, in the same block
};

sqlite3_file* Real(sqlite3_file* file) { return reinterpret_cast<File*>(file)->real; }

int Close(sqlite3_file* file) { return Real(file)->pMethods->xClose(Real(file)); }

int Read(sqlite3_file* file, void* buffer, int size, sqlite3_int64 offset) {
  if (Fails(Operation::kRead)) return SQLITE_IOERR_READ;
  return Real(file)->pMethods->xRead(Real(file), buffer, size, offset);
}

int Write(sqlite3_file* file, const void* buffer, int size, sqlite3_int64 offset) {
  if (Fails(Operation::kWrite)) {
    const Fault fault = ThePlan().fault;
    if (fault == Fault::kShortWrite) Real(file)->pMethods->xWrite(Real(file), buffer, size / 2, offset);
    return fault == Fault::kEio ? SQLITE_IOERR_WRITE : SQLITE_FULL;
  }
  return Real(file)->pMethods->xWrite(Real(file), buffer, size, offset);
}

int Truncate(sqlite3_file* file, sqlite3_int64 size) {
  if (Fails(Operation::kTruncate)) return SQLITE_IOERR_TRUNCATE;
  return Real(file)->pMethods->xTruncate(Real(file), size);
}

int Sync(sqlite3_file* file, int flags) {
  if (Fails(Operation::kSync)) return SQLITE_IOERR_FSYNC;
  return Real(file)->pMethods->xSync(Real(file), flags);
}

int FileSize(sqlite3_file* file, sqlite3_int64* size) { return Real(file)->pMethods->xFileSize(Real(file), size); }
int Lock(sqlite3_file* file, int lock) { return Real(file)->pMethods->xLock(Real(file), lock); }
int Unlock(sqlite3_file* file, int lock) { return Real(file)->pMethods->xUnlock(Real(file), lock); }
int CheckReservedLock(sqlite3_file* file, int* result) {
  return Real(file)->pMethods->xCheckReservedLock(Real(file), result);
}
int FileControl(sqlite3_file* file, int operation, void* argument) {
  return Real(file)->pMethods->xFileControl(Real(file), operation, argument);
}
int SectorSize(sqlite3_file* file) { return Real(file)->pMethods->xSectorSize(Real(file)); }
int DeviceCharacteristics(sqlite3_file* file) { return Real(file)->pMethods->xDeviceCharacteristics(Real(file)); }
int ShmMap(sqlite3_file* file, int page, int size, int extend, void volatile** memory) {
  return Real(file)->pMethods->xShmMap(Real(file), page, size, extend, memory);
}
int ShmLock(sqlite3_file* file, int offset, int n, int flags) {
  return Real(file)->pMethods->xShmLock(Real(file), offset, n, flags);
}
void ShmBarrier(sqlite3_file* file) { Real(file)->pMethods->xShmBarrier(Real(file)); }
int ShmUnmap(sqlite3_file* file, int erase) { return Real(file)->pMethods->xShmUnmap(Real(file), erase); }

constexpr sqlite3_io_methods kMethods = {
    .iVersion = 2,
    .xClose = &Close,
    .xRead = &Read,
    .xWrite = &Write,
    .xTruncate = &Truncate,
    .xSync = &Sync,
    .xFileSize = &FileSize,
    .xLock = &Lock,
    .xUnlock = &Unlock,
    .xCheckReservedLock = &CheckReservedLock,
    .xFileControl = &FileControl,
    .xSectorSize = &SectorSize,
    .xDeviceCharacteristics = &DeviceCharacteristics,
    .xShmMap = &ShmMap,
    .xShmLock = &ShmLock,
    .xShmBarrier = &ShmBarrier,
    .xShmUnmap = &ShmUnmap,
    .xFetch = nullptr,
    .xUnfetch = nullptr,
};

int Open(sqlite3_vfs* /*vfs*/, const char* name, sqlite3_file* file, int flags, int* out_flags) {
  file->pMethods = nullptr;
  if (Fails(Operation::kOpen)) return SQLITE_CANTOPEN;
  auto* const ours = reinterpret_cast<File*>(file);
  ours->real = reinterpret_cast<sqlite3_file*>(ours + 1);
  const int code = System()->xOpen(System(), name, ours->real, flags, out_flags);
  if (ours->real->pMethods != nullptr) file->pMethods = &kMethods;
  return code;
}

}  // namespace

void RegisterFaultVfs() {
  static sqlite3_vfs vfs = [] {
    sqlite3_vfs copy = *System();
    copy.zName = kFaultVfsName;
    copy.szOsFile += static_cast<int>(sizeof(File));
    copy.pNext = nullptr;
    copy.xOpen = &Open;
    return copy;
  }();
  sqlite3_vfs_register(&vfs, /*makeDflt=*/0);
}

void PlanFault(Fault fault, int64_t n, bool persistent) {
  Plan& plan = ThePlan();
  plan.n = 0;
  plan.fault = fault;
  plan.persistent = persistent;
  plan.count = 0;
  plan.n = n;
}

bool FaultHappened() { return ThePlan().n > 0 && ThePlan().count >= ThePlan().n; }
int64_t FaultPoints() { return ThePlan().count; }

}  // namespace normd::session_test
