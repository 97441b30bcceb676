// All runs, the newest first; rows come anew as runs go on.

import { fill, h, prose } from "holter/dom.js";
import { wall } from "holter/format.js";

export class RunsPage {
  constructor(host) {
    document.title = "Runs · Holter";
    this.rows = new Map();
    this.picked = new Set();
    this.filter = h("input", {
      type: "search",
      placeholder: "Filter by name, command or cause",
      "aria-label": "Filter the runs",
      oninput: () => this.draw(),
    });
    this.go = h("a", { class: "go", hidden: true }, "Compare");
    this.tally = h("span", { class: "tally" });
    this.body = h("tbody", {});
    const heads = ["", "Run", "", "Started", "Lasted", "Step", "Memory", ""].map((text) =>
      h("th", { scope: "col" }, text),
    );
    fill(
      host,
      h("div", { class: "tools" }, this.filter, this.go, this.tally),
      h("table", { class: "runs" }, h("thead", {}, h("tr", {}, heads)), this.body),
    );
    document.addEventListener("keydown", (event) => {
      if (event.key === "/" && document.activeElement !== this.filter) {
        this.filter.focus();
        event.preventDefault();
      }
    });
  }

  show(rows) {
    this.rows = new Map(rows.map((row) => [row.id, row]));
    this.draw();
  }

  row(row) {
    const known = this.rows.has(row.id);
    this.rows.set(row.id, row);
    const old = this.body.querySelector(`[data-run="${CSS.escape(row.id)}"]`);
    if (known && old && this.matches(row) && !old.contains(document.activeElement)) old.replaceWith(this.line(row));
    else if (!known || !old) this.draw();
    this.count();
  }

  matches(row) {
    const text = [row.id, row.name, row.words, row.kind, row.cause, row.why].join(" ").toLowerCase();
    return this.filter.value
      .toLowerCase()
      .split(/\s+/)
      .every((word) => text.includes(word));
  }

  draw() {
    const newest = (a, b) => Number(b.id.split("-")[1]) - Number(a.id.split("-")[1]);
    const shown = [...this.rows.values()].filter((row) => this.matches(row)).sort(newest);
    fill(
      this.body,
      shown.map((row) => this.line(row)),
    );
    if (!this.rows.size)
      fill(this.body, h("tr", {}, h("td", { colspan: 8, class: "quiet" }, "No runs yet: holter run -- COMMAND")));
    this.count();
  }

  count() {
    const live = [...this.rows.values()].filter((row) => row.live).length;
    const text = `${this.rows.size} ${this.rows.size === 1 ? "run" : "runs"}${live ? `, ${live} on` : ""}`;
    if (this.tally.textContent !== text) this.tally.textContent = text;
  }

  line(row) {
    const full = row.full === null || row.full === undefined ? null : Math.min(1, row.full);
    const gauge =
      full === null
        ? null
        : h(
            "span",
            {
              class: `gauge${full > 0.9 ? " full" : ""}`,
              role: "img",
              "aria-label": `${Math.round(full * 100)} % of the limit`,
            },
            h("i", {}),
          );
    if (gauge) gauge.firstChild.style.width = `${full * 100}%`;
    const pick = h("input", {
      type: "checkbox",
      "aria-label": `Compare ${row.id}`,
      onchange: (event) => this.pick(row.id, event.target.checked),
    });
    pick.checked = this.picked.has(row.id);
    return h(
      "tr",
      { "data-run": row.id, "data-kind": row.kind },
      h("td", { class: "pick" }, pick),
      h(
        "td",
        { class: "id state-cell" },
        h("span", { class: `dot ${row.tone}` }),
        h("a", { href: `/run/${encodeURIComponent(row.id)}` }, row.id),
      ),
      h("td", { class: "what" }, row.name ? h("b", {}, row.name) : null, h("span", {}, row.words ?? "")),
      h("td", { class: "num started" }, row.started ? wall(row.started) : ""),
      h("td", { class: "num" }, row.lasted ?? ""),
      h("td", { class: "num" }, row.step ?? ""),
      h("td", { class: "num" }, row.memory ? [h("span", { class: "held" }, row.memory), gauge] : ""),
      h(
        "td",
        { class: "why" },
        h(
          "span",
          {},
          h("em", {}, row.kind.replace("-", " ")),
          row.why && row.tone !== "good"
            ? prose(row.why)
            : row.live && row.phase && row.phase !== "other"
              ? row.phase
              : "",
        ),
      ),
    );
  }

  pick(run, on) {
    if (on) this.picked.add(run);
    else this.picked.delete(run);
    const two = [...this.picked].slice(-2);
    this.go.hidden = two.length < 2;
    if (two.length === 2) {
      this.go.href = `/compare/${two.sort().map(encodeURIComponent).join("/")}`;
      this.go.textContent = `Compare ${two.join(" and ")}`;
    }
  }
}
