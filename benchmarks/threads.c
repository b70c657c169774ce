/* The limit of replays from several threads: each in a loop over the driver's launch, with an executable and
 * a stream of its own. */
#include <pthread.h>
#include <time.h>

enum { MOST = 64 };

typedef int (*launch_fn)(void *executable, void *stream);

struct worker {
    pthread_t thread;
    pthread_barrier_t *start;
    launch_fn launch;
    void *executable, *stream;
    long rounds;
    double begin, end;
    int code;
};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static void *work(void *argument)
{
    struct worker *self = argument;
    pthread_barrier_wait(self->start);
    self->begin = now();
    for (long i = 0; i < self->rounds && !self->code; i++)
        self->code = self->launch(self->executable, self->stream);
    self->end = now();
    return NULL;
}

/* Nanoseconds from the first thread's begin to the last one's end; minus the driver's code if one fails. */
double loop_in_threads(launch_fn launch, void **executables, void **streams, int count, long rounds)
{
    struct worker workers[MOST];
    pthread_barrier_t start;
    double begin = 0, end = 0;
    int code = 0;
    if (count < 1 || count > MOST)
        return -1;
    pthread_barrier_init(&start, NULL, count);
    for (int i = 0; i < count; i++) {
        workers[i] = (struct worker){.start = &start, .launch = launch, .executable = executables[i],
                                     .stream = streams[i], .rounds = rounds};
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
            __builtin_trap(); /* the others would wait for ever */
    }
    for (int i = 0; i < count; i++) {
        pthread_join(workers[i].thread, NULL);
        if (workers[i].code)
            code = workers[i].code;
        if (i == 0 || workers[i].begin < begin)
            begin = workers[i].begin;
        if (workers[i].end > end)
            end = workers[i].end;
    }
    pthread_barrier_destroy(&start);
    return code ? -code : end - begin;
}
