// What a record holds in words: stacks, the end of the output, events, the environment; folded until asked for.

import { fill, h } from "holter/dom.js";
import { at, place } from "holter/finding.js";

const REASONS = {
  fatal: "at the crash",
  stall: "while it made no progress",
  attach: "when Holter looked",
  memory: "while memory shot up",
  end: "at the end",
  slow: "during a step",
};

export function showAttachments(root, doc) {
  const kept = new Set([...root.querySelectorAll("details[open]")].map((one) => one.dataset.attachment));
  const attachment = (name, title, ...content) =>
    h("details", { "data-attachment": name, open: kept.has(name) }, h("summary", {}, title), content);
  const tail = root.querySelector(".log");
  const followed = !tail || tail.scrollTop + tail.clientHeight > tail.scrollHeight - 30;
  fill(
    root,
    doc.stacks.length ? attachment("stacks", "Stacks", doc.stacks.map(stack)) : null,
    doc.output.length
      ? attachment("output", "End of the output", h("pre", { class: "log", tabindex: 0 }, doc.output.join("\n")))
      : null,
    doc.events.length
      ? attachment(
          "events",
          "Events",
          h(
            "ol",
            { class: "events" },
            doc.events.map((one) => h("li", {}, h("span", { class: "at" }, at(one)), h("span", {}, one.text))),
          ),
        )
      : null,
    attachment(
      "environment",
      "Environment",
      h(
        "dl",
        { class: "facts" },
        doc.environment.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
      ),
    ),
  );
  const log = root.querySelector(".log");
  if (log && followed) log.scrollTop = log.scrollHeight;
  log?.closest("details").addEventListener(
    "toggle",
    () => {
      log.scrollTop = log.scrollHeight;
    },
    { once: true },
  );
}

const stack = (one) =>
  h(
    "div",
    { class: "stack" },
    h(
      "h4",
      {},
      `${one.role || "process"} ${one.pid ?? ""}`,
      h("span", { class: "at" }, `${REASONS[one.reason] ?? one.reason}, ${at(one)}`),
    ),
    one.threads.map((thread) =>
      h(
        "div",
        { class: "thread" },
        h("h5", {}, thread.name || "thread"),
        h(
          "ol",
          {},
          thread.frames.map((frame) =>
            h(
              "li",
              { class: frame.user ? "user" : null },
              h("span", { class: "function" }, frame.function || "?"),
              place(frame.file, frame.line),
            ),
          ),
        ),
      ),
    ),
  );
