// The report: one run, in the file itself.

import { RunPage } from "holter/run.js";
import { beat, h } from "holter/dom.js";

const doc = JSON.parse(document.getElementById("document").textContent);
const main = h("main", {});
document.body.append(
  h(
    "div",
    { class: "masthead" },
    h("span", { class: "home" }, beat(), "Holter"),
    h("nav", {}, doc.run.id),
    h("span", { class: "state" }, `recorded by Holter ${doc.holter}`),
  ),
  main,
);
new RunPage(main).show(doc);
