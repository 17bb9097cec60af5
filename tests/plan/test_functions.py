"""The table of functions: its page, its examples, and the kernels that run it."""

import json
import os
import re
from pathlib import Path

import pytest

from omnigraph.catalog.accept import accept
from omnigraph.exec.values.computed import given_of
from omnigraph.exec.values.evaluate import KERNELS, Evaluator
from omnigraph.exec.values.rows import ONE_ROW
from omnigraph.exec.values.scalars import JsonForm
from omnigraph.exec.values.to_json import json_column
from omnigraph.plan.compile import compile_query
from omnigraph.plan.function_types import Function, Topic
from omnigraph.plan.functions import FUNCTIONS, OPERATORS, OTHER_OPERATORS
from omnigraph.plan.ir import ReadPlan

PAGE = Path(__file__).parents[2] / "docs" / "functions.md"
CATALOG = accept("node P { k: String @key  i: I64? }")
MARK = "<!-- table -->\n"


def row(function: Function) -> str:
    about = function.about + (f". An error where {function.fails}" if function.fails else "")
    example, value = function.example
    shown = f"`{example}` is `{value}`" if example else ""
    return f"| `{function.signature}` | {about} | {shown} |"


def table() -> str:
    """The reference, section by section."""
    parts = []
    for topic in Topic:
        rows = [row(function) for function in FUNCTIONS.values() if function.topic is topic]
        parts.append(
            "\n".join([f"## {topic}", "", "| call | is | example |", "|---|---|---|", *rows])
        )
    return "\n\n".join(parts) + "\n"


def test_the_page_of_functions_is_the_table() -> None:
    head, mark, shown = PAGE.read_text(encoding="utf-8").partition(MARK)
    shown, tail_mark, tail = shown.partition("\n<!-- end -->\n")
    if os.environ.get("OMNIGRAPH_UPDATE_GOLDEN"):
        PAGE.write_text(head + mark + table() + tail_mark + tail, encoding="utf-8")
        return
    assert shown == table()


def value_of(expression: str) -> object:
    text = f"query q() {{ match {{ $p: P }} return {{ {expression} as x }} }}"
    plan = compile_query(text, CATALOG)
    assert isinstance(plan, ReadPlan)
    given = given_of(plan, {}, 0)
    column = plan.columns[0]
    values = Evaluator(given, None).values(column.value, ONE_ROW)  # type: ignore[arg-type]
    return json_column(values, column.type, JsonForm.RESULT)[0]


@pytest.mark.parametrize("name", [f.name for f in FUNCTIONS.values() if f.example[0]])
def test_every_example_is_true(name: str) -> None:
    expression, value = FUNCTIONS[name].example
    actual = value_of(expression)
    assert actual == json.loads(value)
    assert type(actual) is type(json.loads(value))


def test_every_function_has_a_kernel_and_every_kernel_a_function() -> None:
    assert set(KERNELS) == {*FUNCTIONS, *OPERATORS, *OTHER_OPERATORS}


def test_every_function_of_the_page_is_named_once() -> None:
    names = re.findall(r"^\| `(?:text )?(\w+)", PAGE.read_text(encoding="utf-8"), re.M)
    assert len(names) == len(FUNCTIONS)
