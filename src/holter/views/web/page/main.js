// What is shown is by the address: all runs, one run, or two beside each other.

import { ComparePage } from "holter/compare.js";
import { beat, fill, h } from "holter/dom.js";
import { RunPage } from "holter/run.js";
import { RunsPage } from "holter/runs.js";

const main = h("main", {});
const trail = h("nav", { "aria-label": "Where you are" });
const state = h("span", { class: "state", role: "status" });
document.body.append(
  h("div", { class: "masthead" }, h("a", { class: "home", href: "/" }, beat(), "Holter"), trail, state),
  main,
);

class Told extends Error {}

async function get(path) {
  const answer = await fetch(path, { credentials: "same-origin" });
  if (answer.ok) return answer.json();
  if (answer.status === 403) throw new Told("The token is no longer good: open the address that holter serve printed.");
  throw new Told((await answer.json().catch(() => ({}))).error ?? `the server answered ${answer.status}`);
}

function notice(title, text) {
  fill(main, h("div", { class: "notice", role: "alert" }, h("h1", {}, title), h("p", {}, text)));
}

const columns = () => Math.max(200, Math.min(1200, Math.round(innerWidth * 0.6)));
const of = (run) => `/api/run/${encodeURIComponent(run)}`;

// Listens for news; a connection that breaks is taken up again by the browser, and said meanwhile.
function listen(path, news) {
  const source = new EventSource(path);
  source.onopen = () => {
    state.textContent = "live";
  };
  source.onerror = () => {
    state.textContent = "no connection to holter serve";
  };
  for (const [kind, act] of Object.entries(news)) source.addEventListener(kind, (event) => act(event.data));
  return source;
}

async function showRun(run) {
  fill(trail, h("a", { href: "/" }, "All runs"), h("span", {}, run));
  const curves = (more = "") => get(`${of(run)}/charts?columns=${columns()}${more}`);
  const page = new RunPage(main, {
    more: (begin, end) =>
      curves(`&begin=${begin}&end=${end}`).then(
        (found) => found.charts,
        () => null,
      ),
  });
  // The curves of a long run are there before its verdict is.
  const first = await curves();
  page.curves(first);
  const words = await get(`${of(run)}/words`);
  page.show({ ...words, charts: first.charts });
  const show = async () => {
    const doc = await get(`${of(run)}?columns=${columns()}`);
    page.show(doc);
    return doc.run.live;
  };
  if (!words.run.live) return;
  let busy = false;
  const source = listen(`/events?run=${encodeURIComponent(run)}`, {
    changed: async () => {
      if (busy || document.hidden) return;
      busy = true;
      try {
        if (!(await show())) {
          source.close();
          state.textContent = "ended";
        }
      } catch (error) {
        state.textContent = error.message;
      } finally {
        busy = false;
      }
    },
  });
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) source.dispatchEvent(new Event("changed"));
  });
}

async function showAll() {
  const page = new RunsPage(main);
  const again = async () => page.show((await get("/api/runs")).runs);
  await again();
  listen("/events", { row: (text) => page.row(JSON.parse(text)), gone: again }).addEventListener("open", again);
}

async function showTwo(a, b) {
  fill(trail, h("a", { href: "/" }, "All runs"), h("span", {}, `${a} and ${b}`));
  const docs = [await get(`${of(a)}?columns=${columns()}`), await get(`${of(b)}?columns=${columns()}`)];
  new ComparePage(main).show(...docs);
}

const [kind, ...runs] = location.pathname.split("/").filter(Boolean).map(decodeURIComponent);
const shown = kind === "run" ? showRun(runs[0]) : kind === "compare" ? showTwo(...runs) : showAll();
shown.catch((error) => {
  if (error instanceof Told) notice("This can't be shown", error.message);
  else {
    notice("This can't be shown", "The page met an error of its own; the record is as it was.");
    throw error;
  }
});
