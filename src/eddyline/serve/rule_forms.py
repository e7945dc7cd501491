"""The rules of a run in a browser: a list, and forms that add, replace and remove.

A form is sent twice: first it is checked and answered with what would happen, or with what is wrong
and the text as it was typed; then, from there, it is done.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from eddyline.errors import EddylineError
from eddyline.query.rules.rule import LEVELS
from eddyline.runtime.by_hand import RuleChange
from eddyline.serve.hands import RULE_HANDS, HasRules, rules_of
from eddyline.serve.sent import fields_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request

    from eddyline.runtime.by_hand import ChangeableRules, RuleShown
    from eddyline.serve.following import Followed
    from eddyline.serve.pages import Pages

MAX_RULES = 200
"""Rules of a list: of more, the rest is a number."""

MOST_BYTES = 200_000
"""Size of what a browser may send (bytes)."""


@dataclass(frozen=True, slots=True)
class Changeable:
    """A run whose rules a person may change."""

    followed: Followed
    run: HasRules
    rules: ChangeableRules


class RuleForms:
    """Answers what is asked about the rules of runs.

    Args:
        following: knows the runs.
        pages: makes the pages.
        in_thread: calls something in the thread that asks runs.
    """

    def __init__(
        self,
        following: Any,
        pages: Pages,
        in_thread: Callable[[Callable[[], Response]], Awaitable[Any]],
    ) -> None:
        self._following = following
        self._pages = pages
        self._in_thread = in_thread

    def routes(self) -> list[Route]:
        """Return what is answered."""
        path = "/run/{key}/rules"
        return [
            Route(path, self.list),
            *(Route(f"{path}/{how}", partial(self.form, how)) for how in RULE_HANDS),
            *(
                Route(f"{path}/{how}", partial(self.sent, how), methods=["POST"])
                for how in RULE_HANDS
            ),
        ]

    async def list(self, request: Request) -> Response:
        """Answer with the rules whose names have a part."""
        part = request.query_params.get("part", "").strip()

        def listed(of: Changeable) -> Response:
            found = of.rules.found(part, MAX_RULES)
            return self._page("rules.html", of, found=found, part=part)

        return await self._answered(request, listed)

    async def form(self, how: str, request: Request) -> Response:
        """Answer with a form: an empty one, or of a rule."""
        name = _typed(request.query_params.get("name", ""))

        def made(of: Changeable) -> Response:
            if how == "add":
                return self._form(of, RuleChange(how, ""), None)
            rule = of.rules.rule(name)
            text = rule.text if how == "replace" and rule.is_sql else ""
            return self._form(of, RuleChange(how, name, text, mark=rule.mark), rule)

        return await self._answered(request, made)

    async def sent(self, how: str, request: Request) -> Response:
        """Answer what was typed: with what would happen, with what is wrong, or by doing it."""
        fields = await fields_of(request, MOST_BYTES)
        if fields is None:
            return self._problem("Not understood", "The request is too long.", 413)
        asked = {name: _typed(value) for name, value in fields.items()}
        change = RuleChange(
            how,
            asked.get("name", "").strip() if how == "add" else asked.get("name", ""),
            asked.get("text", "").strip(),
            asked.get("level", ""),
            asked.get("mark", ""),
        )
        return await self._answered(
            request, lambda of: self._sent(of, change, is_sure="sure" in asked)
        )

    def _sent(self, of: Changeable, change: RuleChange, *, is_sure: bool) -> Response:
        rule = None if change.how == "add" else of.rules.rule(change.name)
        try:
            if not is_sure:
                of.rules.check(change)
                return self._page("rule_sure.html", of, change=change, rule=rule)
            of.run.change_rules(change)
        except EddylineError as error:
            return self._form(of, change, rule, wrong=error.message)
        self._pages.views.forget(of.followed.key)
        return RedirectResponse(f"/run/{of.followed.key}/rules", 303)

    def _form(
        self, of: Changeable, change: RuleChange, rule: RuleShown | None, wrong: str = ""
    ) -> Response:
        """Return a form with what was typed and, if something is, what is wrong with it."""
        follows = of.rules.found("", 0).follows
        if follows:
            said = f"The rules follow {follows}: change its files."
            return self._problem("Not possible", said, 409)
        template = "rule_sure.html" if change.how == "remove" else "rule.html"
        status = 409 if wrong else 200
        context = {"change": change, "rule": rule, "wrong": wrong, "levels": LEVELS}
        return self._page(template, of, status, **context)

    # -- the run ----------------------------------------------------------------------------------

    async def _answered(
        self, request: Request, answer: Callable[[Changeable], Response]
    ) -> Response:
        """Answer about the rules of the run of an address, if it has some."""
        key = request.path_params["key"]

        def answered() -> Response:
            followed = self._following.look().get(key)
            rules = None if followed is None else rules_of(followed.run)
            if followed is None or rules is None:
                said = "No run at this address has rules that can be changed."
                return self._problem("Not found", said, 404)
            if not followed.run.is_running():
                said = "The run has ended; its rules are those of its program."
                return self._problem("Not possible", said, 409)
            try:
                return answer(Changeable(followed, followed.run, rules))
            except EddylineError as error:
                return self._problem("Not possible", error.message, 409)

        found: Response = await self._in_thread(answered)
        return found

    def _page(self, template: str, of: Changeable, status: int = 200, **context: Any) -> Response:
        text = self._pages.render(
            template, **{"run": of.followed, "rule_hands": RULE_HANDS, "wrong": "", **context}
        )
        return HTMLResponse(text, status)

    def _problem(self, title: str, text: str, status: int) -> Response:
        return HTMLResponse(self._pages.problem(title, text), status)


def _typed(text: str) -> str:
    """Return a text of a form, whose lines browsers end as the network does."""
    return text.replace("\r\n", "\n")
