"""Notice of what a form did, shown once on the page that follows it (flash message).

Invariant: a notice is written by the server alone: its cookie is signed for one browser and actor
and ends after a minute. No address holds its text, and the page that shows it removes the cookie,
so that it is not shown again.
"""

import base64
import binascii
import time

from omnigraph.server.call import RouteCall
from omnigraph.server.ui.ui_session import FLASH, UiSessions, cookies

_SECONDS = 60
_CHARS_MAX = 1_000


def flash_cookie(call: RouteCall, notice: str) -> str:
    """Return the cookie that has the next page of this browser and actor show a notice."""
    assert call.visit is not None
    sessions = call.visit.front.sessions
    text = base64.urlsafe_b64encode(notice[:_CHARS_MAX].encode()).decode()
    until = str(int(time.time()) + _SECONDS)
    nonce = sessions.browser(call.headers)[0]
    signature = sessions.signature_of("flash", nonce, call.actor or "", until, text)
    return sessions.cookie(FLASH, f"{text}.{until}.{signature}", _SECONDS)


def taken_notice(call: RouteCall) -> tuple[str | None, str | None]:
    """Return the notice of a request, and the cookie that removes it; neither if there is none."""
    if call.visit is None:
        return None, None
    value = cookies(call.headers).get(FLASH)
    if value is None:
        return None, None
    sessions: UiSessions = call.visit.front.sessions
    return _read(call, sessions, value), sessions.cookie(FLASH, "", 0)


def _read(call: RouteCall, sessions: UiSessions, value: str) -> str | None:
    text, _, rest = value.partition(".")
    until, _, signature = rest.partition(".")
    nonce = sessions.browser(call.headers)[0]
    parts = ("flash", nonce, call.actor or "", until, text)
    if not sessions.is_signature(signature, *parts) or int(until) <= time.time():
        return None
    try:
        return base64.urlsafe_b64decode(text.encode()).decode()
    except (binascii.Error, ValueError):
        return None
