"""Patients run as a user runs them, with no record, and looked at afterwards; `make autopsies` takes them all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from holter.autopsy.examine import autopsy
from holter.autopsy.kernel_words import kernel_words
from tests.score.patient import Patient, find

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

# Those whose end takes seconds; `make autopsies` takes the others.
QUICK = find(["torch_wine_quality", "torch_mesh_kernel", "torch_xor_toy"])


@pytest.mark.parametrize("patient", QUICK, ids=lambda patient: patient.name)
def test_what_is_left_of_a_patient_names_its_illness_and_none_that_it_has_not(patient: Patient, tmp_path: Path) -> None:
    """A healthy one is left in peace; of a sick one the family is the first that is named."""
    log = tmp_path / "train.log"
    with log.open("wb") as out:
        words = [sys.executable, "-u", str(patient.script)]
        subprocess.run(words, cwd=tmp_path, stdout=out, stderr=out, timeout=600, check=False)
    found = autopsy(str(log), str(patient.script), kernel_words(None)).opinions
    families = {(patient.cause or "").partition(".")[0], *(also.partition(".")[0] for also in patient.also)}

    assert [
        one.finding for one in found if one.finding.grade != "hypothesis" and one.finding.family not in families
    ] == []
    # The log of a crash is empty, and the kernel's may be closed or of another machine.
    if patient.cause is not None and patient.family != "native-crash":
        assert found[0].finding.family in families
