"""Links from the page of a task in Airflow's UI to its job.

Airflow's API server reads a link's URL from an XCom, and knows no custom XCom backend: links bypass it, as what Airflow
itself stores of a link does. It is published as soon as it is known, so that a link works while its task runs or is
deferred.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any, cast

from airflow.sdk import BaseOperatorLink

from wasmline.background_call import BackgroundCall
from wasmline.repeated_errors import error_line

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

log = logging.getLogger(__name__)

PUBLISH_TIMEOUT_S = 10.0
"""Maximum seconds to wait for Airflow's answer; a link that is written later works, too."""

WEB_URL = re.compile(r"https?://[A-Za-z0-9.:\[\]_-]{1,300}(?:/[!-~]{0,1000})?")


class PublishedLink(BaseOperatorLink):
    """A link to the URL that was published for its task instance."""

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the published URL, "" without one. Airflow stores the answer whenever the task's process ends."""
        from airflow.sdk.bases.xcom import BaseXCom

        return self._checked(str(BaseXCom.get_value(ti_key=cast("Any", ti_key), key=self.xcom_key) or ""))

    def publish(self, ti: Any, url: str) -> None:
        """Let the link of a task instance lead to ``url``; in a task's process.

        An error is logged: the job goes on. What ``on_kill`` raises in a signal's handler meanwhile is raised, and
        ``on_kill`` finds the connection to Airflow free: another thread writes.
        """
        call = BackgroundCall(lambda: self.write(ti, url))
        if not call.wait(PUBLISH_TIMEOUT_S):
            log.warning("the link %s is not published: no answer within %.0f s", self.name, PUBLISH_TIMEOUT_S)

    def write(self, ti: Any, url: str) -> None:
        """Do what ``publish`` does, in this thread: an error is logged."""
        from airflow.sdk.bases.xcom import BaseXCom

        try:
            BaseXCom.set(
                self.xcom_key,
                self._checked(url),
                dag_id=ti.dag_id,
                task_id=ti.task_id,
                run_id=ti.run_id,
                map_index=-1 if ti.map_index is None else ti.map_index,
            )
        except Exception as error:
            log.warning("the link %s is not published: %s", self.name, error_line(error))

    def _checked(self, url: str) -> str:
        """Return a URL, "" for what is none: it may come from a record of the cluster, and a browser opens it."""
        return url if WEB_URL.fullmatch(url) else ""


class JobStatusLink(PublishedLink):
    """Leads to the task's log in Airflow's UI, where each changed report of the job is a line."""

    name = "Job status"

    def _checked(self, url: str) -> str:
        return url  # Airflow's own, and its base_url may be relative


class SparkUiLink(PublishedLink):
    """Leads to Spark's UI of the driver, as long as the task waits for it."""

    name = "Spark UI"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the driver's URL, "" once its run has ended: its UI has ended with it."""
        return "" if getattr(operator, "has_run_ended", False) else super().get_link(operator, ti_key=ti_key)


JOB_STATUS = JobStatusLink()
SPARK_UI = SparkUiLink()
