/* Modules and libraries: texts that name kernels. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "modules.h"

struct module {
    char *text;
    handle context; /* 0: a library, whose kernels run in any */
    struct kernel *kernels;
};

struct kernel *kernel_of(handle which) {
    return handle_get(which, handle_is(which, KERNEL) ? KERNEL : FUNCTION);
}

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_' || c == '$'; }

/* Whether the text, PTX or the CUDA C++ that software NVRTC leaves as it is, has an entry of that name. */
static bool declares(const char *text, const char *name) {
    static const char *const BEFORE[] = {".entry ", "__global__ void "};
    size_t length = strlen(name);
    for (size_t i = 0; i < sizeof BEFORE / sizeof *BEFORE; i++)
        for (const char *at = text; (at = strstr(at, BEFORE[i]));) {
            at += strlen(BEFORE[i]);
            if (!strncmp(at, name, length) && !is_word(at[length])) return true;
        }
    return false;
}

static CUresult load(enum kind kind, handle context, const char *image, handle *answer) {
    if (!strstr(image, ".entry ") && !strstr(image, "__global__ ")) return INVALID_IMAGE;
    struct module *module = calloc(1, sizeof *module);
    module->text = strdup(image);
    module->context = context;
    *answer = handle_new(kind, module);
    return SUCCESS;
}

static CUresult unload(handle which, enum kind kind) {
    struct module *module = handle_get(which, kind);
    if (!module) return INVALID_HANDLE;
    for (struct kernel *each = module->kernels, *next; each; each = next) {
        next = each->next;
        handle_drop(each->handle);
        free(each);
    }
    handle_drop(which);
    free(module->text);
    free(module);
    return SUCCESS;
}

static CUresult get(struct module *module, enum kind kind, const char *name, handle *answer) {
    if (!module) return INVALID_HANDLE;
    if (!declares(module->text, name)) return NOT_FOUND;
    const struct native *native = native_find(name);
    if (!native) {
        count_unknown(name);
        return NOT_SUPPORTED;
    }
    struct kernel *kernel = module->kernels;
    while (kernel && kernel->native != native) kernel = kernel->next;
    if (kernel) {
        *answer = kernel->handle;
        return SUCCESS;
    }
    kernel = calloc(1, sizeof *kernel);
    *kernel = (struct kernel){handle_new(kind, kernel), native, module->context, module->kernels};
    module->kernels = kernel;
    *answer = kernel->handle;
    return SUCCESS;
}

API(2, 0, cuModuleLoadData, 2000, cuModuleLoadData, handle *, answer, const char *, image) {
    struct context *context;
    TRY(context_current(&context));
    return load(MODULE, context->handle, image, answer);
}

API(1, 0, cuModuleUnload, 2000, cuModuleUnload, handle, which) { return unload(which, MODULE); }

API(3, 0, cuModuleGetFunction, 2000, cuModuleGetFunction, handle *, answer, handle, which,
    const char *, name) {
    return get(handle_get(which, MODULE), FUNCTION, name, answer);
}

API(8, 0, cuLibraryLoadData, 12000, cuLibraryLoadData, handle *, answer, const char *, image,
    void *, jit_options, void *, jit_values, unsigned, jit_count, void *, options, void *, values,
    unsigned, count) {
    return load(LIBRARY, 0, image, answer);
}

API(1, 0, cuLibraryUnload, 12000, cuLibraryUnload, handle, which) { return unload(which, LIBRARY); }

API(3, 0, cuLibraryGetKernel, 12000, cuLibraryGetKernel, handle *, answer, handle, which,
    const char *, name) {
    return get(handle_get(which, LIBRARY), KERNEL, name, answer);
}

API(2, 0, cuFuncGetName, 12030, cuFuncGetName, const char **, name, handle, which) {
    struct kernel *kernel = handle_get(which, FUNCTION);
    if (!kernel) return INVALID_HANDLE;
    *name = kernel->native->name;
    return SUCCESS;
}

API(2, 0, cuKernelGetName, 12030, cuKernelGetName, const char **, name, handle, which) {
    struct kernel *kernel = handle_get(which, KERNEL);
    if (!kernel) return INVALID_HANDLE;
    *name = kernel->native->name;
    return SUCCESS;
}

static CUresult parameter(const struct kernel *kernel, size_t index, size_t *place, size_t *size) {
    if (!kernel) return INVALID_HANDLE;
    const struct native *native = kernel->native;
    if (index >= native->count) return INVALID_VALUE;
    *place = 0;
    for (size_t i = 0; i <= index; i++) {
        size_t alignment = native->sizes[i] < 8 ? native->sizes[i] : 8;
        *place = (*place + alignment - 1) / alignment * alignment;
        if (i < index) *place += native->sizes[i];
    }
    if (size) *size = native->sizes[index];
    return SUCCESS;
}

API(4, 0, cuFuncGetParamInfo, 12040, cuFuncGetParamInfo, handle, which, size_t, index, size_t *, place,
    size_t *, size) {
    return parameter(handle_get(which, FUNCTION), index, place, size);
}

API(4, 0, cuKernelGetParamInfo, 12040, cuKernelGetParamInfo, handle, which, size_t, index, size_t *, place,
    size_t *, size) {
    return parameter(handle_get(which, KERNEL), index, place, size);
}

/* No kernel is compiled for clusters. */
enum { REQUIRED_CLUSTER_WIDTH = 11 };

static CUresult attribute_of(const struct kernel *kernel, int attribute, int *value) {
    if (!kernel) return INVALID_HANDLE;
    if (attribute != REQUIRED_CLUSTER_WIDTH) {
        count_unknown("an attribute of a kernel");
        return INVALID_VALUE;
    }
    *value = 0;
    return SUCCESS;
}

API(3, 0, cuFuncGetAttribute, 2020, cuFuncGetAttribute, int *, value, int, attribute, handle, which) {
    return attribute_of(handle_get(which, FUNCTION), attribute, value);
}

API(4, 0, cuKernelGetAttribute, 12000, cuKernelGetAttribute, int *, value, int, attribute, handle, which,
    int, device) {
    return attribute_of(handle_get(which, KERNEL), attribute, value);
}

API(1, 0, cuFuncLoad, 12040, cuFuncLoad, handle, which) {
    return handle_get(which, FUNCTION) ? SUCCESS : INVALID_HANDLE;
}
