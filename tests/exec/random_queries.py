"""Random small graphs and random queries over them, as text."""

import math
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

SCHEMA = """
interface N { k: String  i: I32?  s: String? }
node P implements N {
  k: String @key
  i: I32?
  big: I64?
  u: U64?
  f: F64?
  g: F32?
  s: String?
  b: Bool?
  d: Date?
  t: DateTime?
  l: [String]?
  n: [I64]?
}
node C implements N { s: String?  k: String @key  i: I32? }
edge E: P -> P { w: I32?  s: String? }
edge W: P -> C { w: I32?  s: String? }
edge L: C -> N { w: I32?  s: String? }
"""

TEXTS = ("", "a", "ab", "b", "B", "é", "a'b", "100%", "a_b", "\\", 'q"q', "x\ny", "雪")
NAN, NEGATIVE_NAN = float("nan"), math.copysign(float("nan"), -1.0)
INF = float("inf")
F32S = (0.0, -0.0, 0.5, 1.0, -1.5, 3.0, INF, -INF, NAN, NEGATIVE_NAN, 0.10000000149011612)
VALUES: dict[str, tuple[Any, ...]] = {
    "i": (0, 1, 2, -1, 2**31 - 1, -(2**31)),
    "big": (0, 1, -1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)),
    "u": (0, 1, 2**53 + 1, 2**63, 2**64 - 1),
    "f": (0.0, -0.0, 0.5, 1.0, -1.5, 0.1, 2.0**53, 2.0**63, 1e300, INF, -INF, NAN, NEGATIVE_NAN),
    "g": F32S,
    "s": TEXTS,
    "b": (True, False),
    "d": (0, -1, 10957, 19000),
    "t": (0, -1, 946684800123, 1700000000000),
    "w": (0, 1, 2, -5),
}
NUMBERS = ("i", "big", "u", "f", "g")
PROPERTIES = {
    "P": ("i", "big", "u", "f", "g", "s", "b", "d", "t"),
    "C": ("i", "s"),
    "N": ("i", "s"),
    "E": ("w", "s"),
    "W": ("w", "s"),
}
PARAMETERS = {"i": "I32", "big": "I64", "u": "I64", "f": "F64", "g": "F64", "w": "I32"}


def maybe(values: tuple[Any, ...]) -> st.SearchStrategy[Any]:
    """One of the values, or null."""
    return st.one_of(st.none(), st.sampled_from(values))


@st.composite
def graphs(draw: DrawFn) -> dict[str, list[dict[str, Any]]]:
    """Rows of every table."""
    people = [f"p{chr(122 - n)}" for n in range(draw(st.sampled_from((4, 5, 6, 7, 3, 0))))]
    companies = [f"c{n}" for n in range(draw(st.sampled_from((2, 3, 0))))]
    nodes = [
        {
            "k": key,
            **{name: draw(maybe(VALUES[name])) for name in PROPERTIES["P"]},
            "l": draw(st.one_of(st.none(), st.lists(st.sampled_from(TEXTS), max_size=3))),
            "n": draw(
                st.one_of(st.none(), st.lists(st.sampled_from((0, 1, 2**53 + 1)), max_size=3))
            ),
        }
        for key in people
    ]
    places = [
        {"k": key, **{name: draw(maybe(VALUES[name])) for name in PROPERTIES["C"]}}
        for key in companies
    ]
    return {
        "P": [{"id": row["k"], **row} for row in nodes],
        "C": [{"id": row["k"], **row} for row in places],
        "E": draw(_edges("E", people, people, 14)),
        "W": draw(_edges("W", people, companies, 8)),
        "L_P": draw(_edges("L_P", companies, people, 4)),
        "L_C": draw(_edges("L_C", companies, companies, 4)),
    }


@st.composite
def _edges(
    draw: DrawFn, name: str, sources: list[str], targets: list[str], count: int
) -> list[dict[str, Any]]:
    if not sources or not targets:
        return []
    return [
        {
            "id": f"{name}{(n * 7) % 17:02d}",
            "src": draw(st.sampled_from(sources)),
            "dst": draw(st.sampled_from(targets)),
            "w": draw(maybe(VALUES["w"])),
            "s": draw(maybe(TEXTS)),
        }
        for n in range(draw(st.sampled_from((count, count // 2, 0))))
    ]


def text_literal(text: str) -> str:
    """A string literal of the query language."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


@dataclass
class Query:
    """A query under construction: its text, its parameters, the variables by type."""

    params: dict[str, tuple[str, Any]] = field(default_factory=dict)
    fresh: int = 0

    def new(self, prefix: str) -> str:
        self.fresh += 1
        return f"{prefix}{self.fresh}"

    def parameter(self, type_: str, value: Any) -> str:
        name = self.new("q")
        self.params[name] = (type_, value)
        return f"${name}"


Scope = dict[str, str]
"""Variables in reach, with their types."""


class Writer:
    """Draws the parts of one query."""

    def __init__(self, draw: DrawFn) -> None:
        self.draw = draw
        self.query = Query()
        self.elements: list[str] = []  # variables that are elements of lists, lengths of paths
        self.lists: list[str] = []  # what else paths have

    def one_in(self, count: int) -> bool:
        return self.draw(st.integers(1, count)) == count

    def pick(self, items: Any) -> Any:
        return self.draw(st.sampled_from(list(items)))

    # Clauses

    def pattern(self, scope: Scope, *, depth: int, inner: bool) -> list[str]:
        clauses = []
        if inner:
            clauses.append(self.traversal(scope, must_use=True))
        else:
            clauses.append(self.binding(scope))
        for _ in range(self.draw(st.integers(0, 2))):
            walks = self.one_in(4)
            clauses.append(self.walk(scope, inner=inner) if walks else self.traversal(scope))
        if self.one_in(4):
            clauses.append(self.binding(scope))
        for _ in range(self.pick((0, 0, 1, 1, 2))):
            clauses.append(self.condition(scope, depth=depth))
        if not inner and self.one_in(8):
            clauses.append(self.unwound(scope))
        if depth and self.one_in(3):
            clauses.append(f"optional {{ {self.block(scope, depth - 1, keep=True)} }}")
        if depth and self.one_in(3):
            clauses.append(f"not {{ {self.block(scope, depth - 1)} }}")
        return clauses

    def unwound(self, scope: Scope) -> str:
        """A row for each element, and a condition on it."""
        people = [name for name, type_ in scope.items() if type_ == "P"]
        name = self.query.new("x")
        self.elements.append(f"${name}")
        if people and self.one_in(2):
            return f"unwind ${self.pick(people)}.{self.pick('ln')} as {name}"
        return f"unwind [1, 0, 1] as {name} ${name} {self.operator()} {self.pick((0, 1))}"

    def block(self, scope: Scope, depth: int, *, keep: bool = False) -> str:
        own = scope if keep else dict(scope)
        return "  ".join(self.pattern(own, depth=depth, inner=True))

    def binding(self, scope: Scope) -> str:
        has_type = any(type_ in ("P", "C") for type_ in scope.values())
        type_ = self.pick("PPPCN" if has_type else "PPPC")
        name = self.query.new("v")
        scope[name] = type_
        if self.one_in(3):
            return f"${name}: {type_} {{ k: {self.key(type_)} }}"
        if self.one_in(8):
            prop = self.pick(PROPERTIES[type_])
            return f"${name}: {type_} {{ {prop}: {self.constant(prop)} }}"
        return f"${name}: {type_}"

    def key(self, type_: str) -> str:
        """A key that the graph has, or would have if it were larger."""
        key = self.pick(("pz", "py", "px", "pw") if type_ == "P" else ("c0", "c1", "c2"))
        return text_literal(key) if self.one_in(2) else self.query.parameter("String", key)

    def traversal(self, scope: Scope, *, must_use: bool = False) -> str:
        nodes = [name for name, type_ in scope.items() if type_ in "PC"]
        start = self.pick(nodes)
        edge = "w" if scope[start] == "C" or self.one_in(3) else "e"
        far_type = "P" if edge == "e" or scope[start] == "C" else "C"
        known = [name for name in nodes if scope[name] == far_type]
        far = self.pick(known) if known and self.one_in(5) else "_" if self.one_in(6) else ""
        if not far:
            far = self.query.new("v")
            scope[far] = far_type
        bound = hops = ""
        undirected = edge == "e" and self.one_in(4)
        if self.one_in(4):
            name = self.query.new("k")
            scope[name] = edge.upper()
            bound = f"${name}:"
        elif self.one_in(3):
            low = self.pick((1, 1, 1, 2, 3)) if edge == "e" else 1
            hops = f"{{{low},{low + self.draw(st.integers(0, 2))}}}"
            if self.one_in(4):
                hops = self.pick((f"{{{low}}}", f"{{{low},}}", "*"))
        word = f"<{edge}>{hops}" if undirected else f"{edge}{hops}"
        left, right = (far, start) if self.one_in(3) and edge == "e" else (start, far)
        return f"${left} {bound}{word} ${right}"

    def walk(self, scope: Scope, *, inner: bool) -> str:
        """A walk with alternatives, conditions on its way, or a path."""
        nodes = [name for name, type_ in scope.items() if type_ in "PCN"]
        start = self.pick(nodes)
        edges = self.pick(("e|w", "w|e", "_", "l", "w|l")) if self.one_in(2) else "e"
        if edges == "e" and scope[start] != "P":
            edges = self.pick("_l")
        undirected = self.one_in(3)
        far_type = "P" if edges == "e" else self.pick("PCN")
        known = [name for name in nodes if scope[name] == far_type]
        far = self.pick(known) if known and self.one_in(4) else self.query.new("v")
        before = after = ""
        if edges != "e" and far not in scope:
            before, after = self.pick(
                ((f"${far}: {far_type}  ", ""), ("", f"  ${far}: {far_type}"))
            )
        scope[far] = far_type
        low = self.pick((1, 1, 1, 2))
        hops = self.pick((f"{{{low},{low + 2}}}", f"{{{low},}}", "*", f"{{{low}}}"))
        edge, via = self.query.new("k"), self.query.new("n")
        conditions, passed = list[str](), False
        if self.one_in(2):
            conditions.append(self.simple({edge: "E"}))
        if self.one_in(3):
            passed = True
            conditions.append(self.simple({via: "P"} if edges == "e" else {via: "C"}))
        kind = "" if inner else self.pick(("", "", "shortest", "all shortest", "path"))
        weight = f" by ${edge}.w * ${edge}.w" if kind == "shortest" and self.one_in(2) else ""
        if weight:
            hops = self.pick(("{1,2}", "*", "{1,4}"))
        named = f"${edge}:" if weight or conditions else ""
        word = f"<{edges}>{hops}" if undirected else f"{edges}{hops}"
        where = f" where {' and '.join(conditions)}" if conditions else ""
        head = f"${self.path(weighted=bool(weight))} = {kind} " if kind else ""
        left, right = (far, start) if self.one_in(3) else (start, far)
        way = f"${left} {named}{word} ${right}{f' via ${via}' if passed else ''}"
        return f"{before}{head}{way}{weight}{where}{after}"

    def path(self, *, weighted: bool) -> str:
        name = self.query.new("w")
        self.elements += [f"length(${name})", *([f"cost(${name})"] if weighted else [])]
        self.lists += [f"nodes(${name})", f"edges(${name})"]
        return name

    # Conditions

    def condition(self, scope: Scope, *, depth: int) -> str:
        kind = self.draw(st.integers(0, 9))
        if kind == 0 and depth:
            return f"exists {{ {self.block(scope, depth - 1)} }}"
        if kind == 1 and depth:
            count = self.draw(st.integers(0, 2))
            return f"count {{ {self.block(scope, depth - 1)} }} {self.operator()} {count}"
        if kind == 2:
            left, right = self.simple(scope), self.simple(scope)
            return f"({left} {self.pick(('and', 'or'))} {right})"
        if kind == 3:
            return f"not ({self.simple(scope)})"
        return self.simple(scope)

    def operator(self) -> str:
        return str(self.pick(("=", "!=", "<", "<=", ">", ">=")))

    # Expressions

    def number(self, scope: Scope, depth: int = 2) -> str:
        """An expression that is a number, mostly a small one."""
        kind = self.draw(st.integers(0, 11)) if depth else 0
        var = self.pick(scope)
        prop = self.pick([p for p in PROPERTIES[scope[var]] if p in (*NUMBERS, "w")] or ["k"])
        if kind <= 3:
            return (
                f"${var}.{prop}"
                if prop != "k" and self.one_in(2)
                else str(self.pick((0, 1, 2, -3, 0.5)))
            )
        if kind <= 6:
            sign = self.pick("+-*%/")
            return f"({self.number(scope, depth - 1)} {sign} {self.number(scope, depth - 1)})"
        if kind == 7:
            return (
                f"-{self.number(scope, 0)}" if self.one_in(2) else f"abs({self.number(scope, 1)})"
            )
        if kind == 8:
            return f"length({self.text_value(scope, depth - 1)})"
        if kind == 9:
            default = self.number(scope, 0)
            return f"coalesce({self.number(scope, depth - 1)}, {default})"
        if kind == 10 and scope[var] == "P":
            part = self.pick(("year", "month", "day", "weekday", "hour"))
            moment = f"${var}.{'t' if part == 'hour' else self.pick('dt')}"
            return self.pick(
                (
                    f"{part}({moment})",
                    f"size(${var}.n)",
                    f"element(${var}.n, {self.pick((0, 1, -1))})",
                )
            )
        condition = self.simple(scope)
        return (
            f"case when {condition} then {self.number(scope, 1)} else {self.number(scope, 0)} end"
        )

    def text_value(self, scope: Scope, depth: int = 2) -> str:
        kind = self.draw(st.integers(0, 7)) if depth else 0
        var = self.pick(scope)
        if kind <= 2:
            return f"${var}.s" if self.one_in(2) else text_literal(self.pick(TEXTS))
        if kind == 3:
            return f"({self.text_value(scope, depth - 1)} + {self.text_value(scope, depth - 1)})"
        if kind == 4:
            return f"{self.pick(('lower', 'upper', 'trim'))}({self.text_value(scope, depth - 1)})"
        if kind == 5:
            start, count = self.pick((0, 1, -1, 2)), self.pick((0, 1, 2))
            return f"substring({self.text_value(scope, depth - 1)}, {start}, {count})"
        if kind == 6 and self.one_in(3):
            return f"highlight({self.text_value(scope, depth - 1)}, {self.text_value(scope, 0)})"
        if kind == 6:
            parts = f"{self.text_value(scope, 0)}, {self.text_value(scope, 0)}"
            return f"replace({self.text_value(scope, depth - 1)}, {parts})"
        whens = f"when {self.simple(scope)} then {self.text_value(scope, 0)}"
        return f"case {whens} end"

    def expression(self, scope: Scope) -> str:
        """Any expression."""
        var = self.pick(scope)
        kind = self.draw(st.integers(0, 6))
        if kind <= 2:
            return self.number(scope)
        if kind <= 4:
            return self.text_value(scope)
        if kind == 5 and scope[var] == "P":
            unit = self.pick(("year", "quarter", "month", "week", "day", "hour"))
            return self.pick(
                (
                    f"${var}.d + 3d",
                    f"${var}.t - 2h",
                    f"${var}.t - ${var}.d",
                    f'truncate(${var}.{self.pick("dt")}, "{unit}")',
                    f"split(coalesce(${var}.s, {text_literal('a-b')}), {text_literal('a')})",
                    f"date(${var}.t)",
                )
            )
        return f"({self.simple(scope)})"

    def compared(self, scope: Scope) -> str:
        """A condition over expressions."""
        kind = self.draw(st.integers(0, 4))
        if kind <= 1:
            return f"({self.number(scope)}) {self.operator()} {self.number(scope, 1)}"
        if kind == 2:
            word = self.pick(("contains", "starts_with", "ends_with", "=", "<"))
            return f"({self.text_value(scope)}) {word} {self.text_value(scope, 1)}"
        if kind == 3:
            pattern = self.pick(("a", "^a", "b$", "[a-c]+", "."))
            return f"({self.text_value(scope, 1)}) matches {text_literal(pattern)}"
        return f"({self.number(scope)}) is {self.pick(('', 'not '))}null"

    def simple(self, scope: Scope) -> str:
        if self.one_in(6):
            return self.compared(scope)
        var = self.pick(scope)
        prop = self.pick(PROPERTIES[scope[var]])
        subject = f"${var}.{prop}"
        kind = self.draw(st.integers(0, 7))
        if kind == 0:
            return f"{subject} is {self.pick(('', 'not '))}null"
        if kind in (1, 7):
            return self.two_columns(scope, var, prop)
        if kind == 2 and prop in ("i", "big", "w"):
            return f"{subject} in [{', '.join(str(n) for n in self.small_integers())}]"
        if prop == "s" and kind <= 4:
            return f"{subject} {self.pick(('contains', 'starts_with'))} {self.constant('s')}"
        if scope[var] == "P" and kind == 5:
            return f"${var}.l contains {self.constant('s')}"
        if scope[var] == "P" and kind == 6:
            return f"{self.pick((0, 1, 5))} in ${var}.n"
        return f"{subject} {self.operator()} {self.constant(prop)}"

    def two_columns(self, scope: Scope, var: str, prop: str) -> str:
        numeric = (*NUMBERS, "w")
        like = numeric if prop in numeric else (prop,)
        other = self.pick(scope)
        props = [each for each in PROPERTIES[scope[other]] if each in like] or [None]
        if props == [None]:
            return f"${var}.{prop} is not null"
        operator = self.operator() if self.one_in(2) else "="
        return f"${var}.{prop} {operator} ${other}.{self.pick(props)}"

    def small_integers(self) -> list[int]:
        return self.draw(st.lists(st.sampled_from((0, 1, -1, 2)), max_size=3))

    def constant(self, prop: str) -> str:
        """A literal or a parameter that may be compared with a property."""
        if prop == "s":
            return text_literal(self.pick(TEXTS))
        if prop == "b":
            return str(self.pick(("true", "false")))
        if prop == "d":
            return str(self.pick(('date("1970-01-01")', 'date("2000-01-01")')))
        if prop == "t":
            moments = ("1970-01-01T00:00:00Z", "2000-01-01T00:00:00.123Z")
            return f'datetime("{self.pick(moments)}")'
        if self.one_in(2):
            return str(self.pick((0, 1, 2, -1, 0.5, 2.7, 2**53)))
        type_ = PARAMETERS[prop]
        choices: list[Any] = [v for v in VALUES[prop] if _fits(type_, v)]
        return self.query.parameter(f"{type_}?", self.pick([*choices, None]))

    # The whole

    def text(self) -> str:
        scope: Scope = {}
        stage = self.stage(scope) if self.one_in(6) else ""
        clauses = self.pattern(scope, depth=2, inner=False)
        aggregated = self.one_in(3)
        united = "" if aggregated or not self.one_in(10) else self.pick(("columns", "objects"))
        columns, keys = self.aggregates(scope) if aggregated else self.projections(scope)
        if united:
            nodes = [name for name, type_ in scope.items() if type_ in "PCN"]
            columns, keys = [f"${self.pick(nodes)}.i as c0", f"${self.pick(nodes)}.s as c1"], ["c0"]
        if united == "objects":
            columns, keys = [f"${self.pick(nodes)} as c0 {{ i, s }}"], []
        distinct = "distinct " if self.one_in(4) else ""
        if distinct and not aggregated:
            keys = [key for key in keys if not key.startswith("$")]
        having = self.having(keys) if aggregated and self.one_in(3) else ""
        order = having + self.ordering(keys)
        cut = f" limit {self.count((0, 1, 2, 3, 5))}" if self.one_in(4) else ""
        cut += f" offset {self.count((1, 2, 3))}" if self.one_in(6) else ""
        declared = ", ".join(f"${n}: {t}" for n, (t, _) in self.query.params.items())
        return (
            f"query q({declared}) {{ {stage}match {{ {'  '.join(clauses)} }} "
            f"return {distinct}{{ {', '.join(columns)} }}{order}{cut}{self.more(united)} }}"
        )

    def stage(self, scope: Scope) -> str:
        """A stage whose variables go on."""
        clauses = "  ".join(self.pattern(scope, depth=1, inner=False))
        nodes = [name for name, type_ in scope.items() if type_ in "PCN"]
        kept = self.draw(st.lists(st.sampled_from(nodes), min_size=1, max_size=2, unique=True))
        columns, value = [f"${name}" for name in kept], self.query.new("y")
        if self.one_in(3):
            columns.append(f"count(*) as {value}")
        else:
            columns.append(f"${kept[0]}.i as {value}")
        order = f" order {{ {value} {self.pick(('asc', 'desc'))} }}" if self.one_in(2) else ""
        cut = f" limit {self.count((1, 2, 5))}" if self.one_in(2) else ""
        distinct = "distinct " if self.one_in(4) else ""
        types = {name: scope[name] for name in kept}
        scope.clear()
        scope.update(types)
        self.elements, self.lists = [f"${value}"], []
        return f"match {{ {clauses} }} with {distinct}{{ {', '.join(columns)} }}{order}{cut} "

    def more(self, united: str) -> str:
        """Other reads of the same shape."""
        kind = self.pick(("union", "union all"))
        if united != "columns":
            other = f" {kind} match {{ $z: {self.pick('PCN')} }} return {{ $z {{ i, s: $z.k }} }}"
            return other if united else ""
        one = f" {kind} match {{ $z: {self.pick('PCN')} }} return {{ $z.i as a, $z.s as b }}"
        if self.one_in(2):
            one += " union match { $z: P } return { $z.big as a, $z.s as b } limit 2"
        return one

    def count(self, counts: tuple[int, ...]) -> str:
        """A number of rows, written down or as a parameter, which may be null."""
        if self.one_in(2):
            return str(self.pick(counts))
        return self.query.parameter("I64?", self.pick((*counts, None)))

    def ordering(self, keys: list[str]) -> str:
        if not keys or self.one_in(2):
            return ""
        chosen = self.draw(st.lists(st.sampled_from(keys), min_size=1, max_size=3, unique=True))
        keyed = (f"{key} {self.pick(('asc', 'desc'))}" for key in chosen)
        return f" order {{ {', '.join(keyed)} }}"

    def projections(self, scope: Scope) -> tuple[list[str], list[str]]:
        columns, keys = [], []
        for place in range(self.draw(st.integers(1, 4))):
            var = self.pick(scope)
            if self.elements and self.one_in(2):
                columns.append(f"{self.pick(self.elements)} as c{place}")
                keys.append(f"c{place}")
                continue
            if self.lists and self.one_in(2):
                columns.append(f"{self.pick(self.lists)} as c{place}")
                continue
            if self.one_in(12):
                columns.append(f"${var}.*")
                continue
            if self.one_in(8):
                var = self.pick((var, [*scope][-1]))  # the last one is often optional
                columns.append(f"${var} as c{place} {{ {', '.join(self.fields(scope, var))} }}")
                continue
            if self.one_in(4):
                columns.append(f"{self.expression(scope)} as c{place}")
                keys.append(f"c{place}")
                continue
            if scope[var] in "PCN" and self.one_in(3):
                columns.append(f"${var} as c{place}")
            elif scope[var] == "P" and self.one_in(8):
                columns.append(f"${var}.{self.pick('ln')} as c{place}")
                continue
            else:
                prop = self.pick(PROPERTIES[scope[var]])
                columns.append(f"${var}.{prop} as c{place}")
                keys.append(f"${var}.{prop}")
            keys.append(f"c{place}")
        return columns, keys

    def fields(self, scope: Scope, var: str) -> list[str]:
        """The fields of an object."""
        if self.one_in(8):
            return ["*", f"x: {self.expression(scope)}"]
        of_type = PROPERTIES[scope[var]]
        named = self.draw(st.lists(st.sampled_from(of_type), min_size=1, max_size=3, unique=True))
        if self.one_in(3):
            named.append(f"x: {self.expression(scope)}")
        return [*named, "id"] if self.one_in(4) else named

    def aggregates(self, scope: Scope) -> tuple[list[str], list[str]]:
        columns, keys = [], []
        for place in range(self.draw(st.integers(0, 2))):
            var = self.pick(scope)
            key = f"${var}.{self.pick(PROPERTIES[scope[var]])}"
            columns.append(f"{self.expression(scope) if self.one_in(4) else key} as c{place}")
            keys.append(f"c{place}")
        if self.one_in(6):
            fields = [*self.fields(scope, var := self.pick(scope)), f"y: {self.measure(scope)}"]
            columns.append(f"${var} as o {{ {', '.join(fields)} }}")
        for place in range(self.draw(st.integers(1, 3))):
            columns.append(f"{self.measure(scope)} as m{place}")
            keys.append(f"m{place}")
        if self.one_in(4):
            columns.append("count(*) * 2 - 1 as twice")
            keys.append("twice")
        return columns, keys

    def having(self, keys: list[str]) -> str:
        """A condition on groups."""
        if self.one_in(2):
            return f" having {{ count(*) {self.operator()} {self.pick((1, 2))} }}"
        return f" having {{ {self.pick(keys)} is {self.pick(('', 'not '))}null or count(*) > 2 }}"

    def measure(self, scope: Scope) -> str:
        var = self.pick(scope)
        if scope[var] in "PCN" and self.one_in(3):
            return f"count({self.pick(('', 'distinct '))}${var})"
        if self.one_in(4):
            return f"{self.pick(('count', 'min', 'max'))}({self.number(scope)})"
        if self.one_in(8):
            return f"{self.pick(('any', 'all'))}({self.simple(scope)})"
        prop = self.pick(PROPERTIES[scope[var]])
        if self.one_in(3):
            return f"count({self.pick(('', 'distinct '))}${var}.{prop})"
        if self.one_in(5):
            return f"collect({self.pick(('', 'distinct '))}${var}.{prop})"
        if prop in ("i", "w") and self.one_in(3):
            fraction = self.pick((0, 0.25, 0.9, 1))
            return self.pick(
                (
                    f"median(${var}.{prop})",
                    f"percentile(${var}.{prop}, {fraction})",
                    f"stddev(${var}.{prop})",
                )
            )
        if prop in ("i", "w", "big", "u"):
            return f"{self.pick(('sum', 'avg', 'min', 'max'))}(${var}.{prop})"
        return f"{self.pick(('min', 'max', 'count'))}(${var}.{prop})"


def _fits(type_: str, value: Any) -> bool:
    if type_ == "F64":
        return abs(value) < INF
    return not isinstance(value, float) and -(2**63) <= value < 2**63


@st.composite
def queries(draw: DrawFn) -> tuple[str, dict[str, Any]]:
    """The text of a query, and its parameters."""
    writer = Writer(draw)
    text = writer.text()
    return text, {name: value for name, (_, value) in writer.query.params.items()}
