// One run: the verdict and its findings on the left, the charts they point at on the right, the attachments below.

import { Board } from "holter/board.js";
import { fill, h, prose } from "holter/dom.js";
import { act, evidence, findingBlock } from "holter/finding.js";
import { wall } from "holter/format.js";
import { showAttachments } from "holter/attachments.js";

// A process that `holter attach` looked at went on: what became of it nobody knows.
const kind = (doc) => (doc.ending.kind === "running" && doc.run.ended !== null ? "looked at" : doc.ending.kind);
export class RunPage {
  // labels(host): what shows and writes tags and notes, where there is a server to keep them.
  constructor(host, { more = null, fine = null, labels = null } = {}) {
    this.board = new Board({ more, fine });
    const written = h("div", { class: "labels" });
    this.labels = labels?.(written);
    this.head = h("section", { class: "verdict", "aria-label": "Verdict" });
    this.findings = h("section", { class: "findings", "aria-label": "Findings" });
    this.attachments = h("section", { class: "attachments" });
    this.open = 0;
    this.asked = false; // the first finding is open from the start, but nothing is pushed aside for it
    fill(
      host,
      h(
        "div",
        { class: "run" },
        h("div", { class: "words" }, this.head, this.labels ? written : null, this.findings),
        h("div", { class: "curves" }, this.board.root, this.attachments),
      ),
    );
  }

  curves({ charts, clock: timing }) {
    this.board.show(charts, timing, []);
  }

  show(doc) {
    this.doc = doc;
    document.title = `${doc.run.id} ${doc.run.name || doc.ending.kind} · Holter`;
    this.board.called = doc.run.id;
    this.showHead(doc);
    this.labels?.show(doc.run);
    this.showFindings(doc);
    showAttachments(this.attachments, doc);
    this.board.show(doc.charts, doc.clock, marks(doc));
    this.board.choose(this.chosen(), { aside: this.asked });
  }

  chosen() {
    const found = this.open === null ? null : this.doc.findings[this.open];
    return found ? { ...found, index: this.open } : null;
  }

  choose(index) {
    this.open = this.open === index ? null : index;
    this.asked = true;
    this.showFindings(this.doc);
    this.board.choose(this.chosen(), { aside: true, scroll: true });
  }

  showHead(doc) {
    const { run } = doc;
    fill(
      this.head,
      h(
        "p",
        { class: "kicker" },
        h("span", { class: `dot ${doc.tone}` }),
        h("span", { class: "kind" }, kind(doc).replace("-", " ")),
        run.name ? h("span", { class: "name" }, run.name) : null,
        run.started ? h("time", {}, wall(run.started)) : null,
      ),
      h("h1", { class: "claim" }, prose(doc.ending.claim)),
      h("p", { class: "command" }, run.words),
      h(
        "dl",
        { class: "figures" },
        doc.figures.map((one) =>
          h(
            "div",
            { "data-figure": one.key },
            h("dt", {}, one.label),
            h(
              "dd",
              {},
              one.value,
              one.of ? h("span", { class: "of" }, one.key === "step" || one.key === "loss" ? one.of : `of ${one.of}`) : null,
            ),
          ),
        ),
      ),
      doc.damage.length
        ? h(
            "div",
            { class: "damage", role: "note" },
            h("b", {}, "Not all of this record could be read"),
            doc.damage.slice(0, 5).map((text) => h("p", {}, text)),
          )
        : null,
    );
  }

  showFindings(doc) {
    const show = (time) => this.board.around(time);
    const heads = () => [...this.findings.querySelectorAll(".finding-head")];
    const focused = heads().indexOf(document.activeElement);
    const parts = doc.findings.map((finding, index) =>
      findingBlock(finding, index, { open: this.open === index, choose: () => this.choose(index), show }),
    );
    if (!parts.length)
      parts.push(
        h("p", { class: "quiet" }, doc.ending.kind === "running" ? "Nothing to report so far." : "No findings."),
      );
    if (doc.evidence.length) parts.push(h("h2", {}, "How it ended"), evidence(doc.evidence));
    if (doc.interventions.length)
      parts.push(h("h2", {}, "Healing"), h("ol", { class: "acts" }, doc.interventions.map(act)));
    if (doc.told.length)
      parts.push(
        h("h2", {}, "Told while it ran"),
        h(
          "ul",
          { class: "told" },
          doc.told.map((text) => h("li", {}, text)),
        ),
      );
    fill(this.findings, parts);
    heads()[focused]?.focus({ preventScroll: true });
  }
}

function marks(doc) {
  const found = doc.events.map((one) => ({ time: one.time, kind: one.kind, text: one.text }));
  doc.findings.forEach((finding, index) =>
    finding.evidence.forEach((one) => {
      if (one.time !== null)
        found.push({ time: one.time, kind: "finding", finding: index, text: `${one.what}: ${one.value}` });
    }),
  );
  for (const one of doc.interventions)
    if (one.time !== null) found.push({ time: one.time, kind: "act", text: one.text || one.act });
  return found;
}
