// All runs, the newest first or by the column one chose; rows come anew as runs go on.

import { fill, h, prose } from "holter/dom.js";
import { wall } from "holter/format.js";
import { deleteRuns, tagRuns } from "holter/labels.js";

const MOST_COMPARED = 8;
const number = (row) => Number(row.id.split("-")[1]);
// column -> what it is sorted by, and whether the largest comes first at the first click
const ORDERS = {
  run: [number, true],
  name: [(row) => (row.name || row.words || "").toLowerCase() || null, false],
  started: [(row) => row.started ?? null, true],
  lasted: [(row) => row.seconds ?? null, true],
  step: [(row) => row.done ?? null, true],
  memory: [(row) => row.bytes ?? null, true],
  how: [(row) => `${["bad", "slow", "unknown", "wait", "good"].indexOf(row.tone)} ${row.kind}`, false],
};
const HEADS = [
  ["run", "Run"],
  ["name", "Name"],
  ["started", "Started"],
  ["lasted", "Lasted"],
  ["step", "Step"],
  ["memory", "Memory"],
  ["how", "How it went"],
];
// Said to those who can't see the sign's colour and form.
const TONES = { good: "well", slow: "completed, but something was found", bad: "failed", wait: "on", unknown: "no verdict yet" };

export class RunsPage {
  constructor(host) {
    document.title = "Runs · Holter";
    this.rows = new Map();
    this.picked = new Set();
    const asked = new URLSearchParams(location.hash.slice(1));
    this.order = ORDERS[asked.get("sort")] ? asked.get("sort") : "run";
    this.falling = asked.has("sort") ? asked.get("falling") === "1" : true;
    this.filter = h("input", {
      type: "search",
      placeholder: "Filter: name, command, tag, cause",
      "aria-label": "Filter the runs",
      "aria-keyshortcuts": "/",
      oninput: () => this.remember(),
    });
    this.filter.value = asked.get("filter") ?? "";
    this.go = h("a", { class: "go", hidden: true }, "Compare");
    const act = (text, does) => h("button", { type: "button", class: "plain", hidden: true, onclick: does }, text);
    this.tag = act("Tag", async () => {
      await tagRuns([...this.picked]);
    });
    this.remove = act("Delete", async () => {
      for (const run of await deleteRuns([...this.picked])) this.gone(run);
    });
    this.tally = h("span", { class: "tally" });
    this.body = h("tbody", { onkeydown: (event) => this.key(event) });
    this.all = h("input", {
      type: "checkbox",
      "aria-label": "Choose all runs that are shown",
      onchange: () => {
        for (const row of this.shown()) this.all.checked ? this.picked.add(row.id) : this.picked.delete(row.id);
        this.draw();
      },
    });
    this.heads = HEADS.map(([key, text]) =>
      h("th", { scope: "col" }, h("button", { type: "button", onclick: () => this.by(key) }, text)),
    );
    fill(
      host,
      h("h1", { class: "unseen" }, "Runs"),
      h("div", { class: "tools" }, this.filter, this.go, this.tag, this.remove, this.tally),
      h(
        "table",
        { class: "runs" },
        h("thead", {}, h("tr", {}, h("td", { class: "pick" }, this.all), this.heads)),
        this.body,
      ),
    );
    document.addEventListener("keydown", (event) => {
      const typing = document.activeElement?.closest?.("input:not([type=checkbox]), textarea, dialog");
      if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
        this.filter.focus();
        event.preventDefault();
      }
    });
  }

  show(rows) {
    this.rows = new Map(rows.map((row) => [row.id, row]));
    for (const run of this.picked) if (!this.rows.has(run)) this.picked.delete(run);
    this.draw();
  }

  row(row) {
    const known = this.rows.has(row.id);
    this.rows.set(row.id, row);
    const old = this.body.querySelector(`[data-run="${CSS.escape(row.id)}"]`);
    if (known && old && this.matches(row)) {
      if (!old.contains(document.activeElement)) old.replaceWith(this.line(row));
    } else if (!known || old || this.matches(row)) this.draw();
    this.count();
  }

  gone(run) {
    this.rows.delete(run);
    this.picked.delete(run);
    this.draw();
  }

  by(key) {
    this.falling = this.order === key ? !this.falling : ORDERS[key][1];
    this.order = key;
    this.remember();
  }

  // In the address, so that the way back from a run leads to the same list.
  remember() {
    const said = new URLSearchParams();
    if (this.order !== "run" || !this.falling) {
      said.set("sort", this.order);
      said.set("falling", this.falling ? "1" : "0");
    }
    if (this.filter.value) said.set("filter", this.filter.value);
    history.replaceState(null, "", said.size ? `#${said}` : location.pathname);
    this.draw();
  }

  matches(row) {
    const tags = (row.tags ?? []).map((tag) => `#${tag} ${tag}`).join(" ");
    const text = [row.id, row.name, row.words, row.kind, row.cause, row.why, row.note, tags].join(" ").toLowerCase();
    return this.filter.value
      .toLowerCase()
      .split(/\s+/)
      .every((word) => text.includes(word));
  }

  shown() {
    const [of] = ORDERS[this.order];
    const sign = this.falling ? -1 : 1;
    const keyed = [...this.rows.values()].filter((row) => this.matches(row)).map((row) => [of(row), number(row), row]);
    // What is not known comes last, whichever way; of equals the newest comes first.
    keyed.sort(
      ([a, m], [b, n]) =>
        (a === null) - (b === null) || (a === b || a === null ? n - m : (a < b ? -1 : 1) * sign),
    );
    return keyed.map(([, , row]) => row);
  }

  draw() {
    const shown = this.shown();
    const at = this.body.contains(document.activeElement) ? document.activeElement.closest("tr")?.dataset.run : null;
    fill(
      this.body,
      shown.map((row) => this.line(row)),
    );
    if (!shown.length) {
      const text = this.rows.size ? "No run is like that." : "No runs yet: holter run -- COMMAND";
      fill(this.body, h("tr", {}, h("td", { colspan: 8, class: "quiet" }, text)));
    }
    if (at) this.body.querySelector(`[data-run="${CSS.escape(at)}"] .id a`)?.focus({ preventScroll: true });
    HEADS.forEach(([key], n) =>
      this.heads[n].setAttribute("aria-sort", key !== this.order ? "none" : this.falling ? "descending" : "ascending"),
    );
    this.all.checked = shown.length > 0 && shown.every((row) => this.picked.has(row.id));
    this.choices();
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
      "aria-label": `Choose ${row.id}`,
      onchange: (event) => this.pick(row.id, event.target.checked),
    });
    pick.checked = this.picked.has(row.id);
    const tags = (row.tags ?? []).map((tag) =>
      h("button", { type: "button", class: "tag", title: `Runs with the tag ${tag}`, onclick: () => this.only(tag) }, tag),
    );
    return h(
      "tr",
      { "data-run": row.id, "data-kind": row.kind, "data-tone": row.tone },
      h("td", { class: "pick" }, pick),
      h(
        "td",
        { class: "id state-cell" },
        h("span", { class: `dot ${row.tone}`, role: "img", "aria-label": TONES[row.tone] ?? "" }),
        h("a", { href: `/run/${encodeURIComponent(row.id)}` }, row.id),
      ),
      h(
        "td",
        { class: "what" },
        row.name ? h("b", {}, row.name) : null,
        h("span", { class: "words" }, row.words ?? ""),
        tags.length ? h("span", { class: "tags" }, tags) : null,
        row.note ? h("span", { class: "note" }, row.note) : null,
      ),
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

  only(tag) {
    this.filter.value = `#${tag}`;
    this.filter.focus();
    this.remember();
  }

  pick(run, on) {
    if (on) this.picked.add(run);
    else this.picked.delete(run);
    this.choices();
  }

  choices() {
    const runs = [...this.picked];
    this.tag.hidden = this.remove.hidden = !runs.length;
    this.remove.textContent = runs.length > 1 ? `Delete ${runs.length}` : "Delete";
    this.tag.textContent = runs.length > 1 ? `Tag ${runs.length}` : "Tag";
    this.go.hidden = runs.length < 2 || runs.length > MOST_COMPARED;
    if (this.go.hidden) return;
    const sides = runs.sort((a, b) => Number(a.split("-")[1]) - Number(b.split("-")[1]));
    this.go.href = `/compare/${sides.map(encodeURIComponent).join("/")}`;
    this.go.textContent =
      sides.length < 4 ? `Compare ${sides.slice(0, -1).join(", ")} and ${sides.at(-1)}` : `Compare ${sides.length} runs`;
  }

  // Up and down go from run to run, as in any list of files.
  key(event) {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const row = event.target.closest("tr");
    if (!by || !row) return;
    const next = by > 0 ? row.nextElementSibling : row.previousElementSibling;
    next?.querySelector(event.target.matches("input") ? "input" : ".id a")?.focus();
    event.preventDefault();
  }
}
