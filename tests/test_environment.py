"""Variables are read as they are meant, or refused by name."""

import pytest

from omnigraph import environment
from omnigraph.environment import Variable
from omnigraph.errors import BadRequest

NUMBERS = [v for v in environment.TABLE if isinstance(v, environment.NumberVariable)]
CHECKED = [v for v in environment.TABLE if not isinstance(v, environment.TextVariable)]


@pytest.mark.parametrize("variable", CHECKED, ids=lambda v: v.name)
@pytest.mark.parametrize("text", ["abc", "-1", "1.5", "٣", "1e3", "9" * 5_000, "0x10", "nan"])
def test_a_value_that_makes_no_sense_is_refused_by_the_name_of_its_variable(
    variable: Variable, text: str
) -> None:
    with pytest.raises(BadRequest, match=f"^{variable.name} is '") as refused:
        variable.read({variable.name: text})
    assert "unset it" in str(refused.value)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("variable", NUMBERS, ids=lambda v: v.name)
def test_a_number_keeps_its_bounds(variable: environment.NumberVariable) -> None:
    for number in (variable.least, variable.most, variable.default):
        assert variable.read({variable.name: f" {number} "}) == number
    for number in (variable.least - 1, variable.most + 1):
        with pytest.raises(BadRequest, match=variable.name):
            variable.read({variable.name: str(number)})


@pytest.mark.parametrize("variable", environment.TABLE, ids=lambda v: v.name)
def test_an_empty_variable_is_an_unset_one(variable: Variable) -> None:
    assert variable.read({variable.name: ""}) == variable.read({})


def test_a_misspelt_variable_is_noticed() -> None:
    env = {"OMNIGRAPH_LOAD_CONCURENCY": "8", "OMNIGRAPH_HOME": "x", "OTHER": "y"}
    assert environment.unknown(env) == ("OMNIGRAPH_LOAD_CONCURENCY",)
