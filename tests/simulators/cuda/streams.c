/* Streams: queues, each with a thread that works it off. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "graphs.h"

struct operation {
    struct operation *next;
    struct marker *done;
    struct work *work;
    struct plan *plan;
    size_t after_count;
    struct marker *after[];
};

struct queue {
    struct context *context;
    struct operation *first, **end;
    pthread_cond_t more;
    bool working, closed;
};

struct stream *streams;

/* ---- markers ------------------------------------------------------------------------------------- */

struct marker *marker_keep(struct marker *marker) {
    if (marker) marker->references++;
    return marker;
}

void marker_release(struct marker *marker) {
    if (marker && --marker->references == 0) free(marker);
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

void marker_reach(struct marker *marker) {
    marker->done = true;
    marker->time = now();
    driver_progress();
}

void marker_wait(struct marker *marker) {
    marker_keep(marker);
    while (marker && !marker->done) driver_wait();
    marker_release(marker);
}

/* ---- queues -------------------------------------------------------------------------------------- */

static void run(struct operation *operation) {
    if (operation->work) work_run(operation->work);
    if (operation->plan) plan_run(operation->plan);
}

static void finish(struct queue *queue, struct operation *operation) {
    queue->first = operation->next;
    if (!queue->first) queue->end = &queue->first;
    queue->context->pending--;
    marker_reach(operation->done);
    marker_release(operation->done);
    for (size_t i = 0; i < operation->after_count; i++) marker_release(operation->after[i]);
    if (operation->plan) plan_release(operation->plan);
    if (operation->work && operation->work->kind == WORK_FREE) allocation_release(operation->work->memory);
    free(operation->work);
    free(operation);
}

static void *work_off(void *argument) {
    struct queue *queue = argument;
    driver_lock();
    for (;;) {
        while (!queue->first && !queue->closed) pthread_cond_wait(&queue->more, &driver_mutex);
        struct operation *operation = queue->first;
        if (!operation) break;
        for (size_t i = 0; i < operation->after_count; i++)
            while (!operation->after[i]->done) driver_wait();
        driver_unlock();
        run(operation);
        driver_lock();
        finish(queue, operation);
    }
    pthread_cond_destroy(&queue->more);
    free(queue);
    driver_unlock();
    return NULL;
}

static void start(struct queue *queue) {
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the program's own threads */
    if (pthread_create(&thread, NULL, work_off, queue)) abort();
    pthread_detach(thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    queue->working = true;
}

static void close_queue(struct queue *queue) {
    if (!queue->working) {
        pthread_cond_destroy(&queue->more);
        free(queue);
        return;
    }
    queue->closed = true; /* what it holds is still carried out */
    pthread_cond_signal(&queue->more);
}

/* Whether work on `stream` waits for that on `other`: the legacy stream and the blocking ones do so. */
static bool implicitly_after(const struct stream *stream, const struct stream *other) {
    return stream != other && stream->context == other->context && stream->legacy != other->legacy &&
           !((stream->flags | other->flags) & NON_BLOCKING);
}

struct marker *submit(struct stream *stream, const struct work *work, struct plan *plan,
    struct marker *after) {
    size_t count = after != NULL, i = 0;
    for (struct stream *each = streams; each; each = each->next)
        count += each->last && !each->last->done && implicitly_after(stream, each);
    struct operation *operation = calloc(1, sizeof *operation + count * sizeof *operation->after);
    if (after) operation->after[i++] = marker_keep(after);
    for (struct stream *each = streams; each; each = each->next)
        if (each->last && !each->last->done && implicitly_after(stream, each))
            operation->after[i++] = marker_keep(each->last);
    operation->after_count = count;
    operation->plan = plan;
    if (work) {
        operation->work = malloc(sizeof *work);
        *operation->work = *work;
    }
    operation->done = calloc(1, sizeof *operation->done);
    operation->done->references = 2; /* the operation's and the stream's */
    marker_release(stream->last);
    stream->last = operation->done;
    struct queue *queue = stream->queue;
    *queue->end = operation;
    queue->end = &operation->next;
    stream->context->pending++;
    if (!queue->working) start(queue);
    pthread_cond_signal(&queue->more);
    return operation->done;
}

bool stream_is_done(const struct stream *stream) {
    if (stream->last && !stream->last->done) return false;
    if (stream->legacy)
        for (struct stream *each = streams; each; each = each->next)
            if (each->last && !each->last->done && implicitly_after(stream, each)) return false;
    return true;
}

/* ---- streams ------------------------------------------------------------------------------------- */

struct stream *stream_new(struct context *context, unsigned flags, int priority) {
    static unsigned long long last_id;
    struct stream *stream = calloc(1, sizeof *stream);
    *stream = (struct stream){.context = context, .flags = flags, .priority = priority, .id = ++last_id};
    stream->queue = calloc(1, sizeof *stream->queue);
    stream->queue->context = context;
    stream->queue->end = &stream->queue->first;
    pthread_cond_init(&stream->queue->more, NULL);
    stream->next = streams;
    streams = stream;
    return stream;
}

void stream_free(struct stream *stream) {
    struct capture *capture = stream->capture;
    if (capture && capture->origin == stream) {
        capture_end(capture, false);
    } else if (capture) { /* goes on; what the stream did in it is unjoined for ever */
        capture_release(capture);
    }
    struct stream **place = &streams;
    while (*place != stream) place = &(*place)->next;
    *place = stream->next;
    if (stream->handle) handle_drop(stream->handle);
    close_queue(stream->queue);
    marker_release(stream->last);
    nodes_free(&stream->frontier);
    free(stream);
}

void stream_forget_context(struct context *context) {
    for (struct stream *each = streams, *next; each; each = next) {
        next = each->next;
        if (each->context == context) stream_free(each);
    }
}

/* ---- the per-thread default streams -------------------------------------------------------------- */

static pthread_key_t own_key;

static void thread_ends(void *mine) {
    if (driver_forked()) return; /* the streams are the parent's */
    driver_lock();
    for (struct stream *each = streams, *next; each; each = next) {
        next = each->next;
        if (each->thread == mine) stream_free(each);
    }
    driver_unlock();
    free(mine);
}

__attribute__((constructor)) static void make_key(void) { pthread_key_create(&own_key, thread_ends); }

static struct stream *per_thread(struct context *context) {
    void *mine = pthread_getspecific(own_key);
    if (!mine) pthread_setspecific(own_key, mine = malloc(1));
    for (struct stream *each = streams; each; each = each->next)
        if (each->thread == mine && each->context == context) return each;
    struct stream *stream = stream_new(context, 0, 0);
    stream->thread = mine;
    return stream;
}

CUresult stream_of(handle which, struct stream **stream) {
    if (which > PER_THREAD_STREAM) {
        *stream = handle_get(which, STREAM);
        return *stream ? SUCCESS : INVALID_HANDLE;
    }
    struct context *context;
    TRY(context_current(&context));
    *stream = which == PER_THREAD_STREAM ? per_thread(context) : context->legacy;
    return SUCCESS;
}

CUresult stream_not_capturing(handle which, struct stream **stream) {
    TRY(stream_of(which, stream));
    if ((*stream)->legacy && capture_implied((*stream)->context)) return CAPTURE_IMPLICIT;
    if (!(*stream)->capture) return SUCCESS;
    capture_break((*stream)->capture);
    return CAPTURE_UNSUPPORTED;
}
