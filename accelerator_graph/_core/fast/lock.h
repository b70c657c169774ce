/* Lock: lets one launch of a graph through at a time, or keeps all launches off a change. Part of _fast.c. */

typedef struct {
    PyObject_HEAD
    PyThread_type_lock lock;
    unsigned long holder; /* the thread that runs Python while it has the lock, else 0 */
    unsigned long depth;  /* how often that thread has entered beyond the first time */
    unsigned long shared; /* how many launches share the lock now, while nobody has it */
    PyObject *owner;      /* the only owner whose launches may take the lock */
} Lock;

enum { SHORTEST_WAIT = 10, LONGEST_WAIT = 1000 }; /* microseconds between two looks at `shared` */

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

/* Let a launch share the lock unless a thread has it; return whether it does. */
static int
lock_share(Lock *self)
{
    int shares;
    Py_BEGIN_CRITICAL_SECTION(self);
    shares = self->holder == 0;
    self->shared += (unsigned long)shares;
    Py_END_CRITICAL_SECTION();
    return shares;
}

static void
lock_share_no_more(Lock *self)
{
    Py_BEGIN_CRITICAL_SECTION(self);
    self->shared--;
    Py_END_CRITICAL_SECTION();
}

static int
lock_is_shared(Lock *self)
{
    int shared;
    Py_BEGIN_CRITICAL_SECTION(self);
    shared = self->shared != 0;
    Py_END_CRITICAL_SECTION();
    return shared;
}

static int
lock_leave(Lock *self)
{
    long depth = lock_move(self, -1);
    if (depth < 0) {
        PyErr_SetString(PyExc_RuntimeError, "another thread has the lock, or none has; enter it first.");
        return -1;
    }
    if (depth == 0) {
        lock_set_holder(self, 0);
        PyThread_release_lock(self->lock);
    }
    return 0;
}

static PyObject *
lock_enter(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    Lock *self = (Lock *)op;
    if (lock_move(self, 1) < 0) {
        PyLockStatus status = PyThread_acquire_lock_timed(self->lock, 0, 0);
        while (status != PY_LOCK_ACQUIRED) {
            Py_BEGIN_ALLOW_THREADS
            status = PyThread_acquire_lock_timed(self->lock, -1, 1);
            Py_END_ALLOW_THREADS
            if (status == PY_LOCK_INTR && PyErr_CheckSignals() < 0)
                return NULL;
        }
        lock_set_holder(self, PyThread_get_thread_ident());
    }
    for (int wait = SHORTEST_WAIT; lock_is_shared(self); wait = wait < LONGEST_WAIT ? 2 * wait : wait) {
        Py_BEGIN_ALLOW_THREADS
        PyThread_acquire_lock_timed(self->lock, wait, 1); /* in vain: this thread has it */
        Py_END_ALLOW_THREADS
        if (PyErr_CheckSignals() < 0) {
            lock_leave(self);
            return NULL;
        }
    }
    Py_RETURN_NONE;
}

static PyObject *
lock_exit(PyObject *op, PyObject *Py_UNUSED(exception))
{
    return lock_leave((Lock *)op) < 0 ? NULL : Py_NewRef(Py_None);
}

/* In a forked child: the thread that had the lock may be gone. */
static PyObject *
lock_at_fork_reinit(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    Lock *self = (Lock *)op;
    PyThread_type_lock lock = PyThread_allocate_lock();
    if (lock == NULL)
        return PyErr_NoMemory();
    self->lock = lock; /* the former one may not be freed, since somebody may have it */
    self->holder = self->depth = self->shared = 0;
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

static int
lock_clear(PyObject *op)
{
    Py_CLEAR(((Lock *)op)->owner);
    return 0;
}

static void
lock_dealloc(PyObject *op)
{
    PyThread_type_lock lock = ((Lock *)op)->lock;
    references_dealloc(op);
    if (lock != NULL)
        PyThread_free_lock(lock);
}

static PyMethodDef lock_methods[] = {
    {"__enter__", lock_enter, METH_NOARGS, NULL},
    {"__exit__", lock_exit, METH_VARARGS, NULL},
    {"_is_owned", lock_is_owned, METH_NOARGS, NULL},
    {"_at_fork_reinit", lock_at_fork_reinit, METH_NOARGS, NULL},
    {NULL},
};

static PyMemberDef lock_members[] = {
    {"owner", T_OBJECT_EX, offsetof(Lock, owner), 0,
     "The owner whose launches may take the lock: those of others take their ordinary way."},
    {NULL},
};

static PyType_Slot lock_slots[] = {
    {Py_tp_doc, "A recursive lock, as `threading.RLock`, that a `Launch` takes or shares without waiting."},
    {Py_tp_new, lock_new},
    {Py_tp_traverse, references_traverse},
    {Py_tp_clear, lock_clear},
    {Py_tp_dealloc, lock_dealloc},
    {Py_tp_methods, lock_methods},
    {Py_tp_members, lock_members},
    {0, NULL},
};
