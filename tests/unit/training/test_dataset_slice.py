from dataclasses import replace

import pytest

from support.eta_model import eta_record
from wasmline.documents import decode, encode, plain
from wasmline.errors import UnsupportedSpecVersion
from wasmline.job_specs import TrainSpec
from wasmline.offset_ranges import OffsetRanges
from wasmline.training import Dataset
from wasmline.training.dataset_slice import of_slice


def test_the_order_of_partitions_is_no_part_of_the_identity(spec: TrainSpec) -> None:
    one = of_slice(spec, topic_id="t", offsets={"10": (0, 1), "2": (0, 3)})
    assert one.digest == of_slice(spec, topic_id="t", offsets={"2": (0, 3), "10": (0, 1)}).digest
    assert list(one.offsets) == ["2", "10"]


def test_anything_that_changes_the_rows_changes_the_identity(spec: TrainSpec, dataset: Dataset) -> None:
    others = [
        replace(dataset, offsets={"0": (0, 11), "1": (5, 25)}),
        replace(dataset, topic_id="t2"),
        replace(dataset, where="km > 0"),
        replace(dataset, seed=8),
        replace(dataset, holdout_share=0.3),
        replace(dataset, modules=("sha256:a",)),
    ]
    assert len({dataset.digest, *(other.digest for other in others)}) == 1 + len(others)


def test_a_manifest_read_back_has_the_same_identity(dataset: Dataset) -> None:
    assert decode(Dataset, encode(dataset)).digest == dataset.digest
    assert dataset.digest.startswith("sha256:")


def test_offsets_are_counted_over_all_partitions(dataset: Dataset) -> None:
    assert dataset.offset_count == 30


def test_a_partition_may_have_several_ranges(dataset: Dataset) -> None:
    several = replace(dataset, offsets={"0": (0, 10, 20, 25), "1": (5, 25)})
    assert several.ranges == ((0, 0, 10), (0, 20, 25), (1, 5, 25))
    assert several.offset_count == 35
    assert decode(Dataset, encode(several)) == several
    assert several.digest != replace(dataset, offsets={"0": (0, 25), "1": (5, 25)}).digest


def test_a_dataset_with_one_range_of_each_partition_has_the_digest_of_the_first_release() -> None:
    assert eta_record().dataset.digest == "sha256:a167a502ebdc96d40c6897957d76076305bf9f934582ca1a6e451d2ac820c05d"


@pytest.mark.parametrize("offsets", [{"0": (1, 0)}, {"x": (0, 1)}, {"0": (0, 5, 4, 9)}, {"0": (-5, 5)}])
def test_a_manifest_without_ranges_is_not_read(dataset: Dataset, offsets: OffsetRanges) -> None:
    manifest = {**plain(dataset), "offsets": offsets}
    with pytest.raises(UnsupportedSpecVersion):
        decode(Dataset, encode(manifest))
