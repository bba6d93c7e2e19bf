"""The application that serves the page, its data and its actions. Imported by the API server only."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from airflow.sdk.exceptions import AirflowNotFoundException
from fastapi import Body, Depends, FastAPI, HTTPException, Query, Request, Response, status
from fastapi import Path as PathParameter
from fastapi.responses import JSONResponse
from pydantic import ValidationError

from wasmline.control import ChangeCause
from wasmline.errors import Conflict, DeploymentNotFound, JobNotFound, TopicNotFound, VersionNotFound, WasmlineError
from wasmline.printable import bounded_line
from wasmline_provider.plugin.access import (
    MAY_READ,
    BaseUser,
    GetUserDep,
    may_act,
    may_answer_approvals,
    may_trigger,
    require_may_read_dag,
    require_own_page,
)
from wasmline_provider.plugin.action_owners import owning_dags
from wasmline_provider.plugin.actions import ACTIONS, ActionRequest, PauseRequest, StopRequest
from wasmline_provider.plugin.page import Page, PageUser
from wasmline_provider.plugin.settings import PageSettings

logger = logging.getLogger(__name__)

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
"""Of each answer: what the page runs comes from this server only, and no text of a guest or a record is code."""

MEDIA_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

NOT_FOUND = (DeploymentNotFound, JobNotFound, TopicNotFound, VersionNotFound)

MAX_REASON_LETTERS = 1_000

UNPROCESSABLE = 422

ActionName = Literal["pause", "resume", "rollback", "deploy", "stop", "redrive"]

Names = Annotated[tuple[str, ...], Query(max_length=100)]

Offset = Annotated[int, PathParameter(ge=0, lt=2**63)]


def create_application(page: Page | None = None) -> FastAPI:
    """Return the application of a page, by default that of Airflow's configuration. It connects to nothing yet."""
    app = FastAPI(title="Wasmline", docs_url=None, redoc_url=None, openapi_url=None, dependencies=[MAY_READ])
    app.middleware("http")(_with_headers)
    for kind in (WasmlineError, AirflowNotFoundException):
        app.exception_handler(kind)(_error_answer)
    shown = page or Page(PageSettings.read())
    _add_files(app)
    _add_cluster_views(app, shown)
    _add_storage_views(app, shown)
    _add_actions(app, shown)
    return app


def _add_files(app: FastAPI) -> None:
    """Add the document of the page and its files, which are read once."""
    folder = Path(__file__).parent / "static"
    found = (each for each in folder.rglob("*.*") if each.suffix in MEDIA_TYPES)
    contents = {each.relative_to(folder).as_posix(): each.read_bytes() for each in found}

    @app.get("/page")
    def document() -> Response:
        return _file("page.html", contents)

    @app.get("/static/{path:path}")
    def file(path: str) -> Response:
        return _file(path, contents)


def _add_cluster_views(app: FastAPI, page: Page) -> None:
    @app.get("/api/state")
    def state(user: GetUserDep, since: str = "") -> Response:
        return _json(page.state(since, _page_user(user, page)))

    @app.get("/api/lines")
    def lines() -> Response:
        return _json(page.lines())

    @app.get("/api/transforms/{name}")
    def transform(name: str, user: GetUserDep) -> Response:
        return _json({**page.transform(name), "may_act": _may_act(user, page, PauseRequest(transform=name))})

    @app.get("/api/transforms/{name}/logs")
    def logs(name: str) -> Response:
        return _json(page.logs(name))

    @app.get("/api/jobs/{job}")
    def job(job: str, user: GetUserDep) -> Response:
        return _json({**page.job(job), "may_act": _may_act(user, page, StopRequest(job=job))})

    @app.get("/api/runs/{dag_id}/{run_id}")
    def run(
        dag_id: str,
        run_id: str,
        user: GetUserDep,
        task: str | None = None,
        map_index: int | None = None,
        job: Names = (),
        transform: Names = (),
    ) -> Response:
        require_may_read_dag(user, dag_id)
        return _json(page.run(dag_id, run_id, task_id=task, map_index=map_index, jobs=job, transforms=transform))

    @app.get("/api/permissions")
    def permissions(user: GetUserDep, dag: Names = ()) -> Response:
        """Answer what the user may ask Airflow itself for, which is what the browser does."""
        allowed = {
            each: {"may_trigger": may_trigger(user, each), "may_answer": may_answer_approvals(user, each)}
            for each in dag
        }
        return _json({"dags": allowed, "user_id": user.get_id()})


def _add_storage_views(app: FastAPI, page: Page) -> None:
    @app.get("/api/versions/{name}")
    def versions(name: str) -> Response:
        return _json(page.versions(name))

    @app.get("/api/dead-letters/{topic}")
    def dead_letters(topic: str) -> Response:
        return _json(page.dead_letters(topic))

    @app.get("/api/records/{topic}/{partition}/{offset}")
    def record(topic: str, partition: Offset, offset: Offset) -> Response:
        return _json(page.record(topic, partition, offset))

    @app.get("/api/models/{name}")
    def model(name: str) -> Response:
        return _json(page.model(name))


def _add_actions(app: FastAPI, page: Page) -> None:
    @app.post("/api/plans/{name}", dependencies=[Depends(require_own_page)])
    def plan(name: ActionName, user: GetUserDep, body: Annotated[dict[str, Any], Body()]) -> dict[str, Any]:
        request = _request(name, body)
        _require_may_act(user, page, request)
        with page.reader.state() as (_, state):
            found = ACTIONS[name].plan(request, state)
        return {
            "title": found.title,
            "effects": list(found.effects),
            "fields": dict(found.fields),
            "needs_reason": True,
            "is_possible": not found.problem,
            "problem": found.problem,
        }

    @app.post("/api/actions/{name}", dependencies=[Depends(require_own_page)])
    def act(name: ActionName, user: GetUserDep, body: Annotated[dict[str, Any], Body()]) -> dict[str, Any]:
        reason = _reason(body.pop("reason", ""))
        request = _request(name, body)
        _require_may_act(user, page, request)
        ACTIONS[name].require_seen(request)
        cause = ChangeCause.shortened(reason=reason, by=user.get_name(), run="page")
        with page.reader.state() as (_, state):
            ACTIONS[name].plan(request, state)  # raises for what is not there
        context = page.action_context()
        text = page.act(lambda: ACTIONS[name].run(request, context, cause))
        logger.info("%s: %s (%s)", bounded_line(user.get_name()), bounded_line(text), bounded_line(reason))
        return {"text": text}


def _page_user(user: BaseUser, page: Page) -> PageUser:
    return PageUser(name=user.get_name(), may_act=may_act(user, (), page.settings.action_permission))


def _may_act(user: BaseUser, page: Page, request: ActionRequest) -> bool:
    """Return whether a user may act on each thing that a request names."""
    with page.reader.state() as (_, state):
        owners = owning_dags(state, request)
    return all(may_act(user, dag_ids, page.settings.action_permission) for dag_ids in owners)


def _require_may_act(user: BaseUser, page: Page, request: ActionRequest) -> None:
    """Refuse a user by the owners that are known, and everybody while these may be others by now."""
    reading = page.reader.reading  # before the owners are read
    if not _may_act(user, page, request):
        raise HTTPException(status.HTTP_403_FORBIDDEN, "you may read this page, and not act: ask for the right to edit")
    page.require_connected(reading)


def _request(name: ActionName, fields: dict[str, Any]) -> ActionRequest:
    try:
        return ACTIONS[name].request.model_validate(fields)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise HTTPException(UNPROCESSABLE, f"no {name}: {bounded_line(problems)}") from error


def _reason(reason: object) -> str:
    """Return a reason that was given. Raises HTTPException."""
    text = reason.strip() if isinstance(reason, str) else ""
    if not 0 < len(text) <= MAX_REASON_LETTERS:
        told = f"give a reason of at most {MAX_REASON_LETTERS:,} letters"
        raise HTTPException(UNPROCESSABLE, told)
    return text


def _json(document: dict[str, Any]) -> Response:
    """Return an answer of many rows, for which FastAPI's own encoder takes a hundred times as long."""
    return Response(msgspec.json.encode(document), media_type="application/json")


def _file(path: str, contents: dict[str, bytes]) -> Response:
    if path not in contents:
        raise HTTPException(status.HTTP_404_NOT_FOUND, "there is no such file")
    return Response(contents[path], media_type=MEDIA_TYPES[Path(path).suffix])


async def _with_headers(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    response = await call_next(request)
    response.headers.update(HEADERS)
    return response


def _error_answer(request: Request, error: Exception) -> JSONResponse:
    code = UNPROCESSABLE
    if isinstance(error, NOT_FOUND):
        code = status.HTTP_404_NOT_FOUND
    elif isinstance(error, Conflict):
        code = status.HTTP_409_CONFLICT
    elif getattr(error, "retryable", True):  # a connection may be added
        code = status.HTTP_503_SERVICE_UNAVAILABLE
    return JSONResponse({"detail": bounded_line(error)}, status_code=code)
