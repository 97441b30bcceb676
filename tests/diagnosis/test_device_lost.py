"""A GPU that failed, against faults of the program's own.

The kernel's lines are written as NVIDIA documents its Xid messages; no card was broken for this.
"""

from __future__ import annotations

import pytest
from build import causes, exception, ordinary_run

from holter.diagnosis.core.doctor import verdict

LAUNCH = "CUDA error: unspecified launch failure"


def card(record, at, ecc=0, index=0, tree=4e9):
    row = {"index": index, "name": "GPU", "total": 24e9, "used": 5e9, "tree": tree, "ecc_uncorrected": ecc}
    return record.sample(at, nvidia={"list": [row]})


def with_xid(record, at, number):
    text = f"NVRM: Xid (PCI:0000:65:00): {number}, pid=4242, name=python"
    return record.event("kernel", at, kind="xid", text=text, oom=False, xid=number, device="0000:65:00")


@pytest.mark.parametrize("number", [48, 74, 79, 94, 95, 119])
def test_hardware_xid_before_a_failed_end(number):
    """The driver's own word at the end of a run that failed is proof."""
    record = with_xid(card(ordinary_run(), 3), 58, number)
    exception(record, 59, "RuntimeError", LAUNCH).exit(60, 1)

    finding = verdict(record).findings[0]

    assert (finding.cause, finding.grade) == ("device-lost", "established")
    assert f"Xid {number}" in finding.claim
    assert "0000:65:00" in finding.claim


@pytest.mark.parametrize("number", [13, 31, 43, 45, 63])
def test_the_programs_own_xids_are_none(number):
    """A bad index or a kernel that was stopped is logged by the driver as well."""
    record = with_xid(card(ordinary_run(), 3), 58, number)
    exception(record, 59, "RuntimeError", LAUNCH).exit(60, 1)

    assert causes(verdict(record)) == ["user-error"]


@pytest.mark.parametrize(
    "message",
    [
        "CUDA error: uncorrectable ECC error encountered",
        "Unable to determine the device handle for GPU0000:65:00.0: GPU is lost.  Reboot the system to recover it",
    ],
)
def test_cudas_own_words(message):
    """CUDA says it itself, where the kernel log can't be read."""
    record = exception(card(ordinary_run(), 3), 59, "RuntimeError", message).exit(60, 1)

    assert next((f.cause, f.grade) for f in verdict(record).findings) == ("device-lost", "established")


def test_ecc_errors_that_rise():
    """Uncorrectable errors on the card that the run uses are told, though the run went on."""
    record = card(card(ordinary_run(), 3, ecc=2), 40, ecc=5).exit(60, 0)

    finding = verdict(record).findings[0]

    assert (finding.cause, finding.grade) == ("device-lost", "supported")
    assert "2 → 5" in finding.evidence[0].value


def test_ecc_errors_of_another_card_are_none():
    """A card that the run does not use, and a counter that stands, say nothing."""
    record = card(card(card(card(ordinary_run(), 3), 4, index=1, tree=0), 40), 41, index=1, tree=0, ecc=9).exit(60, 0)

    assert verdict(record).findings == ()


def test_driver_that_stopped_answering_is_a_guess():
    """No reading any more, and a failed run: a hypothesis beside the error itself."""
    record = card(ordinary_run(), 3).event("missing", 50, probe="nvidia", because="Unknown Error")
    exception(record, 59, "RuntimeError", LAUNCH).exit(60, 1)

    found = {finding.cause: finding.grade for finding in verdict(record).findings}

    assert found["device-lost"] == "hypothesis"


def test_machine_without_a_card_is_none():
    """A probe that was never there is not a card that was lost."""
    record = ordinary_run().event("missing", 1, probe="nvidia", because="no NVIDIA driver on this machine")

    assert verdict(exception(record, 59, "ValueError", "x").exit(60, 1)).findings[0].cause == "user-error"


def test_device_side_assert_is_the_users():
    """An index out of range on the device is a mistake in the script."""
    message = "CUDA error: device-side assert triggered"

    assert causes(verdict(exception(card(ordinary_run(), 3), 59, "RuntimeError", message).exit(60, 1))) == [
        "user-error"
    ]
