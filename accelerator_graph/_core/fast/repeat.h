/* What a Guard does with a call that is like the one before: repeats it, and changes nodes first where arrays have
 * moved. Part of _fast.c.
 */

/* Return 1 if the arrays are the ones that are referred to. */
static int
guard_keeps(Guard *self, PyObject **arrays, PyObject *kept)
{
    for (Py_ssize_t i = 0; i < self->arrays; i++)
        if (!refers_to(PyTuple_GET_ITEM(kept, i), arrays[i]))
            return 0;
    return 1;
}

/* Return 1 if the elements of the arrays are what their bytes say. */
static int
guard_takes(Guard *self, PyObject **arrays)
{
    for (Py_ssize_t i = 0, found = 0; i < self->count; i++) {
        Parameter *each = &self->parameters[i];
        if (each->kind != ARRAY)
            continue;
        PyObject *array = arrays[found++];
        if (each->altered == NULL)
            continue;
        PyObject *altered = PyObject_CallOneArg(each->altered, array);
        if (altered == NULL)
            PyErr_Clear();
        else
            Py_DECREF(altered);
        if (altered != Py_False)
            return 0;
    }
    return 1;
}

/* Return 1 if the stream is the current one and is not capturing. */
static int
target_is_ready(Target *target)
{
    int status = 0, unused = 0;
    return target->where != NULL && answered(target->questions)
           && (target->alive == NULL || target->alive(target->stream, &unused) == 0)
           && (target->status == NULL || (target->status(target->stream, &status) == 0 && status == 0));
}

/* A call that may be repeated. */
typedef struct {
    PyObject **arrays;
    uintptr_t *addresses;
    int moved;      /* some arrays are not where those of the latest call were */
    PyObject *kept; /* weak references that take the place of the target's, or NULL */
    PyObject *result;
} Repeat;

/* Return a list of the arrays. */
static PyObject *
list_of(PyObject **arrays, Py_ssize_t count, Py_ssize_t more)
{
    PyObject *found = PyList_New(count + more);
    for (Py_ssize_t i = 0; found != NULL && i < count; i++)
        PyList_SET_ITEM(found, i, Py_NewRef(arrays[i]));
    return found;
}

/* Return the result of a call that was repeated, with the lock held; NULL with an error if there is none. */
static PyObject *
guard_finish(Guard *self, Target *target, Repeat *call)
{
    if (target->finish == NULL)
        return Py_NewRef(target->result);
    PyObject *arrays = list_of(call->arrays, self->arrays, 0), *result = NULL, *made = NULL;
    lock_set_holder(self->lock, PyThread_get_thread_ident());
    if (arrays != NULL)
        made = PyObject_CallOneArg(target->finish, arrays);
    lock_set_holder(self->lock, 0);
    Py_XDECREF(arrays);
    if (made != NULL)
        result = PyTuple_Pack(1, made);
    Py_XDECREF(made);
    return result;
}

/* Note what the executable uses now; the lock is held. Runs no code of Python. */
static void
guard_note(Guard *self, Repeat *call)
{
    PyObject *kept = call->kept;
    if (call->moved)
        memcpy(self->addresses, call->addresses, (size_t)self->arrays * sizeof *self->addresses);
    if (kept == NULL)
        return;
    Py_BEGIN_CRITICAL_SECTION(self);
    call->kept = self->target.kept;
    self->target.kept = kept;
    Py_END_CRITICAL_SECTION();
}

/* Return 1 if the target is still what it was, and the executable can use the arrays; the lock is held. */
static int
guard_is_at(Guard *self, Target *target, Repeat *call)
{
    Patches *patches = target->patches;
    if (self->target.where != target->where || self->target.kept != target->kept || self->target.launcher == NULL
        || self->target.patches != patches)
        return 0;
    call->moved = memcmp(self->addresses, call->addresses, (size_t)self->arrays * sizeof *self->addresses) != 0;
    return !call->moved || (patches != NULL && patches_fit(patches, call->addresses) && patches_ready(patches));
}

/* Launch with the lock held: 1, 0 if that can't be done now, -1 if it failed. */
static int
guard_launch(Guard *self, Target *target, Launch *what, Repeat *call)
{
    int code = 0, done = 0;
    if (!PyThread_acquire_lock(self->lock->lock, NOWAIT_LOCK))
        return 0;
    if (guard_is_at(self, target, call)) {
        Patches *patches = call->moved ? target->patches : NULL;
        done = launch_now(what, patches, call->addresses, &code);
        if (done)
            guard_note(self, call);
        else if (patches != NULL) /* some may not be known any more */
            memset(self->addresses, 0, sizeof self->addresses);
    }
    if (done && code == 0) {
        self->repeats++;
        call->result = guard_finish(self, target, call);
    }
    PyThread_release_lock(self->lock->lock);
    if (done && code != 0)
        return launch_failed(what, code);
    return done && call->result == NULL ? -1 : done;
}

/* Tell the arrays that the framework did not give to the latest call that they are used on the stream, and
 * refer to them: 1, 0 if that can't be done, -1 with an error. */
static int
guard_tell(Guard *self, Target *target, Repeat *call)
{
    call->kept = PyTuple_New(self->arrays);
    if (call->kept == NULL)
        return -1;
    for (Py_ssize_t i = 0; i < self->arrays; i++) {
        PyObject *array = call->arrays[i], *known = PyTuple_GET_ITEM(target->kept, i), *reference;
        if (self->addresses[i] == call->addresses[i] && refers_to(known, array)) {
            PyTuple_SET_ITEM(call->kept, i, Py_NewRef(known));
            continue;
        }
        PyObject *answer = PyObject_CallMethodOneArg(array, self->record, target->user);
        if (answer == NULL || (reference = PyWeakref_NewRef(array, NULL)) == NULL) {
            Py_XDECREF(answer);
            return -1;
        }
        Py_DECREF(answer);
        PyTuple_SET_ITEM(call->kept, i, reference);
    }
    return 1;
}

/* Do what the call before did: 1, 0 if Python has to do it, -1 with an error. */
static int
guard_repeat(Guard *self, Target *target, Repeat *call)
{
    Launcher *launcher = (Launcher *)target->launcher;
    Patches *patches = target->patches;
    Launch *what;
    if (launcher == NULL || !guard_takes(self, call->arrays))
        return 0;
    call->moved = memcmp(self->addresses, call->addresses, (size_t)self->arrays * sizeof *self->addresses) != 0;
    if (call->moved && patches == NULL)
        return 0;
    Py_BEGIN_CRITICAL_SECTION(launcher);
    what = (Launch *)Py_XNewRef(launcher->target);
    Py_END_CRITICAL_SECTION();
    if (what == NULL)
        return 0;
    int done = patches == NULL || patches->executable == what->executable;
    if (done && target->kept != NULL && (call->moved || !guard_keeps(self, call->arrays, target->kept)))
        done = target->user == NULL ? 0 : guard_tell(self, target, call);
    if (done > 0)
        done = PyDict_GET_SIZE(self->captures) != 0 ? 0 : guard_launch(self, target, what, call);
    Py_DECREF(what); /* by now it may be the last that holds the executable */
    return done;
}

static void
target_hold(Target *target)
{
    Py_XINCREF(target->where);
    Py_XINCREF(target->questions);
    Py_XINCREF(target->launcher);
    Py_XINCREF(target->result);
    Py_XINCREF(target->finish);
    Py_XINCREF(target->patches);
    Py_XINCREF(target->user);
    Py_XINCREF(target->kept);
}

static void
target_let_go(Target *target)
{
    Py_XDECREF(target->where);
    Py_XDECREF(target->questions);
    Py_XDECREF(target->launcher);
    Py_XDECREF(target->result);
    Py_XDECREF(target->finish);
    Py_XDECREF(target->patches);
    Py_XDECREF(target->user);
    Py_XDECREF(target->kept);
}

static PyObject *
guard_call(PyObject *op, PyObject *const *args, size_t count, PyObject *names)
{
    Guard *self = (Guard *)op;
    PyObject *arrays[MOST_ARRAYS];
    uintptr_t addresses[MOST_ARRAYS];
    Target target;
    if (PyVectorcall_NARGS(count) != 2 || names != NULL || !PyTuple_CheckExact(args[0])
        || !PyDict_CheckExact(args[1])) {
        PyErr_SetString(PyExc_TypeError, "a guard takes a tuple and a dict; pass args and kwargs.");
        return NULL;
    }
    if (PyDict_GET_SIZE(self->captures) != 0 || !guard_fits(self, args[0], args[1], arrays, addresses))
        Py_RETURN_NONE;
    Py_BEGIN_CRITICAL_SECTION(self);
    target = self->target;
    target_hold(&target);
    Py_END_CRITICAL_SECTION();
    Repeat call = {arrays, addresses};
    int ready = target_is_ready(&target), done = ready ? guard_repeat(self, &target, &call) : 0;
    PyObject *answer = call.result;
    if (done == 0 && (answer = list_of(arrays, self->arrays, 1)) != NULL)
        PyList_SET_ITEM(answer, self->arrays, Py_NewRef(ready ? target.where : Py_None));
    Py_XDECREF(call.kept);
    target_let_go(&target);
    return answer;
}
