"""Every way in which threads can follow each other: a small interpreter of LLVM IR, and an explorer of its states.

A thread is stopped before each access to what threads share, each sleep and call, and both ends of a kernel; what lies
between is its own business. An access is one step, which all threads see: weaker orderings are not modelled.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

Locals: TypeAlias = tuple[tuple[str, int], ...]

_MASK = {"i1": 1, "i32": 2**32 - 1, "i64": 2**64 - 1, "ptr": 2**64 - 1}
_SIZE = {"i8": 1, "i32": 4, "i64": 8}
_COMPARE: Mapping[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "ugt": lambda a, b: a > b,
    "uge": lambda a, b: a >= b,
}
_ARITHMETIC: Mapping[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "udiv": lambda a, b: a // b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "shl": lambda a, b: a << b,
    "lshr": lambda a, b: a >> b,
}
_FORMS = {
    "phi": r"phi \w+ (?P<incoming>.*)",
    "element": r"getelementptr (?P<type>\w+), ptr (?P<a>\S+), i64 (?P<b>\S+)",
    "load": r"load (?P<atomic>atomic )?(?P<type>\w+), ptr (?P<a>[^ ,]+).*",
    "store": r"store (?P<atomic>atomic )?\w+ (?P<b>\S+), ptr (?P<a>[^ ,]+).*",
    "modify": r"atomicrmw (?P<how>add|sub) ptr (?P<a>\S+), (?P<type>\w+) (?P<b>\d+) .*",
    "swap": r"cmpxchg ptr (?P<a>\S+), i64 (?P<b>\S+), i64 (?P<c>\S+) .*",
    "held": r"extractvalue \{ i64, i1 \} (?P<a>\S+), 1",
    "compare": r"icmp (?P<how>\w+) \w+ (?P<a>\S+), (?P<b>\S+)",
    "select": r"select i1 (?P<a>\S+), \w+ (?P<b>\S+), \w+ (?P<c>\S+)",
    "truncate": r"trunc i64 (?P<a>\S+) to (?P<type>i32)",
    "arithmetic": r"(?P<how>add|sub|mul|udiv|and|or|shl|lshr) (?P<type>\w+) (?P<a>\S+), (?P<b>\S+)",
    "jump": r"br label %(?P<on>\S+)",
    "branch": r"br i1 (?P<a>\S+), label %(?P<on>\S+), label %(?P<off>\S+)",
    "call": r"call \w+ (?P<callee>[@%][\w.]+)\((?P<arguments>.*)\)",
    "return": r"ret .*",
}


@dataclass(frozen=True, slots=True)
class Instruction:
    """One line: its form, its parts, the local value that it defines, and those alive before it."""

    form: str
    result: str
    parts: Mapping[str, str]
    operands: tuple[str, ...]
    alive: frozenset[str] = frozenset()

    @property
    def is_seen(self) -> bool:
        """Return whether other threads can observe the instruction."""
        if self.form == "call":
            return self.parts["callee"][0] == "%" or self.parts["callee"] in ("@sleep_on", "@wake_all", "@tell")
        return self.form in ("modify", "swap") or bool(self.parts.get("atomic"))


@dataclass(frozen=True, slots=True)
class Function:
    """Its parameters, its lines, and where each of its blocks begins."""

    parameters: tuple[str, ...]
    lines: tuple[Instruction, ...]
    blocks: Mapping[str, int]


def parse(text: str) -> dict[str, Function]:
    """Return the functions of a module by name; those that make system calls are left out."""
    found = {}
    for name, parameters, body in re.findall(r"^define [^@]*@(\w+)\(([^)]*)\)[^{]*\{\n(.*?)^\}", text, re.M | re.S):
        if "@syscall" in body or "@clock_gettime" in body:
            continue
        lines: list[Instruction] = []
        blocks: dict[str, int] = {}
        for line in filter(None, map(str.strip, body.splitlines())):
            if line.endswith(":"):
                blocks[line[:-1]] = len(lines)
            elif "llvm." not in line:  # a pause
                lines.append(_instruction(line))
        found[name] = Function(tuple(re.findall(r"%\w+", parameters)), tuple(_living(lines, blocks)), blocks)
    return found


def _instruction(line: str) -> Instruction:
    result, equals, rest = line.partition(" = ")
    rest, result = (rest, result) if equals else (line, "")
    for form, pattern in _FORMS.items():
        if match := re.fullmatch(pattern, rest):
            labels = ("on", "off")
            shown = " ".join(text or "" for name, text in match.groupdict().items() if name not in labels)
            operands = re.findall(r"%\w+", re.sub(r", %\w+ \]", "", shown))
            return Instruction(form, result, match.groupdict(), tuple(operands))
    raise ValueError(f"not understood: {line}")


def _living(lines: list[Instruction], blocks: Mapping[str, int]) -> Iterator[Instruction]:
    """Yield the lines with the values that are still to be read when each begins, so that others make no new states."""
    alive: list[frozenset[str]] = [frozenset()] * len(lines)
    previous = None
    while alive != previous:
        previous = list(alive)
        for at in reversed(range(len(lines))):
            line = lines[at]
            targets = [blocks[line.parts[key]] for key in ("on", "off") if line.parts.get(key)]
            follows = targets or ([at + 1] if line.form != "return" else [])
            after = frozenset[str]().union(*(alive[each] for each in follows))
            alive[at] = (after - {line.result}) | frozenset(line.operands)
    return (replace(line, alive=living) for line, living in zip(lines, alive, strict=True))


class Thread(NamedTuple):
    """Name of a thread, its call stack, innermost last, the word it sleeps on, and the kernel it is in."""

    name: str
    frames: tuple[tuple[str, int, Locals], ...]
    asleep: int = 0
    kernel: tuple[int, ...] = ()


class State(NamedTuple):
    """Everything there is: shared words, threads as the machine numbers them, and whatever the observer keeps."""

    memory: tuple[int, ...]
    threads: tuple[int, ...]
    ledger: Any


@dataclass(slots=True, eq=False)
class Machine:
    """Module that threads run.

    Args:
        constants: words that no thread changes, by address.
        shared: the addresses of all other words.
        observe: the ledger after a kernel began or ended, or after ``@tell(n)``; raises where that should not be.
        may_wake: whether waiters also wake up for no reason, as the system allows itself.
    """

    functions: Mapping[str, Function]
    constants: Mapping[int, int]
    shared: tuple[int, ...]
    observe: Callable[[Any, str, tuple[int, ...]], Any]
    may_wake: bool = False
    reached: set[tuple[str, int]] = field(default_factory=set)
    _threads: list[Thread] = field(default_factory=list)
    _numbers: dict[Thread, int] = field(default_factory=dict)
    _known: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)

    def start(self, threads: Iterable[tuple[str, str, *tuple[int, ...]]], ledger: Any) -> State:
        """Return the first state, with all shared words zero.

        Args:
            threads: of each its name, its function, and its arguments.
        """
        made = (self._enter(Thread(name, ()), call, given) for name, call, *given in threads)
        return State((0,) * len(self.shared), tuple(sorted(map(self._number, made))), ledger)

    def threads(self, state: State) -> list[Thread]:
        """Return the threads of a state."""
        return [self._threads[number] for number in state.threads]

    def following(self, state: State) -> Iterator[tuple[str, State]]:
        """Yield the threads that may go on, and the state after that. Threads of one name are equivalent."""
        for number in set(state.threads):
            thread = self._threads[number]
            if thread.frames and not thread.asleep:
                yield thread.name, self._step(state, number)
            elif thread.frames and self.may_wake:
                yield "spurious wake-up", _with(state, number, self._number(thread._replace(asleep=0)))

    def _number(self, thread: Thread) -> int:
        number = self._numbers.setdefault(thread, len(self._threads))
        if number == len(self._threads):
            self._threads.append(thread)
        return number

    def _step(self, state: State, number: int) -> State:
        """Run a step of a thread that others can observe, and its private steps up to the next."""
        thread = self._threads[number]
        name, at, kept = thread.frames[-1]
        line, values = self.functions[name].lines[at], dict(kept)
        if line.form != "call":
            word = self.shared.index(_value(line.parts["a"], values))
            after, value = self._access(number, state.memory[word])
            return _with(state, number, after, memory=(*state.memory[:word], value, *state.memory[word + 1 :]))
        callee, arguments = line.parts["callee"], _arguments(line, values)
        if callee[0] == "%" and not thread.kernel:
            kernel = (_value(callee, values), arguments[1])
            began = self._number(thread._replace(kernel=kernel))
            return _with(state, number, began, ledger=self.observe(state.ledger, "begin", kernel))
        after, _ = self._access(number, 0)
        if callee == "@sleep_on":
            if state.memory[self.shared.index(arguments[0])] & _MASK["i32"] == arguments[1]:
                after = self._number(self._threads[after]._replace(asleep=arguments[0]))
            return _with(state, number, after)
        if callee == "@wake_all":
            asleep = [each for each in state.threads if self._threads[each].asleep == arguments[0]]
            for each in asleep:
                state = _with(state, each, self._number(self._threads[each]._replace(asleep=0)))
            return _with(state, number, after)
        event = ("tell", arguments) if callee == "@tell" else ("end", thread.kernel)
        return _with(state, number, after, ledger=self.observe(state.ledger, *event))

    def _access(self, number: int, value: int) -> tuple[int, int]:
        """Return the thread after its step on a word of this value, and the word's new value; cached."""
        if (number, value) in self._known:
            return self._known[number, value]
        thread = self._threads[number]
        name, at, kept = thread.frames[-1]
        line, values = self.functions[name].lines[at], dict(kept)
        self.reached.add((name, at))
        parts, after = line.parts, value
        if line.form == "store":
            after = _value(parts["b"], values)
        elif line.form == "swap":
            values[line.result] = int(value == _value(parts["b"], values))
            after = _value(parts["c"], values) if values[line.result] else value
        elif line.result:
            values[line.result] = value
            if line.form == "modify":
                after = _ARITHMETIC[parts["how"]](value, int(parts["b"])) & _MASK[parts["type"]]
        frames = (*thread.frames[:-1], (name, at + 1, tuple(values.items())))
        found = self._number(self._own_business(thread._replace(frames=frames, kernel=())))
        self._known[number, value] = found, after
        return found, after

    def _enter(self, thread: Thread, name: str, arguments: Iterable[int]) -> Thread:
        values = tuple(zip(self.functions[name].parameters, arguments, strict=True))
        return self._own_business(thread._replace(frames=(*thread.frames, (name, 0, values))))

    def _own_business(self, thread: Thread) -> Thread:
        """Go on to the next line that others can see, or to the end; keep only values that are still read."""
        name, at, kept = thread.frames[-1]
        function, values, before = self.functions[name], dict(kept), "entry"
        while not function.lines[at].is_seen:
            line = function.lines[at]
            self.reached.add((name, at))
            at += 1
            if line.form in ("jump", "branch"):
                is_on = line.form == "jump" or _value(line.parts["a"], values)
                before, at = _block_at(function, at - 1), function.blocks[line.parts["on" if is_on else "off"]]
            elif line.form == "phi":
                values[line.result] = _value(_chosen(line, before), values)
            elif line.form == "return":
                thread = thread._replace(frames=thread.frames[:-1])
                return self._own_business(thread) if thread.frames else thread
            elif line.form == "call":
                frames = (*thread.frames[:-1], (name, at, _alive(function, at, values)))
                callee = line.parts["callee"].removeprefix("@")
                return self._enter(thread._replace(frames=frames), callee, _arguments(line, values))
            elif line.form == "store":
                if self.constants[_value(line.parts["a"], values)] != _value(line.parts["b"], values):
                    raise ValueError("a constant word was changed")
            else:
                values[line.result] = self._compute(line, values)
        return thread._replace(frames=(*thread.frames[:-1], (name, at, _alive(function, at, values))))

    def _compute(self, line: Instruction, values: Mapping[str, int]) -> int:
        parts = line.parts
        a, b, c = (_value(parts[key], values) if parts.get(key) else 0 for key in "abc")
        if line.form == "load":
            return self.constants[a]
        if line.form == "element":
            return a + b * _SIZE[parts["type"]]
        if line.form == "compare":
            return int(_COMPARE[parts["how"]](a, b))
        if line.form == "select":
            return b if a else c
        if line.form == "arithmetic":
            return _ARITHMETIC[parts["how"]](a, b) & _MASK[parts["type"]]
        return a & _MASK[parts.get("type", "i64")]


def _with(state: State, number: int, after: int, **changed: Any) -> State:
    threads = list(state.threads)
    threads[threads.index(number)] = after
    return state._replace(threads=tuple(sorted(threads)), **changed)


def _value(text: str, values: Mapping[str, int]) -> int:
    return values[text] if text[0] == "%" else 0 if text == "null" else int(text)


def _arguments(line: Instruction, values: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(_value(each.split()[-1], values) for each in filter(None, line.parts["arguments"].split(", ")))


def _alive(function: Function, at: int, values: Mapping[str, int]) -> Locals:
    return tuple(sorted((name, value) for name, value in values.items() if name in function.lines[at].alive))


def _block_at(function: Function, at: int) -> str:
    return max((start, name) for name, start in function.blocks.items() if start <= at)[1]


def _chosen(phi: Instruction, before: str) -> str:
    return re.findall(rf"\[ (\S+), %{before} \]", phi.parts["incoming"])[0]


def explore(machine: Machine, first: State) -> tuple[list[State], list[list[tuple[str, int]]]]:
    """Return all reachable states, with the threads that may go on and the states they lead to."""
    numbers, states, edges = {first: 0}, [first], []
    for state in states:
        edges.append([])
        for name, after in machine.following(state):
            if after not in numbers:
                numbers[after] = len(states)
                states.append(after)
            edges[-1].append((name, numbers[after]))
    return states, edges


def comes_to_an_end(edges: list[list[tuple[str, int]]]) -> bool:
    """Return whether no thread can go on for ever; spurious wake-ups do not count."""
    following = [[after for name, after in each if name != "spurious wake-up"] for each in edges]
    waiting = [0] * len(edges)
    for after in (after for each in following for after in each):
        waiting[after] += 1
    free = [number for number, count in enumerate(waiting) if not count]
    for number in free:
        for after in following[number]:
            waiting[after] -= 1
            if not waiting[after]:
                free.append(after)
    return len(free) == len(edges)
