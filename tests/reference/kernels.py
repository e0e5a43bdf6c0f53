"""Memory of a program of kernels, from the lifetimes of its variables."""

from jax.extend.core import Var

ELEMENT_WISE = {"add", "sub", "mul", "max", "tanh", "sin", "neg", "exp", "div"}


def size(v):
    return v.aval.size * v.aval.dtype.itemsize


def reads(equation):
    return {v for v in equation.invars if isinstance(v, Var)}


def is_written_over(kernel, v):
    """Return whether a kernel with one result may write it over `v`."""
    (made,) = kernel.outvars
    if (v.aval.shape, v.aval.dtype) != (made.aval.shape, made.aval.dtype):
        return False
    if kernel.primitive.name != "jit":
        return kernel.primitive.name in ELEMENT_WISE
    body = kernel.params["jaxpr"].jaxpr
    touched = {dict(zip(kernel.invars, body.invars, strict=True))[v]}
    for equation in body.eqns:
        if reads(equation) & touched:
            if equation.primitive.name not in ELEMENT_WISE:
                return False
            touched |= set(equation.outvars)
    return set(body.outvars) <= touched


def is_dear(program, v):
    """Return whether neither an element-wise equation nor one that moves elements makes `v`."""
    (kernel,) = [equation for equation in program.equations if v in equation.outvars]
    while kernel.primitive.name == "jit":
        kernel = kernel.params["jaxpr"].jaxpr.eqns[-1]
    return kernel.primitive.name not in ELEMENT_WISE | {"transpose", "broadcast_in_dim"}


def usage(program, alone):
    """Return the bytes in use while each kernel runs, without arguments.

    A kernel overwrites an operand that it alone reads. Unless `alone`, it may also overwrite one
    that it is the last to read.
    """
    equations = program.equations
    returned = [v for v in program.outputs if isinstance(v, Var)]
    readers = {}
    for k, equation in enumerate(equations):
        for v in reads(equation):
            readers.setdefault(v, []).append(k)
    made = {v for equation in equations for v in equation.outvars}
    home = {}
    for k, equation in enumerate(equations):
        for v in equation.outvars:
            home[v] = v
        if len(equation.outvars) == 1:
            operands = list(dict.fromkeys(v for v in equation.invars if isinstance(v, Var)))
            free = [
                v
                for v in operands
                if v in made
                and v not in returned
                and readers[v][-1] == k
                and is_written_over(equation, v)
            ]
            first = [v for v in free if readers[v] == [k]]
            if not first and not alone:
                first = [v for v in free if is_dear(program, v)]
            if first:
                home[equation.outvars[0]] = home[first[0]]
    life = {}
    for k, equation in enumerate(equations):
        for v in equation.outvars:
            until = len(equations) if v in returned else max(readers.get(v, [k]))
            first, last = life.get(home[v], (k, k))
            life[home[v]] = first, max(last, until)
    return [
        sum(size(v) for v, (first, last) in life.items() if first <= k <= last)
        for k in range(len(equations))
    ]
