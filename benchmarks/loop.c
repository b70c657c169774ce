/* The limit of a replay: the driver's launch in a loop, with nothing around it. */
#include <time.h>

typedef int (*launch_fn)(void *executable, void *stream);

/* Nanoseconds for `rounds` launches; minus the driver's code if one fails. */
double loop(launch_fn launch, void *executable, void *stream, long rounds)
{
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (long i = 0; i < rounds; i++) {
        int code = launch(executable, stream);
        if (code)
            return -code;
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    return (end.tv_sec - begin.tv_sec) * 1e9 + (end.tv_nsec - begin.tv_nsec);
}
