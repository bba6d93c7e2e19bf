from dataclasses import replace

from wasmline.documents import decode, encode
from wasmline.job_specs import TrainSpec
from wasmline.training import Dataset
from wasmline.training.dataset_slice import of_slice


def test_the_order_of_partitions_and_modules_is_no_part_of_the_identity(spec: TrainSpec) -> None:
    two = replace(spec, modules=("sha256:b", "sha256:a"))
    other = replace(spec, modules=("sha256:a", "sha256:b"))
    one = of_slice(two, topic_id="t", offsets={"10": (0, 1), "2": (0, 3)})
    assert one.digest == of_slice(other, topic_id="t", offsets={"2": (0, 3), "10": (0, 1)}).digest
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
