/* Capture: the rules, as an H200 with driver 580 answers them (docs/driver.md, test_driver_rules.py). */
#include <stdlib.h>

#include "graphs.h"

static struct capture *captures; /* that are not over */
static _Thread_local enum capture_mode thread_mode = GLOBAL;

size_t captures_live(void) {
    size_t count = 0;
    for (struct capture *each = captures; each; each = each->next) count++;
    return count;
}

void capture_break(struct capture *capture) {
    if (capture->status == CAPTURE_ACTIVE) capture->status = CAPTURE_BROKEN;
}

void capture_release(struct capture *capture) {
    if (--capture->references == 0) free(capture);
}

void capture_end(struct capture *capture, bool keep) {
    struct capture **place = &captures;
    while (*place != capture) place = &(*place)->next;
    *place = capture->next;
    capture->status = CAPTURE_OVER;
    capture->graph->capturing = false;
    if (!keep) {
        struct graph *graph = capture->graph;
        bool body = graph->around;
        while (graph->around) graph = graph->around;
        graph->ruined |= body;
        if (!capture->lent) graph_destroy(capture->graph);
    }
    for (struct stream *each = streams; each; each = each->next)
        if (each->capture == capture) {
            each->capture = NULL;
            each->frontier.count = 0;
            capture->references--;
        }
    capture_release(capture); /* the list's reference, so it was not the last until now */
}

bool capture_forbids(void) {
    bool forbidden = false;
    if (thread_mode == RELAXED) return false;
    for (struct capture *each = captures; each; each = each->next) {
        bool mine = each->thread == thread_number() && each->mode != RELAXED;
        if (mine || (thread_mode == GLOBAL && each->mode == GLOBAL)) {
            capture_break(each);
            forbidden = true;
        }
    }
    return forbidden;
}

bool capture_implied(const struct context *context) {
    bool implied = false;
    for (struct stream *each = streams; each; each = each->next)
        if (each->context == context && each->capture && !(each->flags & NON_BLOCKING)) {
            capture_break(each->capture);
            implied = true;
        }
    return implied;
}

bool capture_break_all(const struct context *context) {
    bool any = false;
    for (struct stream *each = streams; each; each = each->next)
        if (each->context == context && each->capture) {
            capture_break(each->capture);
            any = true;
        }
    return any;
}

CUresult enqueue(handle which, const struct work *work) {
    struct stream *stream;
    TRY(stream_of(which, &stream)); /* one that was created brings its context */
    if (stream->legacy && capture_implied(stream->context)) return CAPTURE_IMPLICIT;
    if (!stream->capture) {
        submit(stream, work, NULL, NULL);
        return SUCCESS;
    }
    if (stream->capture->status != CAPTURE_ACTIVE) return CAPTURE_INVALIDATED;
    struct work recorded = *work;
    recorded.context = stream->context->handle;
    struct node *node = graph_add(stream->capture->graph, &recorded, &stream->frontier);
    stream->frontier.count = 0;
    nodes_add(&stream->frontier, node);
    return SUCCESS;
}

/* Into a graph that is there already, or a new one. */
static CUresult begin(handle which, int mode, struct graph *graph, struct stream **begun) {
    static unsigned long long last_id;
    struct stream *stream;
    if (mode < GLOBAL || mode > RELAXED) return INVALID_VALUE;
    TRY(stream_of(which, &stream));
    if (stream->legacy) return capture_implied(stream->context) ? CAPTURE_IMPLICIT : CAPTURE_UNSUPPORTED;
    if (stream->capture) return ILLEGAL_STATE;
    struct capture *capture = calloc(1, sizeof *capture);
    *capture = (struct capture){.references = 2, /* the stream's and the list's */
                                .id = ++last_id,
                                .thread = thread_number(),
                                .mode = mode,
                                .status = CAPTURE_ACTIVE,
                                .origin = stream,
                                .graph = graph ? graph : graph_new(true),
                                .lent = graph,
                                .next = captures};
    capture->graph->capturing = true;
    captures = capture;
    stream->capture = capture;
    *begun = stream;
    return SUCCESS;
}

API(2, 0, cuStreamBeginCapture, 10010, cuStreamBeginCapture_v2, handle, which, int, mode) {
    struct stream *stream;
    return begin(which, mode, NULL, &stream);
}

API(6, 0, cuStreamBeginCaptureToGraph, 12030, cuStreamBeginCaptureToGraph, handle, which, handle, into,
    const handle *, after, const uint64_t *, data, size_t, count, int, mode) {
    struct graph *graph = handle_get(into, GRAPH);
    struct nodes nodes = {0};
    struct stream *stream;
    if (!graph || graph->capturing || !no_data(data, count)) return INVALID_VALUE;
    CUresult code = graph_nodes(graph, after, count, &nodes) ? begin(which, mode, graph, &stream) : INVALID_VALUE;
    if (code == SUCCESS) nodes_set(&stream->frontier, &nodes);
    nodes_free(&nodes);
    return code;
}

static CUresult judge(struct capture *capture) {
    if (verdict != SUCCESS) return verdict;
    if (capture->status != CAPTURE_ACTIVE) return CAPTURE_INVALIDATED;
    if (!graph_reaches_all(capture->graph, &capture->origin->frontier)) return CAPTURE_UNJOINED;
    return capture->mode == RELAXED || capture->thread == thread_number() ? SUCCESS : CAPTURE_WRONG_THREAD;
}

/* Whatever it answers, but for a stream in which no capture was begun, the capture is over. */
API(2, CONCLUDES, cuStreamEndCapture, 10000, cuStreamEndCapture, handle, which, handle *, answer) {
    struct stream *stream;
    *answer = 0;
    TRY(stream_of(which, &stream));
    struct capture *capture = stream->capture;
    if (!capture) return verdict != SUCCESS ? verdict : ILLEGAL_STATE;
    if (capture->origin != stream) {
        capture_break(capture);
        return CAPTURE_UNMATCHED;
    }
    CUresult code = judge(capture);
    if (code == SUCCESS) *answer = capture->graph->handle;
    capture_end(capture, code == SUCCESS);
    return code;
}

API(1, 0, cuThreadExchangeStreamCaptureMode, 10010, cuThreadExchangeStreamCaptureMode, int *, mode) {
    if (*mode < GLOBAL || *mode > RELAXED) return INVALID_VALUE;
    enum capture_mode before = thread_mode;
    thread_mode = (enum capture_mode)*mode;
    *mode = (int)before;
    return SUCCESS;
}
