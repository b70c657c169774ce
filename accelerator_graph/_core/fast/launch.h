/* Launch: what is launched. Never changed, so that a call that holds one holds all of it. Part of _fast.c. */

typedef struct {
    PyObject_HEAD
    launch_function function;
    void *executable;
    void *stream;
    PyObject *owner;  /* as long as this lives, the executable does */
    PyObject *failed; /* takes a code and raises */
    Lock *lock;       /* NULL: launches depend on nothing */
    int shared;       /* whether several launches may have the lock at once */
    void **latest;    /* NULL, or where another stream is noted if that is out of the ordinary */
    current_function current; /* NULL, or asked first: another context than this is out of the ordinary */
    void *context;
    capturing_function capturing; /* NULL, or asked first: a stream that captures is out of the ordinary */
} Launch;

static PyObject *
launch_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"function", "executable", "stream",  "owner",     "failed", "lock",
                            "latest",   "current",    "context", "capturing", "shared", NULL};
    State *state = PyType_GetModuleState(type);
    void *function, *executable, *stream;
    void *latest = NULL, *current = NULL, *context = NULL, *capturing = NULL;
    PyObject *owner, *failed, *lock = Py_None;
    int shared = 0;
    if (state == NULL
        || !PyArg_ParseTupleAndKeywords(args, kwargs, "O&O&O&OO|OO&O&O&O&p:Launch", names, address, &function,
                                        address, &executable, address, &stream, &owner, &failed, &lock,
                                        address, &latest, address, &current, address, &context, address,
                                        &capturing, &shared))
        return NULL;
    if (function == NULL) {
        PyErr_SetString(PyExc_ValueError, "function must be the address of a launch function, not 0.");
        return NULL;
    }
    if (lock != Py_None && !Py_IS_TYPE(lock, state->lock_type)) {
        PyErr_Format(PyExc_TypeError, "lock must be a Lock or None, not %R.", lock);
        return NULL;
    }
    if (latest != NULL && lock == Py_None) {
        PyErr_SetString(PyExc_ValueError, "latest is read with the lock held; pass a lock, too.");
        return NULL;
    }
    if (shared && (latest != NULL || lock == Py_None)) {
        PyErr_SetString(PyExc_ValueError, "a launch shares a lock, and has no latest stream then.");
        return NULL;
    }
    Launch *self = (Launch *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->shared = shared;
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

/* Take the lock, or a share in it, if this may be launched now, and say whether it was. */
static int
launch_reserve(Launch *self)
{
    Lock *lock = self->lock;
    if (!(self->shared ? lock_share(lock) : PyThread_acquire_lock(lock->lock, NOWAIT_LOCK)))
        return 0;
    if ((lock->owner == NULL || lock->owner == self->owner)
        && (self->latest == NULL || *self->latest == self->stream))
        return 1;
    if (self->shared)
        lock_share_no_more(lock);
    else
        PyThread_release_lock(lock->lock);
    return 0;
}

/* Launch, and note what that answered: 1, or 0 if the ordinary way has to be taken. Runs no code of Python.
 * Unless `patches` is NULL, the executable uses arrays at these addresses first.
 */
static int
launch_now(Launch *self, Patches *patches, const uintptr_t *addresses, int *code)
{
    void *context = NULL;
    int status = 0, done;
    if (self->current != NULL && (self->current(&context) != 0 || context != self->context))
        return 0;
    if (self->capturing != NULL && (self->capturing(self->stream, &status) != 0 || status != 0))
        return 0;
    if (self->lock != NULL && !launch_reserve(self))
        return 0;
    Py_BEGIN_ALLOW_THREADS
    done = patches == NULL || patches_move(patches, addresses);
    if (done)
        *code = self->function(self->executable, self->stream);
    if (self->lock != NULL && !self->shared)
        PyThread_release_lock(self->lock->lock);
    Py_END_ALLOW_THREADS
    if (self->shared)
        lock_share_no_more(self->lock);
    return done;
}

/* Raise what a code that is not 0 stands for; return -1. */
static int
launch_failed(Launch *self, int code)
{
    PyObject *answer = PyObject_CallFunction(self->failed, "i", code);
    if (answer != NULL) {
        Py_DECREF(answer);
        PyErr_Format(PyExc_SystemError, "the launch answered %d, and %R did not raise.", code, self->failed);
    }
    return -1;
}

/* Launch: 1, or 0 if the ordinary way has to be taken; -1 if an error was raised. */
static int
launch(Launch *self)
{
    int code = 0;
    if (!launch_now(self, NULL, NULL, &code))
        return 0;
    return code == 0 ? 1 : launch_failed(self, code);
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

static PyMemberDef launch_members[] = {
    {"owner", T_OBJECT_EX, offsetof(Launch, owner), READONLY, "As long as this lives, the executable does."},
    {NULL},
};

static PyType_Slot launch_slots[] = {
    {Py_tp_doc, "An executable on a stream, and the function that launches it."},
    {Py_tp_new, launch_new},
    {Py_tp_traverse, launch_traverse},
    {Py_tp_dealloc, launch_dealloc},
    {Py_tp_members, launch_members},
    {0, NULL},
};

static PyType_Spec launch_spec = {
    .name = "accelerator_graph._core._fast.Launch",
    .basicsize = sizeof(Launch),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = launch_slots,
};

/* ---- Launcher: the callable that users hold --------------------------------------------------- */

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
        PyErr_SetString(PyExc_TypeError, "target must be a Launch or None.");
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
