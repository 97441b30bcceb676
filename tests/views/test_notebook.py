"""`%load_ext holter` in IPython and in a real Jupyter kernel."""

from __future__ import annotations

import os

import pytest

from holter.commands._notebook import CellFailed, strip_words
from holter.views.mini_chart import Curve, mini_chart

SICK = "import os, signal\nprint('begun')\nos.kill(os.getpid(), signal.SIGKILL)\n"
TRAINING = """
import time, holter
for i in range(240):
    time.sleep(0.03)
    holter.step(loss=1.0 / (i + 1))
print("trained")
"""


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """An IPython shell without a kernel, with records of its own."""
    interactive = pytest.importorskip("IPython.core.interactiveshell")
    monkeypatch.setenv("HOLTER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    made = interactive.InteractiveShell()
    made.run_line_magic("load_ext", "holter")
    return made


def test_the_verdict_stands_below_the_output_of_the_cell(shell, capsys):
    """A cell that is killed takes nothing with it: the shell goes on, with its exit code, its verdict and an error."""
    with pytest.raises(CellFailed, match=r"SIGKILL \(exit code 137\); why is in the verdict above"):
        shell.run_cell_magic("holter", "--name odd", SICK)
    output = capsys.readouterr().out

    assert output.startswith("begun\n")
    assert "was killed with SIGKILL" in output
    assert "More   holter report r-0001 -o run.html" in output
    assert shell.user_ns["_exit_code"] == 137


def test_modules_beside_the_notebook_are_found(shell, capsys, tmp_path, monkeypatch):
    """As they are in its other cells."""
    (tmp_path / "mine.py").write_text("word = 'found'")
    monkeypatch.chdir(tmp_path)
    shell.run_cell_magic("holter", "", "import mine\nprint(mine.word)")

    assert capsys.readouterr().out.startswith("found\n✓ python ")


def test_a_cell_that_went_well_raises_nothing(shell):
    """The look-alike: `sys.exit(0)` in it, or a warning, is no failure."""
    shell.run_cell_magic("holter", "", "import sys, warnings\nwarnings.warn('x')\nsys.exit(0)")

    assert shell.user_ns["_exit_code"] == 0


def test_the_error_is_one_line_and_stops_what_comes_after(tmp_path, monkeypatch):
    """In a real kernel, as of JupyterLab, VS Code and Colab, where "run all" ends at the first cell that raises."""
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    nbformat = pytest.importorskip("nbformat")
    monkeypatch.setenv("HOLTER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    texts = ("%load_ext holter", "%%holter\nraise ValueError('odd')", "print('after')")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in texts])
    with pytest.raises(nbclient.exceptions.CellExecutionError):
        nbclient.NotebookClient(notebook, timeout=600, cwd=os.fspath(tmp_path)).execute()
    (error,) = [one for one in notebook.cells[1]["outputs"] if one["output_type"] == "error"]

    assert error["ename"] == "CellFailed"
    assert error["traceback"] == [
        "holter: the cell ended with exit code 1; why is in the verdict above. The notebook's variables are kept"
    ]
    assert notebook.cells[2]["outputs"] == []


def test_in_a_real_kernel_there_is_a_live_chart(tmp_path, monkeypatch):
    """While the cell runs it tells step and memory, in words and as curves; at the end, how the run left."""
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    nbformat = pytest.importorskip("nbformat")
    monkeypatch.setenv("HOLTER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    cells = [nbformat.v4.new_code_cell(text) for text in ("%load_ext holter", f"%%holter\n{TRAINING}")]
    seen: list[str] = []
    drawn: list[str] = []

    class Client(nbclient.NotebookClient):
        def process_message(self, message, *rest):
            if message["msg_type"] in ("display_data", "update_display_data"):
                seen.append(message["content"]["data"]["text/plain"])
                drawn.append(message["content"]["data"].get("text/html", ""))
            return super().process_message(message, *rest)

    Client(nbformat.v4.new_notebook(cells=cells), timeout=600, cwd=os.fspath(tmp_path)).execute()
    printed = "".join(out.get("text", "") for out in cells[1]["outputs"])

    assert any("r-0001 running" in strip and "· step " in strip and "memory" in strip for strip in seen), seen
    assert seen[-1].startswith("holter: r-0001 ")
    assert "running" not in seen[-1]
    assert drawn[-1].count("<polyline") == 2
    assert "memory" in drawn[-1]
    assert "loss" in drawn[-1]
    assert printed.startswith("trained\n✓ ")


def test_the_strip_is_one_line_whatever_a_run_says():
    """Ends of lines and escapes stay text."""
    row = {
        "id": "r-1",
        "kind": "running",
        "live": True,
        "lasted": "3 s",
        "step": "5",
        "memory": "1 GB",
        "phase": "x\n\x1b[2J",
    }

    assert "\n" not in strip_words(row, [0.1, 0.5])
    assert strip_words(row, [0.1, 0.5]).startswith(
        "holter: r-1 running · for 3 s · step 5 · memory 1 GB ▁▅ 50% of its limit"
    )


def test_the_chart_is_plain_html_that_any_page_lets_through():
    """No script, no style sheet, nothing from a network; what a run says stays text, and one reading is no curve."""
    evil = "<img src=x onerror=alert(1)>\x1b[2J"
    made = mini_chart(evil, [Curve(evil, "1 GB", [1e9, None, 2e9], 2.5e9), Curve("loss", "1", [1.0], from_zero=False)])

    assert "<img" not in made
    assert "\x1b" not in made
    assert made.count("<svg") == made.count("<polyline") == made.count("<line") == 1
    assert not [word for word in ("<script", "<style", "href", "url(", "http") if word in made]


def test_a_limit_that_is_far_away_is_not_drawn():
    """A curve would be a flat line below it; and a loss may be below zero or stand still."""
    assert "<line" not in mini_chart("", [Curve("memory", "", [1e9, 1e9], 64e9)])
    assert "nan" not in mini_chart("", [Curve("loss", "", [-1.0, -1.0], from_zero=False)])
