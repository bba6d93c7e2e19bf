"""Asks Airflow's auth manager who may read the page and who may act.

A mounted application is not protected by Airflow: each of its routes depends on one of these. What this imports of
Airflow is not declared public, and is imported here only.
"""

from __future__ import annotations

from collections.abc import Iterable

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.base_auth_manager import BaseAuthManager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser as BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView, DagAccessEntity, DagDetails
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.api_fastapi.core_api.security import GetUserDep as GetUserDep
from airflow.api_fastapi.core_api.security import requires_access_view
from airflow.configuration import conf
from airflow.models.dag import DagModel
from fastapi import Depends, HTTPException, Request, status

MAY_READ = Depends(requires_access_view(AccessView.PLUGINS))
"""Whoever may see plugins; 401 without a login, 403 without the permission."""

REQUEST_HEADER = "X-Wasmline"
"""A header that another site cannot send without asking first, which this application does not answer."""


def require_own_page(request: Request) -> None:
    """Refuse a change that another site's page may have sent with the user's cookie."""
    site = request.headers.get("Sec-Fetch-Site", "same-origin")
    if request.headers.get(REQUEST_HEADER) != "1" or site != "same-origin":
        raise HTTPException(status.HTTP_403_FORBIDDEN, f"a change needs the header {REQUEST_HEADER}, from this page")


def require_may_read_dag(user: BaseUser, dag_id: str) -> None:
    """Refuse a user who may not read a DAG. Raises HTTPException."""
    if not get_auth_manager().is_authorized_dag(method="GET", details=_details(dag_id), user=user):
        raise HTTPException(status.HTTP_403_FORBIDDEN, f"you may not read the DAG {dag_id}")


def may_act(user: BaseUser, dag_ids: Iterable[str], permission: str) -> bool:
    """Return whether a user may act on what one of ``dag_ids`` has made.

    That is whoever may edit any DAG, if Airflow has no teams, or one of these that it has, or has the named
    ``permission``.
    """
    manager = get_auth_manager()
    if conf.getboolean("core", "multi_team", fallback=False):
        # The right to any DAG is one team's, and so was a DAG that Airflow no longer has: it does not say whose.
        dag_ids = [dag_id for dag_id in dag_ids if DagModel.get_dagmodel(dag_id) is not None]
    elif _may_edit(manager, user, None):
        return True
    return any(_may_edit(manager, user, dag_id) for dag_id in dag_ids) or _has_permission(manager, user, permission)


def may_trigger(user: BaseUser, dag_id: str) -> bool:
    """Return whether Airflow lets a user trigger a DAG."""
    return get_auth_manager().is_authorized_dag(
        method="POST", access_entity=DagAccessEntity.RUN, details=_details(dag_id), user=user
    )


def may_answer_approvals(user: BaseUser, dag_id: str) -> bool:
    """Return whether Airflow lets a user answer what the tasks of a DAG ask, if they ask everybody."""
    return get_auth_manager().is_authorized_dag(
        method="PUT", access_entity=DagAccessEntity.HITL_DETAIL, details=_details(dag_id), user=user
    )


def _may_edit(manager: BaseAuthManager[BaseUser], user: BaseUser, dag_id: str | None) -> bool:
    return manager.is_authorized_dag(method="PUT", details=_details(dag_id), user=user)


def _details(dag_id: str | None) -> DagDetails:
    """Return what the auth manager is asked about: a DAG, or any for None."""
    return DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id) if dag_id is not None else None)


def _has_permission(manager: BaseAuthManager[BaseUser], user: BaseUser, permission: str) -> bool:
    """Return whether the auth manager grants PUT on a custom view.

    The simple auth manager has no permissions by name: it grants every custom view to whoever may read.
    """
    if not permission or isinstance(manager, SimpleAuthManager):
        return False
    return manager.is_authorized_custom_view(method="PUT", resource_name=permission, user=user)
