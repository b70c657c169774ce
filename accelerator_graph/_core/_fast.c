/* Replays without a line of Python: a vendor's launch function, called with the handles of an executable
 * and of a stream. What is out of the ordinary is left to a callable in Python: a capture under way, a
 * graph that was reset, another thread that launches the same executable, an error.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#if PY_VERSION_HEX < 0x030D0000 /* the GIL is enough there */
#define Py_BEGIN_CRITICAL_SECTION(op) {
#define Py_END_CRITICAL_SECTION() }
#endif

typedef int (*launch_function)(void *executable, void *stream);
typedef int (*current_function)(void **context);
typedef int (*capturing_function)(void *stream, int *status);

typedef struct {
    PyTypeObject *launch_type;
    PyTypeObject *lock_type;
} State;

static int
address(PyObject *number, void *result)
{
    *(void **)result = PyLong_AsVoidPtr(number);
    return *(void **)result != NULL || !PyErr_Occurred();
}

/* A heap type's share in what every one of its objects has to do when it goes. */
static void
let_go(PyObject *op)
{
    PyTypeObject *type = Py_TYPE(op);
    type->tp_free(op);
    Py_DECREF(type);
}

/* ---- Lock: one launch of an executable at a time ------------------------------------------------- */

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

/* ---- Launch: what is launched. Never changed, so that a call that holds one holds all of it -------- */

typedef struct {
    PyObject_HEAD
    launch_function function;
    void *executable;
    void *stream;
    PyObject *owner;  /* as long as this lives, the executable does */
    PyObject *failed; /* takes a code and raises */
    Lock *lock;       /* NULL: launches may overlap */
    void **latest;    /* NULL, or where another stream is noted if that is out of the ordinary */
    current_function current; /* NULL, or asked first: another context than this is out of the ordinary */
    void *context;
    capturing_function capturing; /* NULL, or asked first: a stream that captures is out of the ordinary */
} Launch;

static PyObject *
launch_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"function", "executable", "stream",  "owner",     "failed", "lock",
                            "latest",   "current",    "context", "capturing", NULL};
    State *state = PyType_GetModuleState(type);
    void *function, *executable, *stream;
    void *latest = NULL, *current = NULL, *context = NULL, *capturing = NULL;
    PyObject *owner, *failed, *lock = Py_None;
    if (state == NULL
        || !PyArg_ParseTupleAndKeywords(args, kwargs, "O&O&O&OO|OO&O&O&O&:Launch", names, address, &function,
                                        address, &executable, address, &stream, &owner, &failed, &lock,
                                        address, &latest, address, &current, address, &context, address,
                                        &capturing))
        return NULL;
    if (function == NULL) {
        PyErr_SetString(PyExc_ValueError, "function: the address of a launch function is wanted, not 0.");
        return NULL;
    }
    if (lock != Py_None && !Py_IS_TYPE(lock, state->lock_type)) {
        PyErr_Format(PyExc_TypeError, "lock: a Lock or None is wanted, not %R.", lock);
        return NULL;
    }
    if (latest != NULL && lock == Py_None) {
        PyErr_SetString(PyExc_ValueError, "latest: it is read with the lock held, so a lock is wanted too.");
        return NULL;
    }
    Launch *self = (Launch *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->function = (launch_function)function;
    self->executable = executable;
    self->stream = stream;
    self->owner = Py_NewRef(owner);
    self->failed = Py_NewRef(failed);
    self->lock = lock == Py_None ? NULL : (Lock *)Py_NewRef(lock);
    self->latest = latest;
    self->current = (current_function)current;
    self->context = context;
    self->capturing = (capturing_function)capturing;
    return (PyObject *)self;
}

/* Take the lock if this may be launched now, and say whether it was. */
static int
launch_reserve(Launch *self)
{
    if (!PyThread_acquire_lock(self->lock->lock, NOWAIT_LOCK))
        return 0;
    if (self->latest == NULL || *self->latest == self->stream)
        return 1;
    PyThread_release_lock(self->lock->lock);
    return 0;
}

/* Launch: 1, or 0 if the ordinary way has to be taken; -1 if an error was raised. */
static int
launch(Launch *self)
{
    void *context = NULL;
    int code, status = 0;
    if (self->current != NULL && (self->current(&context) != 0 || context != self->context))
        return 0;
    if (self->capturing != NULL && (self->capturing(self->stream, &status) != 0 || status != 0))
        return 0;
    if (self->lock != NULL && !launch_reserve(self))
        return 0;
    Py_BEGIN_ALLOW_THREADS
    code = self->function(self->executable, self->stream);
    if (self->lock != NULL)
        PyThread_release_lock(self->lock->lock);
    Py_END_ALLOW_THREADS
    if (code == 0)
        return 1;
    PyObject *answer = PyObject_CallFunction(self->failed, "i", code);
    if (answer != NULL) {
        Py_DECREF(answer);
        PyErr_Format(PyExc_SystemError, "the launch answered %d, and %R did not raise.", code, self->failed);
    }
    return -1;
}

/* No tp_clear: like a tuple, it refers only to what was there before, so something else closes a cycle. */
static int
launch_traverse(PyObject *op, visitproc visit, void *arg)
{
    Launch *self = (Launch *)op;
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->owner);
    Py_VISIT(self->failed);
    Py_VISIT(self->lock);
    return 0;
}

static void
launch_dealloc(PyObject *op)
{
    Launch *self = (Launch *)op;
    PyObject_GC_UnTrack(op);
    Py_XDECREF(self->owner);
    Py_XDECREF(self->failed);
    Py_XDECREF(self->lock);
    let_go(op);
}

static PyType_Slot launch_slots[] = {
    {Py_tp_doc, "An executable on a stream, and the function that launches it."},
    {Py_tp_new, launch_new},
    {Py_tp_traverse, launch_traverse},
    {Py_tp_dealloc, launch_dealloc},
    {0, NULL},
};

static PyType_Spec launch_spec = {
    .name = "accelerator_graph._core._fast.Launch",
    .basicsize = sizeof(Launch),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = launch_slots,
};

/* ---- Launcher: the callable that users hold ------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    Launch *target;     /* replaced as a whole; NULL: the ordinary way */
    PyObject *captures; /* a dict: launches take the ordinary way as long as it holds anything */
    PyObject *ordinary; /* does the same in Python, and knows what to say where it can't be done */
    PyObject *weakrefs;
} Launcher;

static int
refuse_arguments(size_t count, PyObject *names)
{
    if (PyVectorcall_NARGS(count) == 0 && (names == NULL || PyTuple_GET_SIZE(names) == 0))
        return 0;
    PyErr_SetString(PyExc_TypeError, "a replay takes no arguments; call it without any.");
    return -1;
}

static PyObject *
launcher_call(PyObject *op, PyObject *const *Py_UNUSED(args), size_t count, PyObject *names)
{
    Launcher *self = (Launcher *)op;
    int done = refuse_arguments(count, names);
    if (done == 0 && PyDict_GET_SIZE(self->captures) == 0) {
        Launch *target;
        Py_BEGIN_CRITICAL_SECTION(self);
        target = (Launch *)Py_XNewRef(self->target);
        Py_END_CRITICAL_SECTION();
        if (target != NULL) {
            done = launch(target);
            Py_DECREF(target); /* by now it may be the last that holds the executable */
        }
    }
    if (done > 0)
        Py_RETURN_NONE;
    return done < 0 ? NULL : PyObject_CallNoArgs(self->ordinary);
}

static PyObject *
launcher_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"captures", "ordinary", NULL};
    PyObject *captures, *ordinary;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O:Launcher", names, &PyDict_Type, &captures, &ordinary))
        return NULL;
    Launcher *self = (Launcher *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->vectorcall = launcher_call;
    self->captures = Py_NewRef(captures);
    self->ordinary = Py_NewRef(ordinary);
    return (PyObject *)self;
}

static PyObject *
launcher_get_target(PyObject *op, void *Py_UNUSED(closure))
{
    Launcher *self = (Launcher *)op;
    PyObject *target;
    Py_BEGIN_CRITICAL_SECTION(self);
    target = Py_XNewRef(self->target);
    Py_END_CRITICAL_SECTION();
    return target == NULL ? Py_NewRef(Py_None) : target;
}

static int
launcher_set_target(PyObject *op, PyObject *target, void *Py_UNUSED(closure))
{
    Launcher *self = (Launcher *)op;
    State *state = PyType_GetModuleState(Py_TYPE(op));
    if (state == NULL)
        return -1;
    if (target == NULL || (target != Py_None && !Py_IS_TYPE(target, state->launch_type))) {
        PyErr_SetString(PyExc_TypeError, "target: a Launch or None is wanted.");
        return -1;
    }
    Launch *before;
    Py_BEGIN_CRITICAL_SECTION(self);
    before = self->target;
    self->target = target == Py_None ? NULL : (Launch *)Py_NewRef(target);
    Py_END_CRITICAL_SECTION();
    Py_XDECREF(before);
    return 0;
}

static int
launcher_traverse(PyObject *op, visitproc visit, void *arg)
{
    Launcher *self = (Launcher *)op;
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->target);
    Py_VISIT(self->captures);
    Py_VISIT(self->ordinary);
    return 0;
}

static int
launcher_clear(PyObject *op)
{
    Py_CLEAR(((Launcher *)op)->target); /* the only one that can be younger than the launcher */
    return 0;
}

static void
launcher_dealloc(PyObject *op)
{
    Launcher *self = (Launcher *)op;
    PyObject_GC_UnTrack(op);
    if (self->weakrefs != NULL)
        PyObject_ClearWeakRefs(op);
    Py_XDECREF(self->target);
    Py_XDECREF(self->captures);
    Py_XDECREF(self->ordinary);
    let_go(op);
}

static PyMemberDef launcher_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Launcher, vectorcall), READONLY},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Launcher, weakrefs), READONLY},
    {NULL},
};

static PyGetSetDef launcher_getset[] = {
    {"target", launcher_get_target, launcher_set_target,
     "The Launch of the calls to come; None: they take the ordinary way."},
    {NULL},
};

static PyType_Slot launcher_slots[] = {
    {Py_tp_doc, "Enqueue one run of the graph on the stream that was bound."},
    {Py_tp_new, launcher_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, launcher_traverse},
    {Py_tp_clear, launcher_clear},
    {Py_tp_dealloc, launcher_dealloc},
    {Py_tp_members, launcher_members},
    {Py_tp_getset, launcher_getset},
    {0, NULL},
};

static PyType_Spec launcher_spec = {
    .name = "accelerator_graph._core._fast.Launcher",
    .basicsize = sizeof(Launcher),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_HAVE_VECTORCALL,
    .slots = launcher_slots,
};

/* ---- Follower: a launcher for each stream, and the one of the current stream is called ------------- */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *current;   /* answers the handle of the current stream */
    PyObject *argument;  /* what it takes; NULL: nothing */
    PyObject *launchers; /* a dict, by handle */
    PyObject *missing;   /* takes a handle; returns a launcher, which it may have put in the dict */
    void *last;          /* the handle of the last call, and its launcher, which may be NULL */
    PyObject *latest;
} Follower;

/* Return the launcher for a handle, or NULL with an error. Most calls come for the handle of the last. */
static PyObject *
follower_find(Follower *self, PyObject *handle)
{
    PyObject *launcher, *other;
    void *number = PyLong_AsVoidPtr(handle);
    if (number == NULL && PyErr_Occurred())
        return NULL;
    Py_BEGIN_CRITICAL_SECTION(self);
    launcher = number == self->last ? Py_XNewRef(self->latest) : NULL;
    Py_END_CRITICAL_SECTION();
    if (launcher != NULL)
        return launcher;
#if PY_VERSION_HEX >= 0x030D0000
    PyDict_GetItemRef(self->launchers, handle, &launcher);
#else
    launcher = Py_XNewRef(PyDict_GetItemWithError(self->launchers, handle));
#endif
    if (launcher == NULL && !PyErr_Occurred())
        launcher = PyObject_CallOneArg(self->missing, handle);
    if (launcher == NULL)
        return NULL;
    Py_BEGIN_CRITICAL_SECTION(self);
    other = self->latest;
    self->latest = Py_NewRef(launcher);
    self->last = number;
    Py_END_CRITICAL_SECTION();
    Py_XDECREF(other);
    return launcher;
}

static PyObject *
follower_call(PyObject *op, PyObject *const *Py_UNUSED(args), size_t count, PyObject *names)
{
    Follower *self = (Follower *)op;
    if (refuse_arguments(count, names) < 0)
        return NULL;
    PyObject *handle = self->argument == NULL ? PyObject_CallNoArgs(self->current)
                                              : PyObject_CallOneArg(self->current, self->argument);
    if (handle == NULL)
        return NULL;
    PyObject *launcher = follower_find(self, handle);
    Py_DECREF(handle);
    if (launcher == NULL)
        return NULL;
    PyObject *answer = PyObject_CallNoArgs(launcher);
    Py_DECREF(launcher);
    return answer;
}

static PyObject *
follower_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"launchers", "missing", "current", "argument", NULL};
    PyObject *launchers, *missing, *current, *argument = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OO|O:Follower", names, &PyDict_Type, &launchers,
                                     &missing, &current, &argument))
        return NULL;
    Follower *self = (Follower *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->vectorcall = follower_call;
    self->current = Py_NewRef(current);
    self->argument = Py_XNewRef(argument);
    self->launchers = Py_NewRef(launchers);
    self->missing = Py_NewRef(missing);
    return (PyObject *)self;
}

static int
follower_traverse(PyObject *op, visitproc visit, void *arg)
{
    Follower *self = (Follower *)op;
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->current);
    Py_VISIT(self->argument);
    Py_VISIT(self->launchers);
    Py_VISIT(self->missing);
    Py_VISIT(self->latest);
    return 0;
}

static int
follower_clear(PyObject *op)
{
    Py_CLEAR(((Follower *)op)->latest);
    return 0;
}

static void
follower_dealloc(PyObject *op)
{
    Follower *self = (Follower *)op;
    PyObject_GC_UnTrack(op);
    Py_XDECREF(self->current);
    Py_XDECREF(self->argument);
    Py_XDECREF(self->launchers);
    Py_XDECREF(self->missing);
    Py_XDECREF(self->latest);
    let_go(op);
}

static PyMemberDef follower_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Follower, vectorcall), READONLY},
    {NULL},
};

static PyType_Slot follower_slots[] = {
    {Py_tp_doc, "Enqueue one run of the graph on the stream that is current."},
    {Py_tp_new, follower_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, follower_traverse},
    {Py_tp_clear, follower_clear},
    {Py_tp_dealloc, follower_dealloc},
    {Py_tp_members, follower_members},
    {0, NULL},
};

static PyType_Spec follower_spec = {
    .name = "accelerator_graph._core._fast.Follower",
    .basicsize = sizeof(Follower),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_HAVE_VECTORCALL,
    .slots = follower_slots,
};

/* ---- Method: calls what is in a slot of its object -------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyMemberDescrObject *slot;
    PyObject *function; /* called where the slot holds None, or with arguments */
    PyObject *dict;
    PyObject *weakrefs;
} Method;

static PyObject *
method_call(PyObject *op, PyObject *const *args, size_t count, PyObject *names)
{
    Method *self = (Method *)op;
    if (PyVectorcall_NARGS(count) == 1 && (names == NULL || PyTuple_GET_SIZE(names) == 0)
        && PyObject_TypeCheck(args[0], PyDescr_TYPE(self->slot))) {
        PyObject *held = PyMember_GetOne((const char *)args[0], self->slot->d_member);
        if (held == NULL)
            return NULL;
        PyObject *answer = held == Py_None ? NULL : PyObject_CallNoArgs(held);
        int called = held != Py_None;
        Py_DECREF(held);
        if (called)
            return answer;
    }
    return PyObject_Vectorcall(self->function, args, count, names);
}

static PyObject *
method_get(PyObject *op, PyObject *object, PyObject *Py_UNUSED(type))
{
    return object == NULL || object == Py_None ? Py_NewRef(op) : PyMethod_New(op, object);
}

static PyObject *
method_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"slot", "function", NULL};
    PyObject *slot, *function;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O:Method", names, &PyMemberDescr_Type, &slot, &function))
        return NULL;
    Method *self = (Method *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->vectorcall = method_call;
    self->slot = (PyMemberDescrObject *)Py_NewRef(slot);
    self->function = Py_NewRef(function);
    return (PyObject *)self;
}

static int
method_traverse(PyObject *op, visitproc visit, void *arg)
{
    Method *self = (Method *)op;
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->slot);
    Py_VISIT(self->function);
    Py_VISIT(self->dict);
    return 0;
}

static int
method_clear(PyObject *op)
{
    Py_CLEAR(((Method *)op)->dict);
    return 0;
}

static void
method_dealloc(PyObject *op)
{
    Method *self = (Method *)op;
    PyObject_GC_UnTrack(op);
    if (self->weakrefs != NULL)
        PyObject_ClearWeakRefs(op);
    Py_XDECREF(self->slot);
    Py_XDECREF(self->function);
    Py_XDECREF(self->dict);
    let_go(op);
}

static PyObject *
method_reduce(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    return PyObject_GetAttrString(op, "__qualname__"); /* pickled by name, as functions are */
}

static PyMethodDef method_methods[] = {
    {"__reduce__", method_reduce, METH_NOARGS, NULL},
    {NULL},
};

static PyMemberDef method_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Method, vectorcall), READONLY},
    {"__dictoffset__", T_PYSSIZET, offsetof(Method, dict), READONLY},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Method, weakrefs), READONLY},
    {NULL},
};

static PyGetSetDef method_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL},
    {NULL},
};

static PyType_Slot method_slots[] = {
    {Py_tp_doc, "A method that calls what is in a slot of its object, or else a function."},
    {Py_tp_new, method_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_descr_get, method_get},
    {Py_tp_traverse, method_traverse},
    {Py_tp_clear, method_clear},
    {Py_tp_dealloc, method_dealloc},
    {Py_tp_members, method_members},
    {Py_tp_methods, method_methods},
    {Py_tp_getset, method_getset},
    {0, NULL},
};

static PyType_Spec method_spec = {
    .name = "accelerator_graph._core._fast.Method",
    .basicsize = sizeof(Method),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_HAVE_VECTORCALL
             | Py_TPFLAGS_METHOD_DESCRIPTOR,
    .slots = method_slots,
};

/* ---- the module ---------------------------------------------------------------------------------- */

static PyTypeObject *
add_type(PyObject *module, PyType_Spec *spec)
{
    PyTypeObject *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    if (type != NULL && PyModule_AddType(module, type) < 0)
        Py_CLEAR(type);
    return type;
}

static int
module_exec(PyObject *module)
{
    State *state = PyModule_GetState(module);
    state->lock_type = add_type(module, &lock_spec);
    state->launch_type = add_type(module, &launch_spec);
    if (state->lock_type == NULL || state->launch_type == NULL)
        return -1;
    PyType_Spec *others[] = {&launcher_spec, &follower_spec, &method_spec};
    for (size_t i = 0; i < Py_ARRAY_LENGTH(others); i++) {
        PyTypeObject *type = add_type(module, others[i]);
        if (type == NULL)
            return -1;
        Py_DECREF(type); /* the module holds it */
    }
    return 0;
}

static int
module_traverse(PyObject *module, visitproc visit, void *arg)
{
    State *state = PyModule_GetState(module);
    Py_VISIT(state->lock_type);
    Py_VISIT(state->launch_type);
    return 0;
}

static int
module_clear(PyObject *module)
{
    State *state = PyModule_GetState(module);
    Py_CLEAR(state->lock_type);
    Py_CLEAR(state->launch_type);
    return 0;
}

static void
module_free(void *module)
{
    module_clear(module);
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
#if PY_VERSION_HEX >= 0x030D0000
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "accelerator_graph._core._fast",
    .m_size = sizeof(State),
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC
PyInit__fast(void)
{
    return PyModuleDef_Init(&module_definition);
}
