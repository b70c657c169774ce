/* What a stream's capture has come to, and how that is changed. */
#include <stdlib.h>
#include <string.h>

#include "graphs.h"

static enum capture_status status_of(const struct stream *stream) {
    return stream->capture ? stream->capture->status : CAPTURE_NONE;
}

/* Asking the legacy stream breaks nothing, but is refused when work on it would break something. */
static CUresult observe(handle which, struct stream **stream) {
    TRY(stream_of(which, stream));
    if ((*stream)->legacy)
        for (struct stream *each = streams; each; each = each->next)
            if (each->context == (*stream)->context && each->capture && !(each->flags & NON_BLOCKING))
                return CAPTURE_IMPLICIT;
    return SUCCESS;
}

API(2, 0, cuStreamIsCapturing, 10000, cuStreamIsCapturing, handle, which, int *, status) {
    struct stream *stream;
    TRY(observe(which, &stream));
    *status = (int)status_of(stream);
    return SUCCESS;
}

static CUresult info(handle which, int *status, uint64_t *id, handle *graph, const handle **nodes,
    size_t *count, const uint64_t **edges) {
    static _Thread_local handle *dependencies;
    static _Thread_local uint64_t *zeros;
    struct stream *stream;
    TRY(observe(which, &stream));
    *status = (int)status_of(stream);
    if (*status != CAPTURE_ACTIVE) return SUCCESS;
    if (id) *id = stream->capture->id;
    if (graph) *graph = stream->capture->graph->handle;
    if (count) *count = stream->frontier.count;
    dependencies = realloc(dependencies, (stream->frontier.count + 1) * sizeof *dependencies);
    for (size_t i = 0; i < stream->frontier.count; i++) dependencies[i] = stream->frontier.items[i]->handle;
    if (nodes) *nodes = dependencies;
    zeros = realloc(zeros, (stream->frontier.count + 1) * sizeof *zeros);
    memset(zeros, 0, (stream->frontier.count + 1) * sizeof *zeros);
    if (edges) *edges = zeros;
    return SUCCESS;
}

API(6, 0, cuStreamGetCaptureInfo, 11030, cuStreamGetCaptureInfo_v2, handle, which, int *, status,
    uint64_t *, id, handle *, graph, const handle **, nodes, size_t *, count) {
    return info(which, status, id, graph, nodes, count, NULL);
}

API(7, 0, cuStreamGetCaptureInfo, 12030, cuStreamGetCaptureInfo_v3, handle, which, int *, status,
    uint64_t *, id, handle *, graph, const handle **, nodes, const uint64_t **, edges, size_t *, count) {
    return info(which, status, id, graph, nodes, count, edges);
}

/* ---- what the next node will depend on ------------------------------------------------------------ */

static CUresult update(handle which, const handle *handles, size_t count, unsigned flags) {
    enum { ADD, SET };
    struct stream *stream;
    struct nodes nodes = {0};
    TRY(stream_of(which, &stream));
    if (!stream->capture) return ILLEGAL_STATE;
    if (stream->capture->status != CAPTURE_ACTIVE) return CAPTURE_INVALIDATED;
    if (flags != ADD && flags != SET) return INVALID_VALUE;
    bool good = graph_nodes(stream->capture->graph, handles, count, &nodes);
    for (size_t i = 0; good && flags == SET && i < stream->frontier.count; i++)
        stream->frontier.items[i]->forgotten = true;
    if (good && flags == SET) stream->frontier.count = 0;
    for (size_t i = 0; good && i < nodes.count; i++)
        if (!nodes_have(&stream->frontier, nodes.items[i])) nodes_add(&stream->frontier, nodes.items[i]);
    nodes_free(&nodes);
    return good ? SUCCESS : INVALID_VALUE;
}

API(4, 0, cuStreamUpdateCaptureDependencies, 11030, cuStreamUpdateCaptureDependencies, handle, stream,
    const handle *, nodes, size_t, count, unsigned, flags) {
    return update(stream, nodes, count, flags);
}

API(5, 0, cuStreamUpdateCaptureDependencies, 12030, cuStreamUpdateCaptureDependencies_v2, handle, stream,
    const handle *, nodes, const uint64_t *, data, size_t, count, unsigned, flags) {
    return no_data(data, count) ? update(stream, nodes, count, flags) : NOT_SUPPORTED;
}
