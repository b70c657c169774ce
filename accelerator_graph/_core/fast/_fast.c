/* Replays without a line of Python: a vendor's launch function, called with the handles of an executable
 * and of a stream. What is out of the ordinary is left to a callable in Python: a capture under way, a
 * graph that was reset, another thread that launches the same executable, an error.
 * Guard does the same for the calls of a graphed function, and Watch for the events of a capture that is
 * diagnosed. `call_each` reads a graph, Ask and Recorded ask for one number. Relaxed lets a thread make
 * calls that a capture does not permit.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#if PY_VERSION_HEX < 0x030D0000 /* the GIL is enough there */
#define Py_BEGIN_CRITICAL_SECTION(op) {
#define Py_END_CRITICAL_SECTION() }
#endif

/* As in `extension.py`. Raise both whenever Python can't work with the extension that was built before. */
#define VERSION 4

typedef int (*launch_function)(void *executable, void *stream);
typedef int (*current_function)(void **context);
typedef int (*capturing_function)(void *stream, int *status);

typedef struct {
    PyTypeObject *launch_type;
    PyTypeObject *lock_type;
    PyTypeObject *launcher_type;
    PyTypeObject *relaxed_type;
    PyTypeObject *patches_type;
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

#include "lock.h"
#include "patches.h"
#include "launch.h"
#include "layout.h"
#include "follower.h"
#include "method.h"
#include "guard.h"
#include "repeat.h"
#include "guard_type.h"
#include "calls.h"
#include "ask.h"
#include "relaxed.h"
#include "watch.h"
#if PY_VERSION_HEX >= 0x030C0000
#include "watch_monitoring.h"
#else
#include "watch_tracing.h"
#endif
#include "watch_type.h"

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
    state->launcher_type = add_type(module, &launcher_spec);
    state->relaxed_type = add_type(module, &relaxed_spec);
    state->patches_type = add_type(module, &patches_spec);
    if (state->lock_type == NULL || state->launch_type == NULL || state->launcher_type == NULL
        || state->relaxed_type == NULL || state->patches_type == NULL)
        return -1;
    PyType_Spec *others[] = {&follower_spec, &method_spec, &guard_spec,   &watch_spec,
                             &ask_spec,      &recorded_spec, &relaxing_spec};
    for (size_t i = 0; i < Py_ARRAY_LENGTH(others); i++) {
        PyTypeObject *type = add_type(module, others[i]);
        if (type == NULL)
            return -1;
        Py_DECREF(type); /* the module holds it */
    }
    if (PyModule_AddIntConstant(module, "version", VERSION) < 0)
        return -1;
    return PyModule_AddFunctions(module, calls_functions);
}

static int
module_traverse(PyObject *module, visitproc visit, void *arg)
{
    State *state = PyModule_GetState(module);
    Py_VISIT(state->lock_type);
    Py_VISIT(state->launch_type);
    Py_VISIT(state->launcher_type);
    Py_VISIT(state->relaxed_type);
    Py_VISIT(state->patches_type);
    return 0;
}

static int
module_clear(PyObject *module)
{
    State *state = PyModule_GetState(module);
    Py_CLEAR(state->lock_type);
    Py_CLEAR(state->launch_type);
    Py_CLEAR(state->launcher_type);
    Py_CLEAR(state->relaxed_type);
    Py_CLEAR(state->patches_type);
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
