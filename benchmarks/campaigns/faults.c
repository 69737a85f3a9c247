/* Faults in calls that change files: the n-th call fails with an error, or a signal arrives just before it, or the
   clock goes back; all calls can be slow. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static volatile long turn, seen;
static int fault_error, fault_signal, lasting, armed;
static long delay, back; /* microseconds before each change; seconds by which the clock goes back */

void fault_arm(long at, int error, int number, int stays, long slow, long seconds) {
  turn = at; seen = 0; fault_error = error; fault_signal = number; lasting = stays;
  delay = slow; back = seconds; armed = 1;
}
long fault_disarm(void) { armed = 0; return seen; }

/* Returns 1 if this call fails. */
static int fault(void) {
  if (!armed) return 0;
  long now = ++seen;
  if (delay) usleep(delay);
  if (now != turn && !(lasting && now > turn)) return 0;
  if (fault_signal) {
    if (now == turn) kill(getpid(), fault_signal);
    return 0;
  }
  if (!fault_error) return 0;
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
ssize_t writev(int fd, const struct iovec *parts, int count) {
  return is_file(fd) && fault() ? -1 : NEXT(writev)(fd, parts, count);
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
  return is_file(fd) && fault() ? -1 : NEXT(pwrite)(fd, data, size, at);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
  return is_file(fd) && fault() ? -1 : NEXT(pwrite64)(fd, data, size, at);
}
int ftruncate(int fd, off_t size) { return fault() ? -1 : NEXT(ftruncate)(fd, size); }
int ftruncate64(int fd, off64_t size) { return fault() ? -1 : NEXT(ftruncate64)(fd, size); }
int fdatasync(int fd) { return fault() ? -1 : NEXT(fdatasync)(fd); }
int fsync(int fd) { return fault() ? -1 : NEXT(fsync)(fd); }
int rename(const char *from, const char *to) { return fault() ? -1 : NEXT(rename)(from, to); }
int unlink(const char *path) { return fault() ? -1 : NEXT(unlink)(path); }
int rmdir(const char *path) { return fault() ? -1 : NEXT(rmdir)(path); }
int mkdir(const char *path, mode_t mode) { return fault() ? -1 : NEXT(mkdir)(path, mode); }
int link(const char *from, const char *to) { return fault() ? -1 : NEXT(link)(from, to); }
int symlink(const char *from, const char *to) { return fault() ? -1 : NEXT(symlink)(from, to); }
int renameat(int from_folder, const char *from, int to_folder, const char *to) {
  return fault() ? -1 : NEXT(renameat)(from_folder, from, to_folder, to);
}
int unlinkat(int folder, const char *path, int flags) { return fault() ? -1 : NEXT(unlinkat)(folder, path, flags); }
int mkdirat(int folder, const char *path, mode_t mode) { return fault() ? -1 : NEXT(mkdirat)(folder, path, mode); }
int utimensat(int folder, const char *path, const struct timespec times[2], int flags) {
  return fault() ? -1 : NEXT(utimensat)(folder, path, times, flags);
}

int chmod(const char *path, mode_t mode) { return fault() ? -1 : NEXT(chmod)(path, mode); }
int fchmod(int fd, mode_t mode) { return fault() ? -1 : NEXT(fchmod)(fd, mode); }

static int writes(int flags) { return (flags & O_ACCMODE) != O_RDONLY; }
static int creates(int flags) { return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE; }

int open(const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  mode_t mode = creates(flags) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return writes(flags) && fault() ? -1 : NEXT(open)(path, flags, mode);
}
int open64(const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  mode_t mode = creates(flags) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return writes(flags) && fault() ? -1 : NEXT(open64)(path, flags, mode);
}
int openat(int folder, const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  mode_t mode = creates(flags) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return writes(flags) && fault() ? -1 : NEXT(openat)(folder, path, flags, mode);
}

int openat64(int folder, const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  mode_t mode = creates(flags) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return writes(flags) && fault() ? -1 : NEXT(openat64)(folder, path, flags, mode);
}

static long gone_back(void) { return armed && back && seen >= turn ? back : 0; }

int clock_gettime(clockid_t clock, struct timespec *now) {
  int code = NEXT(clock_gettime)(clock, now);
  if (!code && clock == CLOCK_REALTIME) now->tv_sec -= gone_back();
  return code;
}
int gettimeofday(struct timeval *now, void *zone) {
  int code = NEXT(gettimeofday)(now, zone);
  if (!code) now->tv_sec -= gone_back();
  return code;
}
time_t time(time_t *place) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (place) *place = now.tv_sec;
  return now.tv_sec;
}
