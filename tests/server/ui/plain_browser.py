"""A browser without scripts: the forms of a page, filled in and sent as HTML says."""

from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import urlsplit

import httpx

_UNTYPED = ("hidden", "checkbox", "radio")


@dataclass
class PlainForm:
    """A form: where it goes, what it sends untouched, what must be filled in, and its buttons."""

    action: str
    method: str
    values: dict[str, list[str]] = field(default_factory=dict)
    required: set[str] = field(default_factory=set)
    choices: dict[str, list[str]] = field(default_factory=dict)
    buttons: list[dict[str, str]] = field(default_factory=list)

    @property
    def path(self) -> str:
        return urlsplit(self.action).path

    def sent(self, client: httpx.Client, origin: str, **typed: str) -> httpx.Response:
        """What the server answers to the form; a line ends as browsers end it."""
        asked = {name: self.choices.get(name, ["x"])[0] for name in self.required - set(typed)}
        filled = {name: [value] for name, value in (asked | typed).items()}
        data = {
            name: [value.replace("\n", "\r\n") for value in values]
            for name, values in (self.values | filled).items()
        }
        if self.method == "get":
            return client.get(self.path, params=data, follow_redirects=True)
        return client.post(
            self.action, data=data, headers={"Origin": origin}, follow_redirects=True
        )


class _FormParser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.forms: list[PlainForm] = []
        self._form: PlainForm | None = None
        self._select = self._area = ""
        self._text: str | None = None
        self._option: tuple[str | None, bool] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._form = PlainForm(given.get("action", ""), given.get("method", "get"))
            self.forms.append(self._form)
        elif self._form is None:
            return
        elif tag == "input":
            self._input(self._form, given)
        elif tag == "textarea":
            self._area, self._text = given["name"], ""
            self._note_required(self._form, given)
        elif tag == "select":
            self._select = given["name"]
            self._note_required(self._form, given)
        elif tag == "option" and self._select:
            self._option, self._text = (given.get("value"), "selected" in given), ""
        elif tag == "button" and given.get("type") != "button":
            name = given.get("name")
            self._form.buttons.append({} if name is None else {name: given.get("value", "")})

    def _input(self, form: PlainForm, given: dict[str, str]) -> None:
        name, kind = given["name"], given.get("type", "text")
        value = given.get("value", "on" if kind == "checkbox" else "")
        if kind not in _UNTYPED:
            value = value.replace("\n", "").replace("\r", "")  # as a browser keeps one line
        if kind == "radio":
            form.choices.setdefault(name, []).append(value)
        if kind not in ("checkbox", "radio") or "checked" in given:
            form.values.setdefault(name, []).append(value)
        self._note_required(form, given)

    def _note_required(self, form: PlainForm, given: dict[str, str]) -> None:
        if "required" in given and not any(form.values.get(given["name"], ())):
            form.required.add(given["name"])

    def handle_data(self, data: str) -> None:
        if self._text is not None:
            self._text += data

    def handle_endtag(self, tag: str) -> None:
        if self._form is None:
            return
        if tag == "textarea":
            text = (self._text or "").removeprefix("\n")  # a browser leaves out the first line end
            self._form.values[self._area] = [text]
            self._text = None
        elif tag == "option" and self._option is not None:
            value, is_selected = self._option
            shown = (self._text or "") if value is None else value
            if is_selected or self._select not in self._form.values:
                self._form.values[self._select] = [shown]
            self._option, self._text = None, None
        elif tag == "select":
            self._select = ""
        elif tag == "form":
            self._form = None


def forms_of(page: str) -> list[PlainForm]:
    """Every form of a page."""
    parser = _FormParser()
    parser.feed(page.replace("\r\n", "\n").replace("\r", "\n"))
    return parser.forms
