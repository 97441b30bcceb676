// A finding in words: what it says, its evidence, the line, the cure; and the acts of healing.

import { h, prose } from "holter/dom.js";
import { clock, count } from "holter/format.js";

// Of a cure in words nobody can know that it keeps the result exactly.
const kept = (cure) => (cure.keeps === "exact" && !/^[-+]/m.test(cure.how) ? "" : (KEEPS[cure.keeps] ?? ""));
const KEEPS = { exact: "keeps the result exactly", equivalent: "equivalent result", changed: "changes the result" };

export const at = (one) => `${clock(one.time, 1)}${one.step ? `, step ${count(one.step)}` : ""}`;
export const place = (file, line) =>
  h("span", { class: "place", title: file }, `${file.split("/").slice(-2).join("/")}:${line}`);

export function findingBlock(finding, index, { open, choose, show }) {
  const claim = finding.claim.charAt(0).toUpperCase() + finding.claim.slice(1);
  const button = h(
    "button",
    { type: "button", class: "finding-head", "aria-expanded": open, onclick: choose },
    h("span", { class: "cause" }, finding.cause, h("i", {}, finding.grade)),
    h("span", { class: "says" }, prose(finding.grade === "hypothesis" ? `Perhaps: ${claim}` : claim)),
  );
  const { culprit } = finding;
  const body = h(
    "div",
    { class: "finding-body" },
    finding.evidence.length ? evidence(finding.evidence, show) : null,
    culprit
      ? h(
          "div",
          { class: "line" },
          h("p", {}, place(culprit.file, culprit.line), culprit.function ? ` in ${culprit.function}` : ""),
          culprit.code ? h("pre", {}, culprit.code) : null,
        )
      : null,
    finding.cures.map((cure) =>
      h(
        "div",
        { class: "cure" },
        h(
          "p",
          {},
          h("b", {}, "Cure "),
          prose(cure.title),
          " ",
          h("span", { class: `keeps ${cure.keeps}` }, kept(cure)),
        ),
        cure.how ? diff(cure.how) : null,
      ),
    ),
    finding.forecast ? h("p", { class: "forecast" }, finding.forecast) : null,
  );
  return h("article", { class: `finding${open ? " open" : ""}`, "data-finding": index }, button, open ? body : null);
}

// The time of a piece of evidence leads to its place on the charts.
export const evidence = (found, show) =>
  h(
    "ul",
    { class: "evidence" },
    found.map((one) =>
      h(
        "li",
        {},
        h("span", { class: "what" }, one.what),
        h("span", { class: "proof" }, prose(one.value)),
        one.time !== null && one.time !== undefined
          ? h(
              "button",
              { type: "button", class: "at", title: "Show this moment", onclick: () => show(one.time) },
              at(one),
            )
          : null,
      ),
    ),
  );

export const act = (one) =>
  h(
    "li",
    { class: one.done ? "done" : "tried" },
    h("span", { class: "at" }, one.step ? `step ${count(one.step)}` : one.time !== null ? clock(one.time, 1) : ""),
    h(
      "span",
      {},
      prose(one.text || one.act),
      one.done
        ? h("span", { class: `keeps ${one.keeps}` }, ` ${KEEPS[one.keeps] ?? ""}`)
        : ` could not: ${one.because}`,
      one.done && one.because ? ` (${one.because})` : "",
    ),
  );

const diff = (text) =>
  h(
    "pre",
    { class: "diff" },
    text
      .split("\n")
      .map((line) =>
        h("span", { class: line.startsWith("+") ? "add" : line.startsWith("-") ? "del" : "same" }, `${line}\n`),
      ),
  );
