/* The limit of a replay: the driver's launch in a loop, with nothing around it.
 * Each function returns the nanoseconds it took; minus the driver's code if a call fails. */
#include <time.h>

typedef int (*launch_fn)(void *executable, void *stream);
typedef int (*synchronize_fn)(void *stream);
typedef int (*set_fn)(void *executable, void *node, void *parameters, void *context);

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

double loop(launch_fn launch, void *executable, void *stream, long rounds)
{
    double begin = now();
    for (long i = 0; i < rounds; i++) {
        int code = launch(executable, stream);
        if (code)
            return -code;
    }
    return now() - begin;
}

/* Every launch is waited for. */
double loop_synchronized(launch_fn launch, synchronize_fn synchronize, void *executable, void *stream, long rounds)
{
    double begin = now();
    for (long i = 0; i < rounds; i++) {
        int code = launch(executable, stream);
        if (!code)
            code = synchronize(stream);
        if (code)
            return -code;
    }
    return now() - begin;
}

/* Before every launch, a node is told to read elsewhere, at two addresses in turn, or at one if they are the same. */
double loop_set(launch_fn launch, set_fn set, void *executable, void *stream, void *node, void *parameters,
                void *context, void **cell, void **addresses, long rounds)
{
    double begin = now();
    for (long i = 0; i < rounds; i++) {
        *cell = addresses[i % 2];
        int code = set(executable, node, parameters, context);
        if (!code)
            code = launch(executable, stream);
        if (code)
            return -code;
    }
    return now() - begin;
}

/* Several executables, each on its own stream, in turn; `first` is the one to begin with. */
double loop_over(launch_fn launch, void **executables, void **streams, long count, long first, long rounds)
{
    double begin = now();
    for (long i = 0; i < rounds; i++) {
        int code = launch(executables[first], streams[first]);
        if (code)
            return -code;
        first = first + 1 < count ? first + 1 : 0;
    }
    return now() - begin;
}
