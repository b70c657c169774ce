/* Lock: one launch of an executable at a time. Part of _fast.c. */

typedef struct {
    PyObject_HEAD
    PyThread_type_lock lock;
    unsigned long holder; /* the thread that runs Python while it has the lock, else 0 */
    unsigned long depth;  /* how often that thread has entered beyond the first time */
} Lock;

static void
lock_set_holder(Lock *self, unsigned long holder)
{
    Py_BEGIN_CRITICAL_SECTION(self);
    self->holder = holder;
    Py_END_CRITICAL_SECTION();
}

/* Go `step` deeper if this thread has the lock, and return how deep it was; -1 if it has not. */
static long
lock_move(Lock *self, int step)
{
    long depth = -1;
    Py_BEGIN_CRITICAL_SECTION(self);
    if (self->holder == PyThread_get_thread_ident()) {
        depth = (long)self->depth;
        if (depth + step >= 0)
            self->depth += step;
    }
    Py_END_CRITICAL_SECTION();
    return depth;
}

static PyObject *
lock_enter(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    Lock *self = (Lock *)op;
    if (lock_move(self, 1) >= 0)
        Py_RETURN_NONE;
    PyLockStatus status = PyThread_acquire_lock_timed(self->lock, 0, 0);
    while (status != PY_LOCK_ACQUIRED) {
        Py_BEGIN_ALLOW_THREADS
        status = PyThread_acquire_lock_timed(self->lock, -1, 1);
        Py_END_ALLOW_THREADS
        if (status == PY_LOCK_INTR && PyErr_CheckSignals() < 0)
            return NULL;
    }
    lock_set_holder(self, PyThread_get_thread_ident());
    Py_RETURN_NONE;
}

static PyObject *
lock_exit(PyObject *op, PyObject *Py_UNUSED(exception))
{
    Lock *self = (Lock *)op;
    long depth = lock_move(self, -1);
    if (depth < 0) {
        PyErr_SetString(PyExc_RuntimeError, "another thread has the lock, or none has; enter it first.");
        return NULL;
    }
    if (depth == 0) {
        lock_set_holder(self, 0);
        PyThread_release_lock(self->lock);
    }
    Py_RETURN_NONE;
}

static PyObject *
lock_is_owned(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(lock_move((Lock *)op, 0) >= 0);
}

static PyObject *
lock_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, ":Lock", names))
        return NULL;
    Lock *self = (Lock *)type->tp_alloc(type, 0);
    if (self != NULL && (self->lock = PyThread_allocate_lock()) == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static void
lock_dealloc(PyObject *op)
{
    Lock *self = (Lock *)op;
    if (self->lock != NULL)
        PyThread_free_lock(self->lock);
    let_go(op);
}

static PyMethodDef lock_methods[] = {
    {"__enter__", lock_enter, METH_NOARGS, NULL},
    {"__exit__", lock_exit, METH_VARARGS, NULL},
    {"_is_owned", lock_is_owned, METH_NOARGS, NULL},
    {NULL},
};

static PyType_Slot lock_slots[] = {
    {Py_tp_doc, "A recursive lock, as `threading.RLock`, that a `Launch` takes without waiting."},
    {Py_tp_new, lock_new},
    {Py_tp_dealloc, lock_dealloc},
    {Py_tp_methods, lock_methods},
    {0, NULL},
};

static PyType_Spec lock_spec = {
    .name = "accelerator_graph._core._fast.Lock",
    .basicsize = sizeof(Lock),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = lock_slots,
};
