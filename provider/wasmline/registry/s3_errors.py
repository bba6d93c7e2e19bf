"""Explains the errors of S3's driver: which of them no retry cures, and what does.

The driver is not imported. Its errors carry a response of S3, by its error codes (Amazon S3 API reference, "Error
responses"), or are caused by an error of botocore.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

NO_SUCH_BUCKET = "NoSuchBucket"

_EXISTS = ("PreconditionFailed", "412")
_CONFLICT = ("ConditionalRequestConflict", "OperationAborted", "409")

_KEYS = "check {keys}"
_RIGHTS = f"access is denied: {_KEYS}, and that they may list the bucket, and get and put its objects"
_EXPIRED = "the session token has expired, or is another one's: get new credentials"
_LACKING = "the store lacks what a request asks for, such as conditional writes (If-None-Match) or session tokens"
_REGION = "the bucket is in another region: set {region} to it"

_REMEDIES = {
    NO_SUCH_BUCKET: "there is no such bucket: create it, or correct the URL or {endpoint}",
    "InvalidAccessKeyId": f"the access key is unknown: {_KEYS}, and {{endpoint}}",
    "SignatureDoesNotMatch": f"the secret key is not that of the access key: {_KEYS}",
    "AccessDenied": _RIGHTS,
    "403": _RIGHTS,
    "ExpiredToken": _EXPIRED,
    "InvalidToken": _EXPIRED,
    "TokenRefreshRequired": _EXPIRED,
    "RequestTimeTooSkewed": "the clock of this machine and that of the store differ: set it",
    "AuthorizationHeaderMalformed": _REGION,
    "PermanentRedirect": _REGION,
    "301": _REGION,
    "NotImplemented": _LACKING,
    "501": _LACKING,
    "NoCredentialsError": "there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
    "PartialCredentialsError": f"the credentials are incomplete: {_KEYS}",
    "ProfileNotFound": "there is no such profile: correct AWS_PROFILE",
}

_MACHINE = {
    "keys": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the profile or the role in their place",
    "endpoint": "AWS_ENDPOINT_URL",
    "region": "AWS_DEFAULT_REGION",
}
"""Where a machine has its settings."""

_CONNECTION = "of the connection that is named as object_store_conn_id"
_NAMED = {"endpoint": f"endpoint_url {_CONNECTION}", "region": f"region_name {_CONNECTION}"}
_KEYED = {"keys": f"the keys {_CONNECTION}"}
"""Where they are with a login of Airflow, which wins over the machine's."""


def exists_already(error: BaseException) -> bool:
    """Return whether S3 refused to create an object because there is one.

    The driver has FileExistsError only for servers that name the condition that failed.
    """
    return isinstance(error, FileExistsError) or _code(error) in _EXISTS


def is_conflict(error: BaseException) -> bool:
    """Return whether S3 could not decide on the condition, because another request for the object was under way."""
    return _code(error) in _CONFLICT


def is_missing_bucket(error: BaseException) -> bool:
    """Return whether an error is that of a bucket, not of an object in it."""
    return _code(error) == NO_SUCH_BUCKET


def remedy(error: BaseException, options: Collection[str] = ()) -> str:
    """Return what S3 refused and what to do, or "" if a retry may do, and for errors of other stores.

    ``options``: the names of those of the driver that are not the machine's, such as ``key``.
    """
    settings = _MACHINE | (_NAMED if options else {}) | (_KEYED if "key" in options else {})
    return _REMEDIES.get(_code(error), "").format_map(settings)


def _code(error: BaseException) -> str:
    """Return the code in S3's response, or the name of botocore's error; "" for others."""
    for each in _causes(error):
        response = getattr(each, "response", None)
        described = response.get("Error") if isinstance(response, dict) else None
        if isinstance(described, dict):
            return str(described.get("Code", ""))
        if type(each).__module__ == "botocore.exceptions":
            return type(each).__name__
    return ""


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__
