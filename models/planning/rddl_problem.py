"""Planning problems in RDDL: boolean and enumerated fluents, with their expectations as a program.

A fluent's next value is a Bernoulli variable whose probability is an expression of the present fluents and actions;
the reward is an expression too. Both are translated to polynomials of probabilities (`expression_graph`) and laid out
for XLA (`fluent_program`).

Sanner (2010), "Relational dynamic influence diagram language (RDDL): language description"; files and parser:
Taitler et al. (2022), "pyRDDLGym: from RDDL to gym environments".
"""

from __future__ import annotations

import contextlib
import difflib
import itertools
import os
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ethogram.models.arguments import require_one_of
from ethogram.models.planning.action_rules import action_rules, read_conditions
from ethogram.models.planning.expression_graph import ExpressionGraph, Node
from ethogram.models.planning.fluent_program import compile_program
from ethogram.models.planning.local_expectation import local_expectation
from ethogram.models.planning.lookahead import look_ahead
from ethogram.models.planning.planning_problem import PlanningProblem
from ethogram.models.planning.rddl_expressions import Quantity, RDDLExpressions, grounded_name

__all__ = ["domain_names", "problem_from_model", "read_rddl"]

SEMANTICS = ("expression", "local")
REFUSED = re.compile(
    r"(?m)^[^/\n]*\{\s*(observ-fluent|action-fluent\s*,(?!\s*bool)|(state|interm|derived)-fluent\s*,\s*(int|real)\b)"
)
"""Declarations, outside of comments, of fluents that are refused."""
_IMPORTING = threading.RLock()


def read_rddl(
    domain: str | os.PathLike[str], instance: str | int | os.PathLike[str], *, semantics: str = "expression"
) -> PlanningProblem:
    """The planning problem of two RDDL files, or of a domain of rddlrepository and the number of its instance.

    Parameters
    ----------
    domain : path of a domain file, or a name such as ``SysAdmin_MDP_ippc2011``.
    instance : path of an instance file, or a name or number.
    semantics : how an expression that names a fluent twice is read. ``"expression"``: operator by operator, as if its
        parts were independent, as in the authors' program. ``"local"``: exactly, given independent parents, for
        fluents of up to 12 parents.

    Raises
    ------
    ImportError : pyRDDLGym, or rddlrepository for a name, is not installed.
    FileNotFoundError : there is no such file, domain or instance.
    ValueError : the files cannot be parsed; names the file and the line. Or the state is hidden (a POMDP), or an
        expression is not supported; names the fluent.
    """
    require_one_of("semantics", semantics, SEMANTICS)
    domain_path, instance_path = _paths(domain, instance)
    try:
        with _backend_kept():
            from pyRDDLGym.core.parser.parser import RDDLParser
            from pyRDDLGym.core.parser.reader import RDDLReader
        from ply import yacc
    except ImportError as error:
        raise ImportError("RDDL files need pyRDDLGym: pip install 'ethogram[planning]'") from error
    try:
        RDDLReader(domain_path, instance_path)  # refuses files without the blocks that they need
        texts = [Path(path).read_text("utf-8-sig", "replace") for path in (domain_path, instance_path)]
        parser = RDDLParser(None, False)
        parser.p_error = parser.lexer._lexer.lexerrorf = _refuse_token
        parser.build(errorlog=yacc.NullLogger(), debug=False)  # debug would write a report beside the parser
        tree = parser.parse("\n".join(texts))
    except _UnexpectedTokenError as error:
        line, reason = error.args
        text, path = texts[0], domain_path
        if line is None or line > text.count("\n") + 1:
            line = None if line is None else line - text.count("\n") - 1
            text, path = texts[1], instance_path
        line = line or text.rstrip().count("\n") + 1
        source = text.split("\n")[line - 1].strip()
        raise ValueError(f"{path} cannot be parsed, line {line}: {reason} in {source}") from None
    except Exception as error:
        raise ValueError(f"{domain_path} and {instance_path} cannot be parsed: {error}") from error
    if tree is None:
        raise ValueError(f"{domain_path} and {instance_path} cannot be parsed")
    return _problem(tree, semantics)


class _UnexpectedTokenError(Exception):
    """The line of both texts that cannot be parsed, None for their end, and what is wrong in it."""


def _refuse_token(token: Any) -> None:
    """Raise an error for a token at which parsing ends, None at the end, or for a character that starts none.

    Blanks that the parser does not know, such as those that text processors write, are skipped.
    """
    if token is None:
        raise _UnexpectedTokenError(None, "it ends too early")
    if token.type == "error" and token.value[0].isspace():
        token.lexer.skip(1)
    elif token.type == "error":
        raise _UnexpectedTokenError(token.lexer.lineno, f"{token.value[0]!r} is no character of RDDL")
    else:
        raise _UnexpectedTokenError(token.lineno, f"{str(token.value)!r} is unexpected")


def problem_from_model(model: Any, *, semantics: str = "expression") -> PlanningProblem:
    """The planning problem of an environment's model, such as ``pyRDDLGym.make(...).model``.

    Raises
    ------
    TypeError : `model` has no parsed RDDL tree `ast`.
    ValueError : as for :func:`read_rddl`.
    """
    require_one_of("semantics", semantics, SEMANTICS)
    tree = getattr(model, "ast", None)
    if not hasattr(tree, "domain") or not hasattr(tree, "instance"):
        raise TypeError(f"model is {type(model).__name__}: expected the model of a pyRDDLGym environment")
    return _problem(tree, semantics)


@contextlib.contextmanager
def _backend_kept() -> Iterator[None]:
    """Keep matplotlib's backend: pyRDDLGym's import sets one without windows, and notebooks would show no figure.

    Other threads may set one meanwhile.
    """
    if "pyRDDLGym" in sys.modules:
        yield
        return
    import matplotlib

    importing, use = threading.get_ident(), matplotlib.use

    def kept(*names: Any, **settings: Any) -> None:
        if threading.get_ident() != importing:
            use(*names, **settings)

    with _IMPORTING:
        matplotlib.use, use = kept, matplotlib.use
        try:
            yield
        finally:
            matplotlib.use = use


def _paths(domain: Any, instance: Any) -> tuple[str, str]:
    """Paths of the two files."""
    if not isinstance(domain, str | os.PathLike):
        raise TypeError(f"domain is {domain!r}: expected the path of a file, or a name")
    if isinstance(instance, bool) or not isinstance(instance, str | int | os.PathLike):
        raise TypeError(f"instance is {instance!r}: expected the path of a file, a name or a number")
    if Path(domain).suffix == ".rddl" or Path(domain).is_file():
        for name, path in (("domain", domain), ("instance", instance)):
            if not Path(str(path)).is_file():
                raise FileNotFoundError(f"{name}: there is no file {path}")
        return str(domain), str(instance)
    manager = _repository(f"there is no file {domain}, and names of domains")
    if str(domain) not in manager.list_problems():
        known = domain_names()
        asked, families = str(domain).lower(), [name.lower().partition("_")[0] for name in known]
        alike = difflib.get_close_matches(asked.partition("_")[0], families, 1)
        pairs = zip(known, families, strict=True)
        close = [name for name, family in pairs if asked in name.lower() or family in alike][:6]
        hint = f"did you mean {', '.join(close)}? " if close else ""
        raise FileNotFoundError(
            f"domain: there is neither a file nor a domain {domain}: {hint}`ethogram plan --list` prints the names of "
            "domains"
        )
    problem = manager.get_problem(str(domain))
    if str(instance) not in [str(each) for each in problem.list_instances()]:
        listed = ", ".join(str(each) for each in problem.list_instances())
        raise FileNotFoundError(f"instance: {domain} has no instance {instance}: choose from {listed}")
    return str(problem.get_domain()), str(problem.get_instance(str(instance)))


def domain_names() -> list[str]:
    """Names of the domains of rddlrepository whose fluents are seen, and of types that `read_rddl` takes, in order."""
    manager = _repository("names of domains")
    paths = {name: Path(str(manager.get_problem(name).get_domain())) for name in manager.list_problems()}
    return sorted(
        name for name, path in paths.items() if not REFUSED.search(path.read_text("utf-8-sig", "replace"))
    )


def _repository(what: str) -> Any:
    """The manager of rddlrepository; an ImportError that says what needs it where it is not installed."""
    try:
        from rddlrepository.core.manager import RDDLRepoManager
    except ImportError as error:
        raise ImportError(f"{what} need rddlrepository: pip install 'ethogram[planning]'") from error
    return RDDLRepoManager(rebuild=False)


def _problem(tree: Any, semantics: str) -> PlanningProblem:
    domain, instance = tree.domain, tree.instance
    if instance.domain != domain.name:
        raise ValueError(f"instance {instance.name} is of the domain {instance.domain}, not of {domain.name}")
    horizon, discount = getattr(instance, "horizon", None), getattr(instance, "discount", None)
    if not isinstance(horizon, int) or horizon < 1:
        raise ValueError(f"instance {instance.name} has horizon {horizon}: expected a number of steps")
    if discount is None or not 0 <= discount <= 1:
        raise ValueError(f"instance {instance.name} has discount {discount}: expected a number from 0 to 1")
    reader = _Fluents(tree, semantics)
    graph = reader.graph
    fluents = tuple(event for name in reader.states for event in reader.events(name))
    actions = tuple(reader.actions)
    end = reader.in_words("a terminal condition", reader.terminal)
    nexts = [node for name in reader.states for node in reader.next_nodes(name)]
    reward = reader.in_words("the reward", lambda: reader.expressions.probability(domain.reward, {}))
    if semantics == "local":
        nexts = [local_expectation(graph, node) for node in nexts]
        reward = local_expectation(graph, reward)
    limit = getattr(instance, "max_nondef_actions", "pos-inf")
    limit = len(actions) if limit in ("pos-inf", None) else int(limit)
    for name, default in reader.actions.items():
        if default:
            raise ValueError(f"action {name} is true by default: write the domain with its negation")
    preconditions, constraints = domain.preconds or [], domain.constraints or []
    conditions = read_conditions(reader.expressions, preconditions, constraints, actions, limit)
    program = compile_program(graph, fluents, actions, nexts, reward, end)
    initial = np.array([value for name in reader.states for value in reader.initial_values(name)], float)
    problem = PlanningProblem(
        domain.name,
        instance.name,
        fluents,
        actions,
        initial,
        program,
        action_rules(graph, fluents, actions, conditions),
        horizon,
        float(discount),
        look_ahead(graph, fluents, actions, conditions, nexts, reward, end),
    )
    problem.encode_state(initial)  # its enumerated fluents must have one value each
    return problem


class _Fluents:
    """Fluents of a parsed problem, and the nodes of their definitions."""

    def __init__(self, tree: Any, semantics: str):
        self.local = semantics == "local"
        domain, data, instance = tree.domain, tree.non_fluents, tree.instance
        self.graph = ExpressionGraph()
        self.objects: dict[str, list[str]] = {}
        for kind, names in getattr(data, "objects", None) or []:
            self.objects[kind] = list(names)
        enumerated = {}
        for kind, names in domain.types or []:
            if names != "object":
                enumerated[kind] = self.objects[kind] = [name.lstrip("@") for name in names]
        self.variables = {each.name: each for each in domain.pvariables}
        self.enumerated = enumerated
        for each in domain.pvariables:
            if each.fluent_type == "observ-fluent":
                raise ValueError(
                    f"{each.name} is an observation: problems with a hidden state (POMDPs) are not supported"
                )
            hidden = each.fluent_type in ("state-fluent", "interm-fluent", "derived-fluent", "action-fluent")
            allowed = each.range == "bool" or (
                each.range in enumerated and each.fluent_type != "action-fluent"
            )
            if hidden and not allowed:
                raise ValueError(
                    f"{each.fluent_type} {each.name} is of type {each.range}: expected bool"
                    + ("" if each.fluent_type == "action-fluent" else " or an enumerated type")
                )
        self.known = self.given("non-fluents", "non-fluent", getattr(data, "init_non_fluent", None))
        self.terminals = domain.terminals or []
        self.start = self.given("init-state", "state-fluent", getattr(instance, "init_state", None))
        formulas = [*domain.cpfs[1], *domain.intermediate_cpfs, *domain.derived_cpfs]
        self.formulas = {each.pvar[1][0]: (each.pvar[1][1] or [], each.expr) for each in formulas}
        self.expressions = RDDLExpressions(self.graph, self.objects, self.fluent)
        self.states = [
            (each.name, objects)
            for each in domain.pvariables
            if each.fluent_type == "state-fluent"
            for objects in self.groundings(each.name)
        ]
        self.actions = {
            grounded_name(each.name, objects): bool(each.default)
            for each in domain.pvariables
            if each.fluent_type == "action-fluent"
            for objects in self.groundings(each.name)
        }
        self.defined: dict[tuple[str, tuple[str, ...]], Quantity] = {}
        self.going: dict[str, Quantity] = {}
        """Fluents whose values are known as long as the episode goes on."""

    def groundings(self, name: str) -> list[tuple[str, ...]]:
        """Objects of every fluent of a name."""
        kinds = self.variables[name].param_types or []
        return list(itertools.product(*(self.objects.get(kind, []) for kind in kinds)))

    def events(self, fluent: tuple[str, tuple[str, ...]]) -> list[str]:
        """Names of the events of a state fluent: one, or one per value."""
        name, objects = fluent
        whole = grounded_name(name, objects)
        kind = self.variables[name].range
        return [whole] if kind == "bool" else [f"{whole}={value}" for value in self.enumerated[kind]]

    def initial_values(self, fluent: tuple[str, tuple[str, ...]]) -> list[float]:
        """Values at the start of the events of a state fluent."""
        variable = self.variables[fluent[0]]
        given = self.start.get(fluent, variable.default)
        if variable.range == "bool":
            return [float(bool(given))]
        return [float(str(given).lstrip("@") == value) for value in self.enumerated[variable.range]]

    def given(self, section: str, kind: str, values: Any) -> dict[tuple[str, tuple[str, ...]], Any]:
        """Values of a section of the instance, by name and objects."""
        found = {}
        for (name, arguments), value in values or []:
            objects = tuple(each.lstrip("@") for each in arguments or ())
            whole, variable = grounded_name(name, objects), self.variables.get(name)
            if variable is None or variable.fluent_type != kind:
                raise ValueError(f"{section} has {whole}: there is no {kind} {name}")
            types = variable.param_types or []
            if len(objects) != len(types):
                raise ValueError(f"{section} has {whole}: expected {len(types)} objects")
            for each, type_ in zip(objects, types, strict=True):
                if each not in self.objects.get(type_, ()):
                    raise ValueError(f"{section} has {whole}: there is no {type_} {each}")
            found[name, objects] = value
        return found

    def next_nodes(self, fluent: tuple[str, tuple[str, ...]]) -> list[Node]:
        """Nodes of the next probabilities of the events of a state fluent."""
        name, objects = fluent
        quantity = self.fluent(f"{name}'", objects)
        if self.variables[name].range == "bool":
            return [self.in_words(grounded_name(name, objects), lambda: self.expressions.number(quantity))]
        values = quantity.values or {}
        nothing = self.graph.constant(0.0)
        return [values.get(value, nothing) for value in self.enumerated[self.variables[name].range]]

    def terminal(self) -> Node:
        """The node of the event that a state ends the episode.

        A fluent that ends it alone is known in all other states, where alone next states and rewards count.
        """
        waiting: list[tuple[Any, dict[str, str]]] = [(each, {}) for each in self.terminals]
        ends = list[Node]()
        while waiting:
            expression, bound = waiting.pop()
            kind, name = expression.etype
            if (kind, name) == ("boolean", "|"):
                waiting.extend((each, bound) for each in expression.args)
            elif (kind, name) == ("aggregation", "exists"):
                instances = self.expressions.instances(expression.args, bound)
                waiting.extend((expression.args[-1], dict(each)) for each in instances)
            else:
                ends.append(self.expressions.probability(expression, bound))
        graph = self.graph
        if used := sorted(set(self.actions) & graph.inputs(ends)):
            raise ValueError(f"it depends on the action {used[0]}: expected state fluents alone")
        for whole in (grounded_name(*each) for each in self.states):
            node = graph.input(whole)
            for value, event in ((0.0, node), (1.0, graph.complement(node))):
                if event in ends:
                    self.going[whole] = Quantity(graph.constant(value), True)
        self.defined.clear()
        return graph.some(ends)

    def fluent(self, name: str, objects: tuple[str, ...]) -> Quantity:
        """Quantity of a grounded fluent; a name with a prime is of the next step."""
        base = name.rstrip("'")
        if base not in self.variables:
            raise ValueError(f"there is no fluent {name}")
        variable = self.variables[base]
        if len(objects) != len(variable.param_types or []):
            raise ValueError(
                f"{name} has {len(objects)} arguments: expected {len(variable.param_types or [])}"
            )
        kind = variable.fluent_type
        if kind == "non-fluent":
            return self._number(self.known.get((base, objects), variable.default))
        if kind == "action-fluent":
            return Quantity(self.graph.input(grounded_name(base, objects)), True)
        if kind == "state-fluent" and name == base:
            whole = grounded_name(base, objects)
            if whole in self.going:
                return self.going[whole]
            if variable.range == "bool":
                return Quantity(self.graph.input(whole), True)
            values = self.enumerated[variable.range]
            return Quantity(None, False, {value: self.graph.input(f"{whole}={value}") for value in values})
        if (name, objects) not in self.defined:
            self.defined[name, objects] = self.in_words(
                grounded_name(name, objects), lambda: self._definition(name, objects)
            )
        return self.defined[name, objects]

    def _definition(self, name: str, objects: tuple[str, ...]) -> Quantity:
        if name not in self.formulas:
            raise ValueError("it has no definition")
        parameters, formula = self.formulas[name]
        made = self.expressions.translate(formula, dict(zip(parameters, objects, strict=True)))
        if not self.local or name.endswith("'"):
            return made
        whole, graph = grounded_name(name, objects), self.graph

        def own(event: str, node: Node) -> Node:
            return graph.variable(event, local_expectation(graph, node))

        if made.node is not None:
            return made._replace(node=own(whole, made.node))
        values = {value: own(f"{whole}={value}", node) for value, node in (made.values or {}).items()}
        return made._replace(values=values)

    def _number(self, value: Any) -> Quantity:
        if isinstance(value, str):
            return Quantity(None, False, {value.lstrip("@"): self.graph.constant(1.0)})
        return Quantity(self.graph.constant(value), isinstance(value, bool))

    @staticmethod
    def in_words(what: str, make: Any) -> Any:
        """What `make` returns; an error names the fluent that it is about."""
        try:
            return make()
        except ValueError as error:
            if str(error).startswith("in "):
                raise
            raise ValueError(f"in {what}: {error}") from error
        except RecursionError as error:
            raise ValueError(
                f"in {what}: the definitions go in a circle, or are nested too deeply"
            ) from error
