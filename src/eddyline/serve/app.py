"""Web application of the page.

It answers requests with pages, files, events and a person's changes. ``Page`` has the routes of
every page. It makes pages in one thread at a time, so the page takes one processor at most.
``Seen`` is what one browser was told: an event for each batch of a run. ``RuleForms`` lists rules
and changes them. A form is sent twice: the first answer says what would happen, or what is wrong
with the text as it was typed; the second request does it. ``BoundedProtocol`` limits connections.
They are open files of a process that runs queries, so nobody may take all of them, whether let in
or not.

Imports Starlette and uvicorn, so only ``server`` imports this file, and only when a server starts.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qs

import anyio
from anyio import to_thread
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from eddyline.errors import EddylineError, OptionError, PluginError
from eddyline.query.rules.rule import LEVELS
from eddyline.registry import package
from eddyline.report.metrics import CONTENT_TYPE, Measured, prometheus_text
from eddyline.runtime.by_hand import RuleChange
from eddyline.serve.following import LOOK_EVERY_S, Following
from eddyline.serve.guard import Guarded
from eddyline.serve.measures import cells, spark_line
from eddyline.serve.pages import NEEDS, Pages
from eddyline.serve.runs import HANDS, RULE_HANDS, Failure, Steerable, rules_of

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from starlette.requests import Request

    from eddyline.runtime.by_hand import ChangeableRules, RuleShown
    from eddyline.serve.following import Followed
    from eddyline.serve.guard import Guard
    from eddyline.serve.runs import RunSource


NOTE_EVERY_S = 1.0
"""Time between two notes of which runs there are, while nobody looks (s)."""

PING_EVERY_S = 15.0
"""Time after which a stream of events says that it is there (s)."""

RETRY_MS = 1_500
"""Time after which a browser asks again whose stream of events has ended (ms)."""

MOST_FIELD_BYTES = 10_000
"""Size of a form without a rule that a browser may send (bytes)."""

STATIC = {
    "page.js": ("eddyline.serve", "text/javascript"),
    "page.css": ("eddyline.serve", "text/css"),
    "favicon.svg": ("eddyline.serve", "image/svg+xml"),
    "figures.js": ("eddyline.report", "text/javascript"),
    "report.css": ("eddyline.report", "text/css"),
    "plotly.js": ("", "text/javascript"),
}
"""The files that pages load: the package whose templates have it, and its type."""


@dataclass
class Page:
    """The page of some runs: what its requests share.

    Attributes:
        source: knows the runs.
        values: whether values of rows are shown.
        controls: whether runs may be changed from the page.
        closing: set when the server stops; streams of events then end.
    """

    source: RunSource
    values: bool = False
    controls: bool = False
    closing: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.following = Following(self.source)
        self.pages = Pages(values=self.values, controls=self.controls, static=self._address)
        # One at a time: runs are asked by one thread, and a page takes one processor at most.
        self._one = anyio.CapacityLimiter(1)
        self.rules = RuleForms(self)
        self._files: dict[str, bytes] = {}
        self._versions: dict[str, str] = {}

    def routes(self) -> list[Route]:
        """Return what is answered."""
        hands = [
            route
            for name in HANDS
            for route in (
                Route(f"/run/{{key}}/{name}", partial(self.hand, name)),
                Route(f"/run/{{key}}/{name}", partial(self.done, name), methods=["POST"]),
            )
        ]
        adjusting = (
            Route("/run/{key}/adjust", self.options),
            Route("/run/{key}/adjust", self.adjusted, methods=["POST"]),
        )
        return [
            *((*hands, *adjusting, *self.rules.routes()) if self.controls else ()),
            Route("/", self.list),
            Route("/run/{key}", self.run),
            Route("/run/{key}/journal", self.journal),
            Route("/events", self.events),
            Route("/static/{name}", self.static),
            Route("/favicon.ico", self.icon),
            Route("/metrics", self.metrics),
        ]

    # -- pages ------------------------------------------------------------------------------------

    async def list(self, request: Request) -> Response:
        """Answer with the list of queries."""
        return await self._page_answer(
            request, lambda: self.pages.list([*self.following.look().values()])
        )

    async def run(self, request: Request) -> Response:
        """Answer with the page of a query."""
        key = request.path_params["key"]
        return await self._page_answer(request, lambda: self._rendered(key, self.pages.run), key)

    async def journal(self, request: Request) -> Response:
        """Answer with a page of decisions."""
        number = request.query_params.get("page", "1")
        page = int(number) if number.isascii() and number.isdigit() and len(number) < 9 else 0
        of_tasks = request.query_params.get("of") == "tasks"

        def render() -> str | None:
            return self._rendered(
                request.path_params["key"],
                lambda run: self.pages.journal(run, page, of_tasks=of_tasks),
            )

        return await self._page_answer(request, render)

    def _rendered(self, key: str, render: Callable[[Followed], str | None]) -> str | None:
        run = self.following.look().get(key)
        return None if run is None else render(run)

    async def _page_answer(
        self, request: Request, render: Callable[[], str | None], key: str = ""
    ) -> Response:
        """Answer with a page; in no words if the browser has it already."""
        text = await self.in_thread(render)
        if text is None:
            return await self.missing(request)
        mark = f'"{hashlib.blake2b(text.encode(), digest_size=12).hexdigest()}"'
        headers = {"etag": mark}
        run = self.following.look_back(key)
        if run is not None and (wait_s := self.pages.views.wait_s(run)):
            headers["eddyline-wait"] = f"{wait_s:.2f}"
        if request.headers.get("if-none-match") == mark:
            return Response(status_code=304, headers=headers)
        return HTMLResponse(text, headers=headers)

    async def in_thread(self, call: Callable[[], Any]) -> Any:
        """Call something in the thread that asks runs."""
        return await to_thread.run_sync(call, limiter=self._one)

    async def metrics(self, _: Request) -> Response:
        """Answer with the metrics of the runs of this process, in Prometheus' format."""
        runs = [
            followed.run
            for followed in self.following.known()
            if isinstance(followed.run, Measured)
        ]
        try:
            text = await self.in_thread(partial(prometheus_text, runs))
        except PluginError as error:
            return self.problem("Not installed", error.message, 501)
        return Response(text, media_type=CONTENT_TYPE)

    # -- a person's hand --------------------------------------------------------------------------

    async def hand(self, name: str, request: Request) -> Response:
        """Answer with the page that says what would happen."""
        key = request.path_params["key"]
        try:
            return await self._page_answer(
                request, lambda: self._rendered(key, lambda r: self.pages.hand(r, name))
            )
        except EddylineError as error:
            return self.problem("Not possible", error.message, 409)

    async def done(self, name: str, request: Request) -> Response:
        """Do what a person asked for, and lead back to the run."""
        answer = await self._steered(request)
        if isinstance(answer, Response):
            return answer
        run, steered, asked = answer
        component = asked.get("component") or None
        try:
            act = getattr(steered, name)
            await to_thread.run_sync(partial(act, component) if HANDS[name].is_of_plans else act)
        except EddylineError as error:
            return self.problem("Not possible", error.message, 409)
        self.pages.views.forget(run.key)
        return RedirectResponse(f"/run/{run.key}", 303)

    async def _steered(
        self, request: Request
    ) -> tuple[Followed, Steerable, dict[str, str]] | Response:
        """Return the run that a form changes and its fields, or an answer that says why not."""
        run = self.following.look_back(request.path_params["key"])
        if run is None or not isinstance(run.run, Steerable):
            return self.problem("Not found", "No run at this address can be changed.", 404)
        asked = await fields_of(request, MOST_FIELD_BYTES)
        if asked is None:
            return self.problem("Not understood", "The request is too long.", 413)
        return run, run.run, asked

    async def options(self, request: Request) -> Response:
        """Answer with the options of a run that can be changed."""
        key = request.path_params["key"]
        return await self._page_answer(request, lambda: self._rendered(key, self.pages.options))

    async def adjusted(self, request: Request) -> Response:
        """Give an option the value that a person typed, and lead back to the run."""
        answer = await self._steered(request)
        if isinstance(answer, Response):
            return answer
        run, steered, asked = answer
        component, name = asked.get("component", ""), asked.get("name", "")
        try:
            value = _number(asked.get("value", ""))
            await to_thread.run_sync(partial(steered.adjust, component, name, value))
        except EddylineError as error:
            render = partial(self.pages.options, run, {**asked, "wrong": error.message})
            return HTMLResponse(await self.in_thread(render), 409)
        self.pages.views.forget(run.key)
        return RedirectResponse(f"/run/{run.key}/adjust", 303)

    async def missing(self, *_: object) -> Response:
        """Answer where there is no page."""
        message = "There is nothing at this address: the query may have been named otherwise."
        return self.problem("Not found", message, 404)

    async def broken(self, _: Request, error: Exception) -> Response:
        """Answer where the words of a run fail; the run goes on."""
        reason = Failure.from_error(error).told(values=self.values)
        message = f"What was asked for could not be shown: {reason}"
        return self.problem("Not shown", message, 500)

    def problem(self, title: str, text: str, status: int) -> Response:
        """Answer with a page that says what is wrong."""
        return HTMLResponse(self.pages.problem(title, text), status)

    # -- events -----------------------------------------------------------------------------------

    async def events(self, request: Request) -> Response:
        """Answer with a stream of events: each batch, and each change of what runs there are."""
        # A browser asks for the page once the stream has begun: what comes from here on is told.
        seen = Seen(request.query_params.get("run"))
        seen.news(await self.in_thread(self.following.look))
        return StreamingResponse(
            self._events(seen),
            media_type="text/event-stream",
            headers={"x-accel-buffering": "no"},
        )

    async def _events(self, seen: Seen) -> AsyncIterator[str]:
        yield f"retry: {RETRY_MS}\n\n"
        quiet_s = 0.0
        while not self.closing.is_set():
            news = seen.news(await self.in_thread(self.following.look))
            for text in news:
                yield text
            quiet_s = 0.0 if news else quiet_s + LOOK_EVERY_S
            if quiet_s >= PING_EVERY_S:
                quiet_s = 0.0
                yield ": here\n\n"
            await anyio.sleep(LOOK_EVERY_S)

    @contextlib.asynccontextmanager
    async def kept(self, _: Starlette) -> AsyncIterator[None]:
        """Keep runs that end while nobody looks, as long as the application lives."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._note)
            yield
            tasks.cancel_scope.cancel()

    async def _note(self) -> None:
        while True:  # it asks runs nothing, so it costs nothing
            await self.in_thread(self.following.note)
            await anyio.sleep(NOTE_EVERY_S)

    # -- files ------------------------------------------------------------------------------------

    async def static(self, request: Request) -> Response:
        """Answer with a file that pages load."""
        name = request.path_params["name"]
        if name not in STATIC:
            return Response(status_code=404)
        headers = {"cache-control": "private, max-age=86400"}
        return Response(self._file(name), media_type=STATIC[name][1], headers=headers)

    async def icon(self, _: Request) -> Response:
        """Answer a browser that asks for an icon before it has a page."""
        return Response(self._file("favicon.svg"), media_type="image/svg+xml")

    def _file(self, name: str) -> bytes:
        if name not in self._files:
            room = STATIC[name][0]
            if room:
                self._files[name] = (files(room) / "templates" / name).read_bytes()
            else:
                self._files[name] = package("plotly.offline", NEEDS).get_plotlyjs().encode()
        return self._files[name]

    def _address(self, name: str) -> str:
        """Return the address of a file: another one after an update, as browsers keep files."""
        if name not in self._versions:
            self._versions[name] = hashlib.blake2b(self._file(name), digest_size=6).hexdigest()
        return f"/static/{name}?v={self._versions[name]}"


class Seen:
    """What one browser has been told.

    Args:
        key: of the only run that it is told of; None for all of them.
    """

    def __init__(self, key: str | None) -> None:
        self._key = key
        self._batches: dict[str, tuple[int, int]] = {}
        self._states: dict[str, str] = {}

    def news(self, runs: Mapping[str, Followed]) -> Sequence[str]:
        """Return the events since the last call: one for each batch, one if states are others."""
        shown = {key: run for key, run in runs.items() if self._key in (None, key)}
        events = [event for run in shown.values() for event in self._events(run)]
        states = {key: run.state for key, run in shown.items()}
        if states != self._states:
            self._states = states
            failed = sorted(run.name for run in shown.values() if run.state == "failed")
            events.append(event("runs", {"failed": failed[:10]}))
        return events

    def _events(self, run: Followed) -> list[str]:
        known_id, last = self._batches.get(run.key, (id(run), -1))
        self._batches[run.key] = id(run), run.last_batch
        fresh = [batch for batch in run.recent if known_id != id(run) or batch.batch_id > last]
        if not fresh:
            return []
        # Numbers are those after the newest batch; a page that gets several shows the last.
        now = {"cells": cells(run), "spark": spark_line(run.recent)}
        older = [event("batch", {"run": run.key, "batch": batch.batch_id}) for batch in fresh[:-1]]
        return [*older, event("batch", {"run": run.key, "batch": run.last_batch, **now})]


def event(kind: str, content: Mapping[str, Any]) -> str:
    """Return a server-sent event; its content stands on one line."""
    return f"event: {kind}\ndata: {json.dumps(content, separators=(',', ':'))}\n\n"


def application(page: Page, guard: Guard) -> Any:
    """Return the page behind its guard, as an ASGI application."""
    return Guarded(
        Starlette(
            routes=page.routes(),
            lifespan=page.kept,
            exception_handlers={404: page.missing, Exception: page.broken},
        ),
        guard,
        lambda why: page.pages.problem("Not let in", why),
    )


def _number(text: str) -> float:
    """Return the number that was typed; a whole one counts something.

    Raises:
        OptionError: it is none.
    """
    try:
        number = float(text.strip())
    except ValueError as error:
        msg = f"a value is a number such as 0.05 or 1000000, got {text!r:.80}"
        raise OptionError(msg, value=text) from error
    return int(number) if number.is_integer() else number


async def fields_of(request: Request, most_bytes: int) -> dict[str, str] | None:
    """Return the fields of a form, of each its first value; None if more was sent than allowed."""
    if int(request.headers.get("content-length") or most_bytes) >= most_bytes:
        return None
    fields = parse_qs((await request.body()).decode("utf-8", "replace"))
    return {name: values[0] for name, values in fields.items()}


MAX_RULES = 200
"""Rules of a list: of more, the rest is a number."""

MOST_RULE_BYTES = 200_000
"""Size of a form with a rule that a browser may send (bytes)."""


class RuleForms:
    """Answers what is asked about the rules of runs.

    Args:
        page: has the runs and their pages.
    """

    def __init__(self, page: Page) -> None:
        self._page = page

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

        def listed(run: Followed, rules: ChangeableRules) -> Response:
            return self._html("rules.html", run, found=rules.found(part, MAX_RULES), part=part)

        return await self._answered(request, listed)

    async def form(self, how: str, request: Request) -> Response:
        """Answer with a form: an empty one, or of a rule."""
        name = _typed(request.query_params.get("name", ""))

        def form_page(run: Followed, rules: ChangeableRules) -> Response:
            if how == "add":
                return self._form(run, rules, RuleChange(how, ""), None)
            rule = rules.rule(name)
            text = rule.text if how == "replace" and rule.is_sql else ""
            return self._form(run, rules, RuleChange(how, name, text, mark=rule.mark), rule)

        return await self._answered(request, form_page)

    async def sent(self, how: str, request: Request) -> Response:
        """Answer what was typed: with what would happen, with what is wrong, or by doing it."""
        fields = await fields_of(request, MOST_RULE_BYTES)
        if fields is None:
            return self._page.problem("Not understood", "The request is too long.", 413)
        asked = {name: _typed(value) for name, value in fields.items()}
        change = RuleChange(
            how,
            asked.get("name", "").strip() if how == "add" else asked.get("name", ""),
            asked.get("text", "").strip(),
            asked.get("level", ""),
            asked.get("mark", ""),
        )

        def answer(run: Followed, rules: ChangeableRules) -> Response:
            rule = None if how == "add" else rules.rule(change.name)
            try:
                if "sure" not in asked:
                    rules.check(change)
                    return self._html("rule_sure.html", run, change=change, rule=rule)
                cast("Steerable", run.run).change_rules(change)
            except EddylineError as error:
                return self._form(run, rules, change, rule, wrong=error.message)
            self._page.pages.views.forget(run.key)
            return RedirectResponse(f"/run/{run.key}/rules", 303)

        return await self._answered(request, answer)

    def _form(
        self,
        run: Followed,
        rules: ChangeableRules,
        change: RuleChange,
        rule: RuleShown | None,
        wrong: str = "",
    ) -> Response:
        """Return a form with what was typed and, if something is, what is wrong with it."""
        if follows := rules.found("", 0).follows:
            message = f"The rules follow {follows}: change its files."
            return self._page.problem("Not possible", message, 409)
        template = "rule_sure.html" if change.how == "remove" else "rule.html"
        status = 409 if wrong else 200
        context = {"change": change, "rule": rule, "wrong": wrong, "levels": LEVELS}
        return self._html(template, run, status, **context)

    # -- the run ----------------------------------------------------------------------------------

    async def _answered(
        self, request: Request, answer: Callable[[Followed, ChangeableRules], Response]
    ) -> Response:
        """Answer about the rules of the run of an address, if it has some."""
        key = request.path_params["key"]

        def answered() -> Response:
            run = self._page.following.look().get(key)
            rules = None if run is None else rules_of(run.run)
            if run is None or rules is None:
                message = "No run at this address has rules that can be changed."
                return self._page.problem("Not found", message, 404)
            if not run.run.is_running():
                message = "The run has ended; its rules are those of its program."
                return self._page.problem("Not possible", message, 409)
            try:
                return answer(run, rules)
            except EddylineError as error:
                return self._page.problem("Not possible", error.message, 409)

        response: Response = await self._page.in_thread(answered)
        return response

    def _html(self, template: str, run: Followed, status: int = 200, **context: Any) -> Response:
        named = {"run": run, "rule_hands": RULE_HANDS, "wrong": "", **context}
        return HTMLResponse(self._page.pages.render(template, **named), status)


def _typed(text: str) -> str:
    """Return a text of a form, whose lines browsers end as the network does."""
    return text.replace("\r\n", "\n")


MOST_CONNECTIONS = 400
"""Connections at a time; of more, the newest are closed."""

PATIENCE_S = 10.0
"""Longest wait for a whole request, from its first byte or the connection on (s)."""


class BoundedProtocol(H11Protocol):
    """A connection that is closed where a request takes too long to come."""

    _ends: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take in a connection."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.close()
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Take in what has come of a request."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of a connection."""
        super().connection_lost(exc)
        self._stop_watching()

    def _watch(self) -> None:
        if not self._is_waiting:
            self._stop_watching()
        elif self._ends is None:
            self._ends = self.loop.call_later(PATIENCE_S, self._end)

    @property
    def _is_waiting(self) -> bool:
        """Whether no whole request is being answered."""
        cycle = self.cycle
        return cycle is None or cycle.response_complete

    def _stop_watching(self) -> None:
        if self._ends is not None:
            self._ends.cancel()
            self._ends = None

    def _end(self) -> None:
        self._ends = None
        if self._is_waiting:
            self.transport.close()
