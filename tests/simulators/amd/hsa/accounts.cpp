/* What was done, and what was asked for that is not there. */
#include "library.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

static std::atomic<uint64_t> launches, unknown_kernels, unknown_calls;

/* Say it once, and note it in the file that SOFTWARE_HSA_UNKNOWN names, if any, without delay: the process
   may not end well. */
static void note(const char *what) {
    static auto &mutex = *new std::mutex;
    static auto &noted = *new std::set<std::string>;
    std::lock_guard lock(mutex);
    if (!noted.insert(what).second) return;
    fprintf(stderr, "software HSA: there is no %s\n", what);
    const char *path = getenv("SOFTWARE_HSA_UNKNOWN");
    int file = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
    if (file < 0) return;
    dprintf(file, "%s\n", what);
    close(file);
}

void count_launch() { launches++; }

void count_unknown_kernel(const char *name) {
    char what[256];
    snprintf(what, sizeof what, "twin of kernel %s", name);
    unknown_kernels++;
    note(what);
}

hsa_status_t unknown(const char *format, ...) {
    char what[256];
    va_list values;
    va_start(values, format);
    vsnprintf(what, sizeof what, format, values);
    va_end(values);
    unknown_calls++;
    note(what);
    return HSA_STATUS_ERROR;
}

/* What the functions answer that AMD's runtime imports and this library doesn't have. */
extern "C" int software_hsa_unknown_call(const char *name) { return unknown("function %s", name); }

API uint64_t software_hsa_launches() { return launches; }
API uint64_t software_hsa_unknown_kernels() { return unknown_kernels; }
API uint64_t software_hsa_unknown_calls() { return unknown_calls; }
