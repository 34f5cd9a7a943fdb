/* Faults from outside: a library that is loaded before the C library and counts the calls that change what
 * stands below one folder. What happens at call number SHIM_AT is SHIM_DOES:
 *
 *   kill    the process gets SIGKILL before the call
 *   torn    the process gets SIGKILL after half of a write; before any other call
 *   short   half of a write is made, and reported as half; so is every later one
 *   error   the call fails with the errno SHIM_ERRNO
 *
 * Each call counted is a line in the file SHIM_LOG: its number and its name. SHIM_BELOW is the folder.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int counted;

static int is_below(const char *path) {
    const char *below = getenv("SHIM_BELOW");
    size_t length = below ? strlen(below) : 0;
    return length && strncmp(path, below, length) == 0 && (path[length] == '/' || !path[length]);
}

static int is_open_below(int descriptor) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    return is_below(path);
}

static int is_named_below(int folder, const char *path) {
    return path[0] == '/' ? is_below(path) : folder != AT_FDCWD && is_open_below(folder);
}

static void note(int number, const char *name) {
    char line[64];
    const char *log = getenv("SHIM_LOG");
    int file = log ? (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_APPEND | O_CREAT, 0644) : -1;
    if (file < 0) return;
    int size = snprintf(line, sizeof line, "%d %s\n", number, name);
    syscall(SYS_write, file, line, size);
    syscall(SYS_close, file);
}

static int does(const char *what) {
    const char *wanted = getenv("SHIM_DOES");
    return wanted && strcmp(wanted, what) == 0;
}

static int number_from(const char *variable) {
    const char *text = getenv(variable);
    return text ? atoi(text) : 0;
}

static void die(void) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

/* Count a call, and return whether it fails. */
static int fails(const char *name) {
    int number = __atomic_add_fetch(&counted, 1, __ATOMIC_SEQ_CST);
    note(number, name);
    if (number != number_from("SHIM_AT")) return 0;
    if (does("kill") || does("torn")) die();
    if (!does("error")) return 0;
    errno = number_from("SHIM_ERRNO");
    return 1;
}

ssize_t write(int descriptor, const void *bytes, size_t size) {
    if (!is_open_below(descriptor)) return REAL(write)(descriptor, bytes, size);
    int next = __atomic_load_n(&counted, __ATOMIC_SEQ_CST) + 1, at = number_from("SHIM_AT");
    size_t half = size > 1 ? size / 2 : size;
    if (does("torn") && next == at) REAL(write)(descriptor, bytes, half);
    if (fails("write")) return -1;
    return REAL(write)(descriptor, bytes, does("short") && next >= at ? half : size);
}

#define BY_DESCRIPTOR(name)                                                    \
    int name(int descriptor) {                                                 \
        if (is_open_below(descriptor) && fails(#name)) return -1;              \
        return REAL(name)(descriptor);                                         \
    }

#define BY_SIZE(name, type)                                                    \
    int name(int descriptor, type size) {                                      \
        if (is_open_below(descriptor) && fails(#name)) return -1;              \
        return REAL(name)(descriptor, size);                                   \
    }

BY_DESCRIPTOR(fsync)
BY_DESCRIPTOR(fdatasync)
BY_DESCRIPTOR(syncfs)
BY_SIZE(ftruncate, off_t)
BY_SIZE(ftruncate64, off64_t)

int renameat(int old_folder, const char *old, int folder, const char *name) {
    if (is_named_below(folder, name) && fails("renameat")) return -1;
    return REAL(renameat)(old_folder, old, folder, name);
}

int linkat(int old_folder, const char *old, int folder, const char *name, int flags) {
    if (is_named_below(folder, name) && fails("linkat")) return -1;
    return REAL(linkat)(old_folder, old, folder, name, flags);
}

int unlinkat(int folder, const char *name, int flags) {
    if (is_named_below(folder, name) && fails("unlinkat")) return -1;
    return REAL(unlinkat)(folder, name, flags);
}

int mkdirat(int folder, const char *name, mode_t mode) {
    if (is_named_below(folder, name) && fails("mkdirat")) return -1;
    return REAL(mkdirat)(folder, name, mode);
}

#define MAKING(name)                                                           \
    int name(int folder, const char *path, int flags, ...) {                   \
        va_list more;                                                          \
        va_start(more, flags);                                                 \
        mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;              \
        va_end(more);                                                          \
        if (flags & O_CREAT && is_named_below(folder, path) && fails(#name)) return -1; \
        return REAL(name)(folder, path, flags, mode);                          \
    }

MAKING(openat)
MAKING(openat64)

int rename(const char *old, const char *name) {
    if (is_below(name) && fails("rename")) return -1;
    return REAL(rename)(old, name);
}

int unlink(const char *name) {
    if (is_below(name) && fails("unlink")) return -1;
    return REAL(unlink)(name);
}

int mkdir(const char *name, mode_t mode) {
    if (is_below(name) && fails("mkdir")) return -1;
    return REAL(mkdir)(name, mode);
}
