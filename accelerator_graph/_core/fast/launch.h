/* Launch: what is launched. Never changed, so that a call that holds one holds all of it. Part of _fast.c. */

typedef struct {
    PyObject_HEAD
    launch_function function;
    void *executable;
    void *stream;
    PyObject *owner;  /* as long as this lives, the executable does */
    PyObject *failed; /* takes a code and raises */
    Lock *lock;       /* of the graph: its owner has to be this one */
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
    PyObject *owner, *failed, *lock;
    int shared = 0;
    if (state == NULL
        || !PyArg_ParseTupleAndKeywords(args, kwargs, "O&O&O&OOO!|O&O&O&O&p:Launch", names, address,
                                        &function, address, &executable, address, &stream, &owner, &failed,
                                        state->types[LOCK], &lock, address, &latest, address, &current,
                                        address, &context, address, &capturing, &shared))
        return NULL;
    if (function == NULL) {
        PyErr_SetString(PyExc_ValueError, "function must be the address of a launch function, not 0.");
        return NULL;
    }
    if (shared && latest != NULL) {
        PyErr_SetString(PyExc_ValueError, "latest is read with the lock held; do not share the lock.");
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
    self->lock = (Lock *)Py_NewRef(lock);
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
    if (lock->owner == self->owner && (self->latest == NULL || *self->latest == self->stream))
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
    if (!launch_reserve(self))
        return 0;
    Py_BEGIN_ALLOW_THREADS
    done = patches == NULL || patches_move(patches, addresses);
    if (done)
        *code = self->function(self->executable, self->stream);
    if (!self->shared)
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
    raise_by(self->failed, code, PyObject_CallFunction(self->failed, "i", code));
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

static PyMemberDef launch_members[] = {
    OWNED(Launch, failed),
    OWNED(Launch, lock),
    {"owner", T_OBJECT_EX, offsetof(Launch, owner), READONLY, "As long as this lives, the executable does."},
    {NULL},
};

static PyType_Slot launch_slots[] = {
    {Py_tp_doc, "An executable on a stream, and the function that launches it."},
    {Py_tp_new, launch_new},
    {Py_tp_traverse, references_traverse},
    {Py_tp_dealloc, references_dealloc},
    {Py_tp_members, launch_members},
    {0, NULL},
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
    if (target == NULL || (target != Py_None && !Py_IS_TYPE(target, state->types[LAUNCH]))) {
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
launcher_clear(PyObject *op)
{
    Py_CLEAR(((Launcher *)op)->target); /* the only one that can be younger than the launcher */
    return 0;
}

static PyMemberDef launcher_members[] = {
    OWNED(Launcher, target),
    OWNED(Launcher, captures),
    OWNED(Launcher, ordinary),
    CALLED(Launcher),
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
    {Py_tp_traverse, references_traverse},
    {Py_tp_clear, launcher_clear},
    {Py_tp_dealloc, references_dealloc},
    {Py_tp_members, launcher_members},
    {Py_tp_getset, launcher_getset},
    {0, NULL},
};
