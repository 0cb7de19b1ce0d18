"""No function of ``hpcbench/train`` takes the whole of a run, its data or its step for one or two of its fields."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hpcbench import train

RECORDS = ("RunContext", "Ranks")
"""Of these everything that is reached is a field."""
OBJECTS = ("DataPath", "TrainingStep", "Trainer")
"""Who calls a method of one of these asks it to work, and may have to take it for that alone."""
FEW = 2
OPAQUE = ("ObserverInputs",)
"""What keeps a whole for others: which fields these reach, the call does not tell."""
EVERYTHING = "everything"
"""What is reached where a whole goes out of sight."""


@dataclass(frozen=True)
class Function:
    """A function or a method with the class that it is of."""

    node: ast.FunctionDef
    owner: ast.ClassDef | None

    @property
    def name(self) -> str:
        """What its callers write: of a constructor, the class."""
        return self.owner.name if self.owner is not None and self.node.name == "__init__" else self.node.name

    @property
    def wholes(self) -> dict[str, str]:
        """Parameters that are a whole, with its class."""
        arguments = self.node.args
        every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        named = {each.arg: ast.walk(each.annotation) for each in every if each.annotation is not None}
        kinds = {
            name: next((each.id for each in nodes if isinstance(each, ast.Name) and each.id in RECORDS + OBJECTS), "")
            for name, nodes in named.items()
        }
        return {name: kind for name, kind in kinds.items() if kind}

    def parameter(self, call: ast.Call, value: ast.expr) -> str | None:
        """The parameter that takes ``value``, an argument of a ``call`` of this function."""
        for keyword in call.keywords:
            if keyword.value is value:
                return keyword.arg
        arguments = self.node.args
        names = [each.arg for each in (*arguments.posonlyargs, *arguments.args)][self.owner is not None :]
        place = next(number for number, each in enumerate(call.args) if each is value)
        return names[place] if place < len(names) else None


class Code:
    """The functions of a package, and what they reach of the wholes that they take."""

    def __init__(self, trees: Iterable[ast.Module]) -> None:
        trees = list(trees)
        self.around = {child: node for tree in trees for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        top = [node for tree in trees for node in tree.body]
        classes = [node for node in top if isinstance(node, ast.ClassDef)]
        self.functions = [Function(node, None) for node in top if isinstance(node, ast.FunctionDef)]
        self.functions += [Function(node, owner) for owner in classes for node in methods_of(owner)]
        self.methods = {
            owner.name: {node.name for node in methods_of(owner) if not is_property(node)}
            for owner in classes
            if owner.name in OBJECTS
        }

    def few(self) -> dict[str, set[str]]:
        """What is reached of each whole that is taken for no more than ``FEW`` fields, by function and parameter."""
        found = {}
        for function in self.functions:
            for parameter, kind in function.wholes.items():
                names = self.reached(function, parameter, frozenset())
                if len(names) <= FEW and not names & {EVERYTHING, *self.methods.get(kind, ())}:
                    found[f"{function.name}({parameter})"] = names
        return found

    def reached(self, function: Function, parameter: str, seen: frozenset[tuple[Function, str]]) -> set[str]:
        """The fields and methods that ``function``, and whom it calls with the same whole, reach of ``parameter``."""
        kind, seen = function.wholes[parameter], seen | {(function, parameter)}
        found: set[str] = set()
        for use in self.uses(function.node, parameter, function.owner):
            around = self.around[use]
            call = self.around[around] if isinstance(around, ast.keyword) else around
            if isinstance(around, ast.Attribute):
                found.add(around.attr)
            elif isinstance(call, ast.Call) and name_of(call) not in OPAQUE:
                takers = {each for each in self.called(call, use) if each[0].wholes[each[1]] == kind}
                assert takers, f"{function.name} hands its {parameter} to {name_of(call)}, which is out of sight"
                for taker in takers - seen:
                    found |= self.reached(*taker, seen)
            else:
                found.add(EVERYTHING)
        return found

    def called(self, call: ast.Call, value: ast.expr) -> Iterator[tuple[Function, str]]:
        """Functions that ``call`` may mean by its name, with their parameter for ``value`` where that is a whole."""
        for each in self.functions:
            if each.name == name_of(call) and (parameter := each.parameter(call, value)) in each.wholes:
                yield each, str(parameter)

    def uses(self, scope: ast.FunctionDef, name: str, owner: ast.ClassDef | None) -> Iterator[ast.expr]:
        """Where ``scope`` uses what is called ``name`` there, also by another name, and where ``self`` keeps it."""
        for node in ast.walk(scope):
            if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load) and written(node) == name:
                other = self.new_name(node)
                if not other:
                    yield node
                elif other.startswith("self.") and owner is not None:
                    for method in methods_of(owner):
                        yield from self.uses(method, other, owner)
                else:
                    yield from self.uses(scope, other, owner)

    def new_name(self, value: ast.expr) -> str:
        """What ``value`` is assigned to, alone or as one of several; empty where it is not."""
        around = self.around[value]
        assign = self.around[around] if isinstance(around, ast.Tuple) else around
        if not isinstance(assign, ast.Assign):
            return ""
        target = assign.targets[0]
        if isinstance(around, ast.Tuple) and isinstance(target, ast.Tuple):
            target = target.elts[around.elts.index(value)]
        return written(target)


def written(node: ast.expr) -> str:
    """A name, or an attribute of ``self``, as it is written; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    return f"self.{node.attr}" if own and isinstance(node, ast.Attribute) else ""


def name_of(call: ast.Call) -> str:
    """The last part of what is called."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def methods_of(owner: ast.ClassDef) -> Iterator[ast.FunctionDef]:
    """Its methods and properties."""
    return (node for node in owner.body if isinstance(node, ast.FunctionDef))


def is_property(node: ast.FunctionDef) -> bool:
    """Whether it is read as a field."""
    return any(isinstance(each, ast.Name) and each.id == "property" for each in node.decorator_list)


def test_no_function_takes_a_whole_for_two_fields() -> None:
    paths = sorted(Path(train.__path__[0]).glob("*.py"))
    code = Code([ast.parse(path.read_text(encoding="utf-8")) for path in paths])
    taken = [kind for function in code.functions for kind in function.wholes.values()]
    assert {*taken} == {*RECORDS, *OBJECTS}
    assert len(taken) > 40
    assert code.few() == {}


NARROW = """
class DataPath:
    def batches(self): ...
    @property
    def length(self): ...

class Keeper:
    def __init__(self, run: RunContext, data: DataPath):
        self.run, self.data = run, data
    def use(self):
        run = self.run
        return run.config, self.run.device, self.data.batches()

def two(run: RunContext): return run.config.train.seed, run.config.optim.lr, run.device
def two_of_one(run: RunContext | None, data: DataPath): return lambda: (run.group, data.length)
def hands_on(run: RunContext): return two(run) or again(run=run)
def again(run: RunContext): return hands_on(run)
"""
WIDE = """
class DataPath:
    def batches(self): ...

class Keeper:
    def __init__(self, run: RunContext): self.run = run
    def use(self): return self.run.config, self.run.device, three(self.run)

def three(run: RunContext): return run.config, run.device, run.group
def more(run: RunContext): return run.log, three(run)
def asks(data: DataPath): return data.batches()
def keeps(run: RunContext): return ObserverInputs(run)
"""


def test_one_that_does_is_found_also_where_it_keeps_the_whole_or_hands_it_on() -> None:
    assert Code([ast.parse(NARROW)]).few() == {
        "Keeper(run)": {"config", "device"},
        "two(run)": {"config", "device"},
        "two_of_one(run)": {"group"},
        "two_of_one(data)": {"length"},
        "hands_on(run)": {"config", "device"},
        "again(run)": {"config", "device"},
    }
    assert Code([ast.parse(WIDE)]).few() == {}
