/* Layout: what DLPack's functions in C tell of an array, compared without an object of Python. Part of _fast.c.
 * The structures are those of DLPack's version 1: what is not read here is left out or has no name.
 */

#define DLPACK_MAJOR 1

typedef struct {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides; /* strides may be NULL: in C order */
    uint64_t byte_offset;
} Array;

typedef int (*tell_function)(PyObject *object, Array *array);
typedef int (*work_stream_function)(int32_t device_type, int32_t device_id, void **stream);

typedef struct exchange {
    uint32_t major, minor;
    struct exchange *previous;
    void (*unused[3])(void);
    tell_function tell; /* may be NULL */
    work_stream_function work_stream;
} Exchange;

typedef struct {
    tell_function tell;
    Array array;      /* its shape and strides are in `extents`, its data is not looked at */
    int64_t *extents; /* owned */
} Layout;

/* Return a type's functions of the version that is known; NULL if there are none, maybe with an error. */
static Exchange *
exchange_of(PyObject *type)
{
    PyObject *capsule = PyObject_GetAttrString(type, "__dlpack_c_exchange_api__");
    if (capsule == NULL)
        return NULL;
    Exchange *found = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    Py_DECREF(capsule);
    while (found != NULL && found->major > DLPACK_MAJOR)
        found = found->previous;
    return found != NULL && found->major == DLPACK_MAJOR ? found : NULL;
}

/* Return what tells the layouts of a type's arrays; NULL with an error if there is nothing. */
static tell_function
tell_of(PyObject *type)
{
    Exchange *found = exchange_of(type);
    if (found != NULL && found->tell != NULL)
        return found->tell;
    if (!PyErr_Occurred())
        PyErr_Format(PyExc_ValueError, "%R has no function in C that describes its arrays; read them.", type);
    return NULL;
}

static int
layout_init(Layout *self, PyObject *object)
{
    Array *array = &self->array;
    self->tell = tell_of((PyObject *)Py_TYPE(object));
    if (self->tell == NULL)
        return -1;
    if (self->tell(object, array) != 0) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_ValueError, "%R does not describe this array in C; read it.", Py_TYPE(object));
        return -1;
    }
    size_t nbytes = (size_t)array->ndim * sizeof(int64_t);
    self->extents = PyMem_Malloc(2 * nbytes + 1);
    if (self->extents == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    memcpy(self->extents, array->shape, nbytes);
    array->shape = self->extents;
    if (array->strides != NULL) {
        memcpy(self->extents + array->ndim, array->strides, nbytes);
        array->strides = self->extents + array->ndim;
    }
    return 0;
}

/* Return where the memory of an array begins, if its layout is this one: 1, or 0 if not. Leaves no error. */
static int
layout_is_of(Layout *self, PyObject *object, uintptr_t *address)
{
    Array here = {0}, *mine = &self->array;
    if (self->tell(object, &here) != 0) {
        PyErr_Clear(); /* whatever it is, the ordinary way says it again */
        return 0;
    }
    size_t nbytes = (size_t)mine->ndim * sizeof(int64_t);
    if (here.ndim != mine->ndim || here.device_type != mine->device_type || here.device_id != mine->device_id
        || here.code != mine->code || here.bits != mine->bits || here.lanes != mine->lanes
        || (here.strides == NULL) != (mine->strides == NULL) || memcmp(here.shape, mine->shape, nbytes) != 0
        || (here.strides != NULL && memcmp(here.strides, mine->strides, nbytes) != 0))
        return 0;
    *address = (uintptr_t)here.data + (uintptr_t)here.byte_offset;
    return 1;
}
