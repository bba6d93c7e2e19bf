"""URLs of registries and storages without the login in them."""

import pytest

from wasmline_provider.registry_places import url_without_login


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("/var/lib/wasmline", "/var/lib/wasmline"),
        ("s3a://bucket/wasmline", "s3a://bucket/wasmline"),
        ("s3a://KEY:SECRET@bucket/wasmline", "s3a://bucket/wasmline"),
        ("s3a://KEY:SE@CRET@bucket", "s3a://bucket"),
        ("abfss://container@account/folder", "abfss://container@account/folder"),
        ("s3a://bucket/of@ann:x", "s3a://bucket/of@ann:x"),
    ],
)
def test_a_login_is_left_out_of_a_url_and_the_rest_stays(url: str, shown: str) -> None:
    assert url_without_login(url) == shown
