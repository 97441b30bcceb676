// What is shown is by the address: all runs, one run, or several beside each other.

import { ComparePage } from "holter/compare.js";
import { beat, fill, h } from "holter/dom.js";
import { Labels } from "holter/labels.js";
import { RunPage } from "holter/run.js";
import { RunsPage } from "holter/runs.js";
import { Told, get, listen, of } from "holter/server.js";

const main = h("main", { id: "main", tabindex: -1 });
const trail = h("nav", { "aria-label": "Where you are" });
const status = h("span", { class: "state", role: "status" });
const state = (text) => {
  if (status.textContent !== text) status.textContent = text;
};
document.body.append(
  h("a", { class: "skip", href: "#main" }, "To the content"),
  h("header", { class: "masthead" }, h("a", { class: "home", href: "/" }, beat(), "Holter"), trail, status),
  main,
);

function notice(title, text) {
  fill(main, h("div", { class: "notice", role: "alert" }, h("h1", {}, title), h("p", {}, text)));
}

const columns = () => Math.max(200, Math.min(1200, Math.round(innerWidth * 0.6)));

async function showRun(run) {
  fill(trail, h("a", { href: "/" }, "All runs"), h("span", { "aria-current": "page" }, run));
  const curves = (more = "") => get(`${of(run)}/charts?columns=${columns()}${more}`);
  const page = new RunPage(main, {
    more: (begin, end) =>
      curves(`&begin=${begin}&end=${end}`).then(
        (found) => found.charts,
        () => null,
      ),
    fine: (key) => get(`${of(run)}/charts?columns=100000&chart=${encodeURIComponent(key)}`).then((one) => one.charts[0]),
    labels: (host) => new Labels(host, run),
  });
  // The curves of a long run are there before its verdict is.
  const first = await curves();
  page.curves(first);
  const words = await get(`${of(run)}/words`);
  page.show({ ...words, charts: first.charts });
  if (!words.run.live) return;
  let busy = false;
  let close = () => {};
  const show = async () => {
    if (busy || document.hidden) return;
    busy = true;
    try {
      const doc = await get(`${of(run)}?columns=${columns()}`);
      page.show(doc);
      if (!doc.run.live) {
        close();
        state("ended");
      }
    } catch (error) {
      state(error.message);
    } finally {
      busy = false;
    }
  };
  close = listen(`/events?run=${encodeURIComponent(run)}`, { state, changed: show });
  document.addEventListener("visibilitychange", show);
}

async function showAll() {
  const page = new RunsPage(main);
  const again = async () => page.show((await get("/api/runs")).runs);
  await again();
  listen("/events", {
    state,
    opened: again,
    row: (text) => page.row(JSON.parse(text)),
    gone: (run) => page.gone(run),
  });
}

async function showSeveral(runs) {
  fill(trail, h("a", { href: "/" }, "All runs"), h("span", { "aria-current": "page" }, runs.join(", ")));
  const docs = [];
  for (const run of runs) docs.push(await get(`${of(run)}?columns=${columns()}`));
  new ComparePage(main).show(docs);
}

const [kind, ...runs] = location.pathname.split("/").filter(Boolean).map(decodeURIComponent);
const shown = kind === "run" ? showRun(runs[0]) : kind === "compare" ? showSeveral(runs) : showAll();
shown.catch((error) => {
  if (error instanceof Told) notice("This can't be shown", error.message);
  else {
    notice("This can't be shown", "The page met an error of its own; the record is as it was.");
    throw error;
  }
});
