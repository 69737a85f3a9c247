/* Faults in calls that change files: the n-th call fails with an error, or a signal arrives just before it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static volatile long turn, seen;
static int fault_error, fault_signal, lasting, armed;

void fault_arm(long at, int error, int number, int stays) {
  turn = at; seen = 0; fault_error = error; fault_signal = number; lasting = stays; armed = 1;
}
long fault_disarm(void) { armed = 0; return seen; }

/* Returns 1 if this call fails. */
static int fault(void) {
  if (!armed) return 0;
  long now = ++seen;
  if (now != turn && !(lasting && now > turn)) return 0;
  if (fault_signal) {
    if (now == turn) kill(getpid(), fault_signal);
    return 0;
  }
  errno = fault_error;
  return 1;
}
static int is_file(int fd) {
  struct stat found;
  return armed && fd > 2 && fstat(fd, &found) == 0 && S_ISREG(found.st_mode);
}
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *data, size_t size) {
  static __typeof__(&write) next;
  if (!next) next = NEXT(write);
  return is_file(fd) && fault() ? -1 : next(fd, data, size);
}
ssize_t sendfile(int to, int from, off_t *offset, size_t size) {
  return fault() ? -1 : NEXT(sendfile)(to, from, offset, size);
}
ssize_t sendfile64(int to, int from, off64_t *offset, size_t size) {
  return fault() ? -1 : NEXT(sendfile64)(to, from, offset, size);
}
ssize_t copy_file_range(int from, off64_t *at, int to, off64_t *where, size_t size, unsigned flags) {
  return fault() ? -1 : NEXT(copy_file_range)(from, at, to, where, size, flags);
}
int fsync(int fd) { return fault() ? -1 : NEXT(fsync)(fd); }
int rename(const char *from, const char *to) { return fault() ? -1 : NEXT(rename)(from, to); }
int unlink(const char *path) { return fault() ? -1 : NEXT(unlink)(path); }
int rmdir(const char *path) { return fault() ? -1 : NEXT(rmdir)(path); }
int mkdir(const char *path, mode_t mode) { return fault() ? -1 : NEXT(mkdir)(path, mode); }
int link(const char *from, const char *to) { return fault() ? -1 : NEXT(link)(from, to); }
int symlink(const char *from, const char *to) { return fault() ? -1 : NEXT(symlink)(from, to); }

static int writes(int flags) { return (flags & O_ACCMODE) != O_RDONLY; }

int open(const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return writes(flags) && fault() ? -1 : NEXT(open)(path, flags, mode);
}
int open64(const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return writes(flags) && fault() ? -1 : NEXT(open64)(path, flags, mode);
}
