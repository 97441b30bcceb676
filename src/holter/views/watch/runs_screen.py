"""All runs, the newest first, those that are on as they go; enter opens one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Static
from textual.worker import get_current_worker

from holter.views.watch.source import Rows
from holter.views.watch.words import row_of

_TICK = 2.0
_HEADS = ("", "Run", "Name", "State", "Started", "Lasted", "Step", "Memory", "Why")
_NARROW = 100  # columns below which it is not said when a run began
_MAX_CHARACTERS = 24


class Table(DataTable[Text]):
    """The table, with its key in the footer."""

    BINDINGS = [Binding("enter", "select_cursor", "Open")]  # noqa: RUF012 - Textual's own form


class RunsScreen(Screen[None]):
    """The list; a row is changed in place, so that the cursor stays where it is."""

    def __init__(self, source: Rows, open_run: Callable[[str], None]) -> None:
        super().__init__()
        self._source, self._open = source, open_run
        self._asking = False
        self._shown: dict[str, list[Text]] = {}

    def compose(self) -> ComposeResult:
        yield Static("reading the runs …", id="head", markup=False)
        yield Table(id="runs", cursor_type="row", zebra_stripes=False)
        yield Footer()

    def on_mount(self) -> None:
        self.set_interval(_TICK, self.look)

    def on_screen_resume(self) -> None:
        self.query_one(DataTable).focus()
        self.look()

    def on_resize(self) -> None:
        self._shown = {}  # the last column has another width
        self.look()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        if event.row_key.value is not None:
            self._open(event.row_key.value)

    def look(self) -> None:
        """Look at the runs, unless another screen is in front or a look is still on its way."""
        if self.is_current and not self._asking:
            self._asking = True
            self._ask()

    @work(thread=True)
    def _ask(self) -> None:
        worker = get_current_worker()
        try:
            rows = self._source.rows()
        finally:
            self._asking = False
        if not worker.is_cancelled:
            self.app.call_from_thread(self.show, rows)

    def show(self, rows: list[dict[str, Any]]) -> None:
        if not self.query(DataTable):
            return  # the answer has come when the screen was being left
        table: DataTable[Text] = self.query_one(DataTable)
        on = sum(1 for row in rows if row["live"])
        title = f"{len(rows)} runs, {on} on" if rows else "no runs yet: holter run -- COMMAND"
        self.query_one("#head", Static).update(Text(title, "bold"))
        heads = [head for head in _HEADS if head != "Started" or self.size.width >= _NARROW]
        made = {row["id"]: [row_of(row)[_HEADS.index(head)] for head in heads] for row in rows}
        self._fit(heads, list(made.values()))
        if list(made) != list(self._shown) or heads != [column.value for column in table.columns]:
            self._anew(table, heads, made)
        else:
            for run, cells in made.items():
                for head, cell, before in zip(heads, cells, self._shown[run], strict=True):
                    if cell != before:
                        table.update_cell(run, head, cell, update_width=True)
        self._shown = made

    def _fit(self, heads: list[str], rows: list[list[Text]]) -> None:
        """Cut names that are long, and the last column to what is left."""
        for cells in rows:
            for cell in cells[:-1]:
                cell.truncate(_MAX_CHARACTERS, overflow="ellipsis")
        others = sum(max([len(head), *(cells[n].cell_len for cells in rows)]) for n, head in enumerate(heads[:-1]))
        for cells in rows:
            cells[-1].truncate(max(12, self.size.width - others - 2 * len(heads) - 2), overflow="ellipsis")

    def _anew(self, table: DataTable[Text], heads: list[str], made: dict[str, list[Text]]) -> None:
        """Fill the table around the run that the cursor is on: a new one comes first."""
        at = table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value if table.row_count else None
        table.clear(columns=True)
        for head in heads:
            table.add_column(Text(head, "bold"), key=head)
        for run, cells in made.items():
            table.add_row(*cells, key=run)
        if at in made:
            table.move_cursor(row=list(made).index(at))
