/* The CUDA driver, found at run time, and the context of each thread. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>

#include "shim.h"

enum { MOST_DEVICES = 64 };

struct cuda cuda;

static pthread_once_t loading = PTHREAD_ONCE_INIT, initialising = PTHREAD_ONCE_INIT;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static CUresult readiness;
static CUcontext contexts[MOST_DEVICES];
static _Thread_local int own_device;
static _Thread_local bool entered;

static CUresult no_driver(void) { return CUDA_ERROR_NO_DEVICE; }
static CUresult no_function(void) { return CUDA_ERROR_NOT_SUPPORTED; }

typedef CUresult (*finder)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

static void *find(finder by_name, const char *name, int version) {
    void *found = NULL;
    if (!by_name) return (void *)no_driver;
    return by_name(name, &found, version, 0, NULL) == CUDA_SUCCESS && found ? found : (void *)no_function;
}

static void load(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    finder by_name = library ? (finder)dlsym(library, "cuGetProcAddress_v2") : NULL;
#define FIND(name, version) cuda.name = (__typeof__(cuda.name))find(by_name, #name, version);
    CUDA_FUNCTIONS(FIND)
}

static void initialise(void) {
    pthread_once(&loading, load);
    readiness = cuda.cuInit(0);
}

CUresult driver_ready(void) {
    pthread_once(&initialising, initialise);
    return readiness;
}

int driver_device(void) { return own_device; }

CUresult driver_context(int device, CUcontext *context) {
    int count;
    CUdevice handle;
    CUresult code = driver_ready() ?: cuda.cuDeviceGetCount(&count);
    if (code != CUDA_SUCCESS) return code;
    if (device < 0 || device >= count || device >= MOST_DEVICES) return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&mutex);
    if (!contexts[device])
        code = cuda.cuDeviceGet(&handle, device) ?: cuda.cuDevicePrimaryCtxRetain(&contexts[device], handle);
    *context = contexts[device];
    pthread_mutex_unlock(&mutex);
    return code;
}

CUresult driver_use(int device) {
    CUcontext context;
    CUresult code = driver_context(device, &context) ?: cuda.cuCtxSetCurrent(context);
    if (code != CUDA_SUCCESS) return code;
    own_device = device;
    entered = true;
    return CUDA_SUCCESS;
}

CUresult driver_enter(void) { return entered ? CUDA_SUCCESS : driver_use(own_device); }
