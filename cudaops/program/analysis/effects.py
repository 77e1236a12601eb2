"""What a node of a tree may do: what it changes and reads, whether it is pure, leaves or waits.

One answer to each question for facts, recipes and transformations, which is why it is beside
the facts: transformations may ask it, and it asks none of them. It looks at trees alone, so that
what it says holds for every launch, and takes what it does not know to do the worst.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from cudaops.program import syntax as s
from cudaops.program.analysis.library_calls import (
    ATOMICS,
    MEMORY_READS,
    PURE,
    STORES,
    gives_value,
    leaves_names,
)

_ASSEMBLY = frozenset({"asm_stmt", "ms_asm_stmt"})


def reached(node: Any, form: s.KernelForm) -> Iterator[Any]:
    """Everything below a node, and in the program's functions that it calls, each of them once."""
    waiting, seen = [node], set[str]()
    while waiting:
        for x in s.below(waiting.pop()):
            yield x
            if isinstance(x, s.Call) and x.function not in seen:
                seen.add(x.function)
                if (function := form.function(x.function)) is not None:
                    waiting.append(function)


# Volatile memory


def has_volatile(node: Any) -> bool:
    """Whether a volatile variable or place is in a function, statement or expression."""
    return any(getattr(x, "is_volatile", False) for x in s.below(node))


def is_volatile(function: s.Function, form: s.KernelForm) -> bool:
    """Whether a function has volatile memory or assembly in it, of whose accesses none may be
    moved or left out; or volatile memory is in what its loops call.

    What it calls elsewhere is left out, as it stays where it is: the last warp's sums of a block.
    """
    if has_volatile(function):
        return True
    if any(isinstance(x, s.Opaque) and x.what in _ASSEMBLY for x in s.below(function)):
        return True
    loops = tuple(x for x in s.below(function.body) if isinstance(x, s.For | s.Do))
    return any(getattr(x, "is_volatile", False) for x in reached(loops, form))


# What it names


def names_in(node: Any) -> set[str]:
    """Variables that stand anywhere in it, and constants that are known by their values."""
    found: set[str] = set()
    for x in s.below(node):
        if isinstance(x, s.Name):
            found.add(x.text)
        elif isinstance(x, s.Number) and x.constant:
            found.add(x.constant)
    return found


def calls_in(node: Any) -> set[str]:
    """Functions that it calls."""
    return {x.function for x in s.below(node) if isinstance(x, s.Call)}


def root_of(place: Any) -> str | None:
    """The variable that a place is reached through: `a` of `a[i].x`; None for any other."""
    while True:
        match place:
            case s.Name(text):
                return text
            case s.Member(base) | s.Index(base):
                place = base
            case s.Unary("*", operand) | s.Cast(_, operand):
                place = operand
            case s.Binary("+" | "-", left):
                place = left
            case _:
                return None


def owner_of(place: Any) -> str:
    """The variable whose own storage a place is in, arrays included; empty for a place that a
    pointer leads to. A new name, of which nobody says what it is, counts as an array."""
    match place:
        case s.Name(text):
            return text
        case s.Member(base):
            return owner_of(base)
        case s.Index(base) | s.Unary("*", base) if "[" in (kind := getattr(base, "type", "")) or (
            not kind and isinstance(base, s.Name | s.Member | s.Index)
        ):
            return owner_of(base)
    return ""


def is_element(place: Any) -> bool:
    """Whether a place is in an element of an array, or where a pointer leads."""
    while isinstance(place, s.Member):
        place = place.base
    return not isinstance(place, s.Name)


def is_pointed_at(place: Any) -> bool:
    """Whether a place is reached through a pointer that a variable holds: `row.data[i]`."""
    for x in s.below(place):
        if isinstance(x, s.Index) or (isinstance(x, s.Unary) and x.operator == "*"):
            base = x.base if isinstance(x, s.Index) else x.operand
            if isinstance(base, s.Member) and base.type.endswith("*"):
                return True
    return False


# What it changes


def targets_in(node: Any) -> Iterator[s.Expression]:
    """Places that it assigns, or steps by `++` and `--`; what calls change is not among them."""
    for x in s.below(node):
        if isinstance(x, s.Assign | s.Step):
            yield x.target


def places_written(node: Any, form: s.KernelForm) -> Iterator[s.Expression]:
    """Places that it may write or make known by another name: what is assigned, what a reference
    or an address is taken of, what a call is handed by reference, and names in what is not
    modelled. What a called function writes through a pointer is not among them."""
    for x in s.below(node):
        yield from places_of(x, form)


def places_of(node: Any, form: s.KernelForm) -> Iterator[s.Expression]:
    """The same of one node, without what is below it."""
    match node:
        case s.Assign(target) | s.Step(target) | s.Refer(_, _, target) | s.Unary("&", target):
            yield from _alternatives(target)
        case s.Call():
            for place in _handed(node, form):
                yield from _alternatives(place)
        case s.Unmodelled():
            yield from map(s.Name, sorted(names_in(node)))
        case s.Opaque(_, written, read):
            for place in written:
                yield from _alternatives(place)
            yield from (s.Unary("*", x) for x in read if getattr(x, "type", "").endswith("*"))


def _alternatives(place: Any) -> Iterator[s.Expression]:
    match place:
        case s.Choice(_, yes, no):
            yield from _alternatives(yes)
            yield from _alternatives(no)
        case s.Binary(",", _, last) | s.Assign(last) | s.Step(last):
            yield from _alternatives(last)
        case _:
            yield place


def _handed(call: s.Call, form: s.KernelForm) -> Iterator[s.Expression]:
    """Arguments that a call may change by their names. One that is no place is a temporary."""
    function, arguments = form.function(call.function), call.arguments
    if function is None:
        if call.function in ATOMICS | STORES | {"memcpy", "memset"}:
            yield from (s.Unary("*", x) for x in arguments[:1])
        elif not leaves_names(call.function):
            yield from (x for x in arguments if root_of(x) is not None)
        return
    if function.is_method and arguments:
        if not (function.is_const or function.name in pure_functions(form)):
            yield arguments[0]
        arguments = arguments[1:]
    if len(function.parameters) != len(arguments):
        yield from (x for x in arguments if root_of(x) is not None)
        return
    reads_only = function.name in pure_functions(form)
    for parameter, argument in zip(function.parameters, arguments, strict=True):
        if parameter.is_reference and not isinstance(argument, s.Number):
            yield argument
        elif "[" in getattr(argument, "type", "") and not (reads_only or parameter.is_const):
            yield s.Unary("*", argument)  # an array of the caller's


def changed_variables(node: Any, form: s.KernelForm, *, arrays: bool = False) -> set[str]:
    """Variables that it may change or make known by another name. What a pointer leads to is none
    of them; `arrays`: those of which it may change an element are."""
    return {name for x in s.below(node) for name in changed_by(x, form, arrays=arrays)}


def changed_by(node: Any, form: s.KernelForm, *, arrays: bool = True) -> set[str]:
    """The same of one node, without what is below it."""
    found: set[str] = set()
    for place in places_of(node, form):
        if isinstance(place, s.Call):  # what it gives may be another name for what it was given
            found |= names_in(place)
        elif arrays or not is_element(place):
            found.add(owner_of(place))
    return found - {""}


def aliased_variables(node: Any, form: s.KernelForm) -> set[str]:
    """Those that it makes known by another name or hands to a function by reference, arrays
    included: an assignment alone is neither."""
    found: set[str] = set()
    for x in s.below(node):
        if not isinstance(x, s.Assign | s.Step):
            found |= changed_by(x, form)
    return found


def written_names(node: Any, form: s.KernelForm) -> set[str] | None:
    """Variables that it may write or make known by another name, and the names that it writes
    memory through; None where that cannot be told."""
    found: set[str] = set()
    for x in s.below(node):
        if isinstance(x, s.Opaque) and x.what not in _ASSEMBLY:
            return None
        if isinstance(x, s.Unmodelled) and "lambda" in x.what:
            return None
        for place in places_of(x, form):
            if isinstance(place, s.Call) or (root := root_of(place)) is None:
                if isinstance(x, s.Call) and not isinstance(place, s.Call):
                    continue  # a temporary
                return None
            found.add(root)
    return found


def all_written_names(node: Any, form: s.KernelForm) -> set[str]:
    """The same. Raises NotUnderstood where that cannot be told, and for assembly."""
    opaque = next((x for x in s.below(node) if isinstance(x, s.Opaque)), None)
    if opaque is not None:
        raise s.NotUnderstood(f"{opaque.what} in a loop")
    found = written_names(node, form)
    if found is None:
        raise s.NotUnderstood("a write to an unknown address")
    return found


def may_write(node: Any, names: Collection[str], form: s.KernelForm) -> bool:
    """Whether it may change a variable of these names, or declares one."""
    if any(isinstance(x, s.Declare | s.Refer) and x.name in names for x in s.below(node)):
        return True
    written = written_names(node, form)
    return written is None or not written.isdisjoint(names)


def writes_memory(node: Any, form: s.KernelForm) -> bool:
    """Whether it, or what it calls, may write anything but variables by their names."""
    nodes = list(reached(node, form))
    other = {x.name for x in nodes if isinstance(x, s.Refer)}
    for x in nodes:
        match x:
            case s.Call(name):
                if form.function(name) is None and name not in PURE:
                    return True
                if any(owner_of(place) != root_of(place) for place in _handed(x, form)):
                    return True
            case s.Assign(target) | s.Step(target):
                while isinstance(target, s.Member):
                    target = target.base
                if not isinstance(target, s.Name) or target.text in other:
                    return True
    return False


# What gives a value and does nothing else


def is_pure(node: Any, functions: Collection[str] = ()) -> bool:
    """Whether an expression gives a value and does nothing else: it may read memory, but no
    volatile one.

    `functions`: further ones that are known to be pure.
    """
    for x in s.below(node):
        if isinstance(x, s.Assign | s.Step | s.Unmodelled | s.Opaque):
            return False
        if getattr(x, "is_volatile", False):
            return False
        if isinstance(x, s.Call) and not (
            x.function in PURE or x.function in functions or _copies_group(x)
        ):
            return False
    return True


def _copies_group(call: s.Call) -> bool:
    return call.function == call.type and call.type.startswith("cooperative_groups::")


def has_effects(node: Any, local: Collection[str], pure: Collection[str] = ()) -> bool:
    """Whether it changes anything but these variables, or calls what may; `pure`: functions of the
    program that do not. A statement that does not is one that may run more or less often."""
    return any(_has_effect(x, local, pure) for x in s.below(node))


def _has_effect(node: Any, local: Collection[str], pure: Collection[str]) -> bool:
    if getattr(node, "is_volatile", False):
        return True
    match node:
        case s.Assign(target) | s.Step(target):
            return root_of(target) not in local or is_pointed_at(target)
        case s.Call(function):
            return function not in pure and not gives_value(function)
        case s.Unmodelled(what):
            return what != "cxx_null_ptr_literal_expr"
        case s.Declare(shared=is_shared):
            return is_shared
        case s.Opaque() | s.Refer():
            return True
    return False


def pure_functions(form: s.KernelForm) -> frozenset[str]:
    """Functions of the program that give a value of their arguments and memory, and change nothing
    but variables of their own."""
    held: frozenset[str] | None = form.__dict__.get("_pure_functions")
    if held is None:
        held = form.__dict__["_pure_functions"] = _pure_functions(form)
    return held


def _pure_functions(form: s.KernelForm) -> frozenset[str]:
    found: set[str] = set()
    while now := {f.name for f in form.functions if f.name not in found and _is_pure(f, found)}:
        found |= now
    return frozenset(found)


def _is_pure(function: s.Function, known: set[str]) -> bool:
    if function.where is None or function.body_where is None or function.gives_reference:
        return False
    local = {p.name for p in function.parameters if not (p.is_pointer or p.is_reference)}
    return not has_effects(function.body, local | set(local_variables(function.body)), known)


def local_variables(body: Any) -> Iterator[str]:
    """Variables declared anywhere in a body that are the thread's own, arrays too; pointers are
    not: they lead elsewhere."""
    for node in s.below(body):
        if isinstance(node, s.Declare) and not node.shared and not node.pointer:
            yield node.name


# What it reads


def reads_memory(node: Any) -> bool:
    """Whether an expression goes through a pointer or an array."""
    return any(
        isinstance(x, s.Index) or (isinstance(x, s.Unary) and x.operator == "*")
        or (isinstance(x, s.Call) and x.function in MEMORY_READS)
        for x in s.below(node)
    )  # fmt: skip


def plain_variables(function: s.Function) -> frozenset[str]:
    """Variables and parameters that are the thread's own and reached by their names alone: no
    arrays, pointers, references or shared ones, and none whose address is taken.

    A function with statements that are not modelled has none.
    """
    if any(isinstance(x, s.Opaque) for x in s.below(function.body)):
        return frozenset()
    found = {p.name for p in function.parameters if not (p.is_pointer or p.is_reference)}
    reached: set[str | None] = set()
    for x in s.below(function.body):
        match x:
            case s.Declare(pointer=False, shared=False, extents=()):
                found.add(x.name)
            case s.Refer(_, _, target) | s.Unary("&", target):
                reached.add(root_of(target))
            case s.Unmodelled():
                reached |= names_in(x)
    return frozenset(found - reached)


# Which way it goes on, and with whom


def is_return(node: Any) -> bool:
    """Whether a statement is a `return`, with a value or without."""
    return isinstance(node, s.Give) or (isinstance(node, s.Leave) and node.word == "return")


def has_return(node: Any) -> bool:
    """Whether a `return` is in it."""
    return any(map(is_return, s.below(node)))


def has_jump(node: Any) -> bool:
    """Whether a `break`, `continue` or `return` is in it, wherever it leads."""
    return any(isinstance(x, s.Leave | s.Give) for x in s.below(node))


def has_early_exit(body: Any, within: str = "") -> bool:
    """Whether a jump leads out of these statements: those of inner loops end there. `within`: words
    that stay, as `continue` does in a loop's body. What is not modelled may lead anywhere."""
    return any(_leads_out(x, within) for x in body)


def _leads_out(node: Any, within: str) -> bool:
    match node:
        case s.Leave(word):
            return word not in within.split()
        case s.Give():
            return "return" not in within.split()
        case s.Opaque(what):
            return what not in _ASSEMBLY
        case s.For() | s.Do():
            within += " break continue"
        case s.Switch():
            within += " break"
    return any(_leads_out(x, within) for x in s.children(node))


def synchronises(node: Any, form: s.KernelForm) -> bool:
    """Whether threads synchronise in it, or may: barriers, shuffles, votes, unknown calls."""
    for x in reached(node, form):
        match x:
            case s.Opaque():
                return True
            case s.Call(name):
                known = form.function(name) is not None or gives_value(name)
                if not (known or name.startswith("atomic")):
                    return True
    return False
