"""Random syntax trees of query files, every one of which the grammar can write."""

import re
from dataclasses import replace
from importlib import resources
from typing import TypeVar

from hypothesis import strategies as st

from omnigraph.language.query import ast
from omnigraph.types import Scalar, ValueType

_GRAMMAR = resources.files("omnigraph.language.query").joinpath("grammar.lark").read_text("utf-8")
KEYWORDS = sorted(
    set(re.findall(r'"([a-z_0-9]+)"', _GRAMMAR)) | set(re.findall(r": /([a-z_]+)\(\?!", _GRAMMAR))
)
PLAIN = ("a", "name", "knows", "_", "x9_Z", "worksAt")


T = TypeVar("T")


def short(strategy: st.SearchStrategy[T]) -> st.SearchStrategy[T]:
    """The same strategy with a short name: recursive ones spell out all they are made of."""

    @st.composite
    def piece(draw: st.DrawFn) -> T:
        return draw(strategy)

    return piece()


def words(*without: str) -> st.SearchStrategy[str]:
    among = [word for word in (*PLAIN, *KEYWORDS) if word not in without]
    return short(st.sampled_from(among))


names = words().map(ast.Name)
types = st.sampled_from(["Person", "A", "Doc_2", "String"]).map(ast.Name)
variables = words().map(ast.Variable)
integers = st.integers(0, 2**63 - 1)

scalars = st.one_of(
    st.builds(ast.Literal, st.text(max_size=8), st.just(Scalar.STRING)),
    st.builds(ast.Literal, st.booleans(), st.just(Scalar.BOOL)),
    st.builds(ast.Literal, st.integers(-(2**63), 2**63 - 1), st.just(Scalar.I64)),
    st.builds(
        ast.Literal,
        st.floats(allow_nan=False, allow_infinity=False),
        st.just(Scalar.F64),
    ),
    st.builds(ast.Literal, st.integers(-700_000, 2_900_000), st.just(Scalar.DATE)),
    st.builds(
        ast.Literal, st.integers(-62_135_596_800_000, 253_402_300_799_999), st.just(Scalar.DATETIME)
    ),
)
nulls = st.just(ast.Literal(None, None))
_families = [
    scalars.filter(lambda literal, kinds=kinds: literal.scalar in kinds)
    for kinds in ({Scalar.STRING}, {Scalar.BOOL}, {Scalar.I64, Scalar.F64}, {Scalar.DATE})
]
lists = short(
    st.one_of([st.lists(family, max_size=3) for family in _families]).map(
        lambda items: ast.ListLiteral(tuple(items))
    )
)
literals = short(scalars | nulls | lists)
now = st.just(ast.Now())
values = short(literals | now | variables)
properties = short(st.builds(ast.PropertyRef, variables, names))


def _calls(argument: st.SearchStrategy[ast.Expr]) -> st.SearchStrategy[ast.Expr]:
    """Calls whose arguments are `argument`."""
    argument = short(argument)
    nearest = st.builds(ast.Nearest, properties, argument, st.none() | argument)
    bm25 = st.builds(ast.Bm25, argument, argument)
    plain_text = st.sampled_from([ast.TextFunction.SEARCH, ast.TextFunction.MATCH_TEXT])
    percentile = ast.AggregateFunction.PERCENTILE
    functions = st.sampled_from([each for each in ast.AggregateFunction if each is not percentile])
    return st.one_of(
        nearest,
        bm25,
        st.builds(ast.Rrf, nearest | bm25, nearest | bm25, st.none() | argument),
        st.builds(ast.TextCall, plain_text, argument, argument),
        st.builds(
            ast.TextCall, st.just(ast.TextFunction.FUZZY), argument, argument, st.none() | argument
        ),
        st.builds(ast.Aggregate, functions, argument),
        st.builds(ast.Aggregate, st.just(percentile), argument, st.just(False), argument),
        st.builds(ast.Aggregate, st.just(ast.AggregateFunction.COUNT), argument, st.just(True)),
    )


_aliases_in_calls = st.sampled_from(PLAIN).map(ast.Alias)
arguments = st.recursive(values | properties | _aliases_in_calls, _calls, max_leaves=4)
calls = short(_calls(arguments))


def _operations(inner: st.SearchStrategy[ast.Expr]) -> st.SearchStrategy[ast.Expr]:
    """Expressions made of `inner` ones."""
    inner = short(inner)
    compared = st.builds(ast.Comparison, inner, st.just(ast.Comparator.LE), inner)
    whens = st.lists(st.builds(ast.When, compared, inner), min_size=1, max_size=2).map(tuple)
    functions = st.sampled_from(["lower", "coalesce", "f9", "I64"]).map(ast.Name)
    durations = st.builds(ast.Duration, st.integers(0, 10**9))
    return st.one_of(
        st.builds(ast.Arithmetic, st.sampled_from(ast.ArithmeticOperator), inner, inner),
        st.builds(ast.Negative, inner),
        st.builds(ast.Call, functions, st.lists(inner, min_size=1, max_size=1).map(tuple)),
        st.builds(ast.Case, whens, st.none() | inner),
        durations,
    )


_operands = short(values | properties | calls)
operations = short(st.recursive(_operations(_operands), _operations, max_leaves=3))
text_calls = calls.filter(lambda call: isinstance(call, ast.TextCall))


# Conditions of a pattern


def _comparisons(fixed: st.SearchStrategy[ast.Expr]) -> st.SearchStrategy[ast.Condition]:
    term = properties | fixed
    symbols = st.sampled_from([c for c in ast.Comparator if c not in ("contains", "starts_with")])
    texts = st.sampled_from([ast.Comparator.CONTAINS, ast.Comparator.STARTS_WITH])
    return st.one_of(
        st.builds(ast.Comparison, term, st.sampled_from(ast.Comparator), term | variables),
        st.builds(ast.Comparison, variables, symbols, term | variables),
        st.builds(ast.Comparison, variables, texts, term),  # with a variable it is a traversal
        st.builds(ast.IsNull, term | variables, st.booleans()),
        st.builds(ast.Membership, term, lists | properties | variables),
        st.builds(ast.Membership, variables, lists | properties),
        st.builds(ast.TextCondition, text_calls),
    )


def _joined(
    inner: st.SearchStrategy[ast.Condition],
) -> st.SearchStrategy[ast.Condition]:
    inner = short(inner)

    def several(kind: type[ast.And] | type[ast.Or]) -> st.SearchStrategy[ast.Condition]:
        parts = inner.filter(lambda part: not isinstance(part, kind))
        return st.lists(parts, min_size=2, max_size=3).map(lambda items: kind(tuple(items)))

    return several(ast.And) | several(ast.Or) | st.builds(ast.Not, inner)


def _clauses(inner: st.SearchStrategy[ast.Clause]) -> st.SearchStrategy[ast.Clause]:
    """Clauses that may hold blocks of `inner` clauses."""
    block = st.lists(short(inner), min_size=1, max_size=3).map(tuple)
    fixed = st.one_of(
        literals,
        now,
        calls,
        operations,
        st.sampled_from(["a", "name", "x9_Z"]).map(ast.Alias),
        st.builds(ast.CountBlock, block),
    )
    leaves = short(_comparisons(short(fixed)) | st.builds(ast.Exists, block))
    conditions = short(st.recursive(leaves, _joined, max_leaves=4))
    return st.one_of(
        st.builds(ast.Filter, conditions),
        st.builds(ast.Negation, block),
        st.builds(ast.OptionalBlock, block),
    )


hops = st.builds(ast.Hops, st.integers(0, 9), st.none() | st.integers(0, 9))
traversals = st.builds(
    ast.Traversal,
    variables,
    words("not").map(ast.Name),
    variables,
    st.none() | variables,
    st.booleans(),
    st.none() | hops,
)
_OPERATORS = ("contains", "starts_with", "ends_with", "matches", "in", "is")
walks = st.builds(
    ast.Traversal,
    variables,
    words("not", *_OPERATORS).map(ast.Name),
    variables,
    st.none() | variables,
    st.booleans(),
    st.none() | hops,
    st.lists(words("not").map(ast.Name), max_size=2).map(tuple),
    st.none() | variables,
    st.none() | properties | variables,
    st.none() | _comparisons(literals),
)
paths = st.builds(ast.Path, variables, st.sampled_from(ast.PathKind), walks)
matches = st.lists(st.builds(ast.PropertyMatch, names, values), max_size=3).map(tuple)
bindings = st.builds(ast.Binding, variables, types, matches)
unwinds = st.builds(ast.Unwind, lists | variables | properties, names)
clauses = st.recursive(bindings | traversals | walks | paths | unwinds, _clauses, max_leaves=8)


# Queries

projected = st.one_of(
    properties,
    variables,
    literals,
    now,
    calls,
    operations,
    st.sampled_from(PLAIN).map(ast.Alias),
)
object_fields = (
    st.just(ast.ObjectField(None))
    | st.builds(ast.ObjectField, names)
    | st.builds(ast.ObjectField, names, projected)
)
projections = st.one_of(
    st.builds(ast.Projection, projected, st.none() | names),
    st.builds(ast.Projection, st.builds(ast.EveryProperty, variables)),
    st.builds(
        ast.Projection,
        variables,
        st.none() | names,
        st.lists(object_fields, min_size=1, max_size=3).map(tuple),
    ),
)
ordered = st.one_of(
    properties, variables, scalars | lists, now, calls, words("true", "false").map(ast.Alias)
)
orderings = st.builds(ast.Ordering, ordered, st.booleans()).filter(
    lambda o: not (isinstance(o.expression, ast.Nearest) and o.descending)
)
reads = st.builds(
    ast.Read,
    st.lists(clauses, min_size=1, max_size=5).map(tuple),
    st.lists(projections, min_size=1, max_size=4).map(tuple),
    st.booleans(),
    st.lists(orderings, max_size=3).map(tuple),
    st.none() | integers | variables,
    st.none() | integers | variables,
)

own = names.map(ast.OwnProperty)
wheres = st.recursive(
    st.one_of(
        st.builds(ast.Comparison, own, st.sampled_from(ast.Comparator), values),
        st.builds(ast.IsNull, own, st.booleans()),
        st.builds(ast.Membership, own, lists | variables),
    ),
    _joined,
    max_leaves=5,
)
assignments = st.lists(st.builds(ast.Assignment, names, values), max_size=3).map(tuple)
matched = st.builds(
    ast.Matched,
    st.lists(clauses, min_size=1, max_size=3).map(tuple),
    st.just(()) | st.tuples(reads),
)
inserts_and_updates = st.lists(
    st.builds(ast.Insert, types, assignments, st.none() | matched)
    | st.builds(ast.Upsert, types, assignments, st.none() | matched)
    | st.builds(ast.Update, types, assignments, wheres)
    | st.builds(ast.UpdateMatched, variables, assignments, matched),
    min_size=1,
    max_size=3,
)
deletes = st.lists(
    st.builds(ast.Delete, types, wheres) | st.builds(ast.DeleteMatched, variables, matched),
    min_size=1,
    max_size=3,
)
mutations = (inserts_and_updates | deletes).map(lambda items: ast.Mutation(tuple(items)))

_single = st.sampled_from([scalar for scalar in Scalar if scalar is not Scalar.VECTOR])
parameter_types = st.one_of(
    st.builds(ValueType, _single, st.booleans(), st.booleans()),
    st.builds(
        lambda nullable, size: ValueType(Scalar.VECTOR, nullable, dimension=size),
        st.booleans(),
        st.integers(1, 2**31 - 1),
    ),
)
parameters = st.lists(
    st.builds(ast.Parameter, words(), parameter_types), max_size=3, unique_by=lambda p: p.name
).map(tuple)
texts = st.none() | st.text(max_size=10)
staged = st.builds(lambda first, read: replace(read, stages=(first,)), reads, reads)
unions = st.builds(
    lambda first, second, keeps: ast.Union((first, second), (keeps,)), reads, reads, st.booleans()
)
queries = st.builds(ast.Query, names, parameters, reads | staged | unions | mutations, texts, texts)


@st.composite
def files(draw: st.DrawFn) -> ast.QueryFile:
    """A file of a few queries."""
    return ast.QueryFile(tuple(draw(st.lists(queries, max_size=3))))
