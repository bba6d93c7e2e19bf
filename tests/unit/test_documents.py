import pytest

from wasmline.documents import decode, encode, plain
from wasmline.errors import UnsupportedSpecVersion
from wasmline.job_specs import JobReport, JobSpec, JobState, StreamSpec

SPEC = JobSpec(job="j", run="r", storage="s3://bucket/x", stream=StreamSpec(transform="t", trigger_interval="1 second"))
REPORT = JobReport(job="j", run="r", state=JobState.FAILED, updated_ms=5, error="GuestTrap", result={"rows": [1, 2]})


@pytest.mark.parametrize("document", [SPEC, REPORT])
def test_a_document_survives_its_json(document: JobSpec | JobReport) -> None:
    assert decode(type(document), encode(document)) == document


def test_plain_data_is_what_json_would_hold() -> None:
    assert plain(REPORT)["state"] == "failed"
    assert repr(plain({"ranges": ((1, 2), (3, 4)), "none": ()})) == "{'ranges': [[1, 2], [3, 4]], 'none': []}"


def test_another_spec_version_is_refused_by_name() -> None:
    newer = encode(SPEC).replace(b'"spec_version":1', b'"spec_version":2')
    with pytest.raises(UnsupportedSpecVersion, match=r"JobSpec.*spec_version"):
        decode(JobSpec, newer)


def test_a_mistyped_field_is_refused_with_its_path() -> None:
    with pytest.raises(UnsupportedSpecVersion, match=r"\$\.stream\.transform"):
        decode(JobSpec, encode(SPEC).replace(b'"transform":"t"', b'"transform":7'))


def test_a_field_that_a_newer_release_added_is_ignored() -> None:
    assert decode(JobSpec, encode(SPEC)[:-1] + b',"colour":"blue"}') == SPEC


@pytest.mark.parametrize(
    "changed", [(b'"job":"j"', b'"job":"../j"'), (b'"run":"r"', b'"run":"' + b"x" * 129 + b'"')], ids=["job", "run"]
)
def test_a_value_that_its_kind_refuses_is_refused_as_one_of_another_release(changed: tuple[bytes, bytes]) -> None:
    data = encode(SPEC)
    assert changed[0] in data
    with pytest.raises(UnsupportedSpecVersion, match="not a JobSpec"):
        decode(JobSpec, data.replace(*changed))
