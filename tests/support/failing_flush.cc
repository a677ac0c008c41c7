// Loaded before normd (LD_PRELOAD): from the moment that the file $NORMD_FAIL_FLUSH exists, fsync and fdatasync fail,
// as those of a broken disk do. For tests/programs/normd_store_test.py.
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

int Flush(long call, int file) {
  const char* const trigger = getenv("NORMD_FAIL_FLUSH");
  if (trigger != nullptr && access(trigger, F_OK) == 0) {
    errno = EIO;
    return -1;
  }
  return static_cast<int>(syscall(call, file));
}

}  // namespace

extern "C" {
int fsync(int file) { return Flush(SYS_fsync, file); }
int fdatasync(int file) { return Flush(SYS_fdatasync, file); }
}
