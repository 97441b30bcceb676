// A question that is answered before anything else: the browser's own dialog, so that Esc and Tab do what they always do.

import { h } from "holter/dom.js";

// Resolves to true, or to the text that was written, once it was agreed to; to null where it was not.
export function question(title, text, { yes, no, field = null, grave = false }) {
  return new Promise((resolve) => {
    const input = field
      ? h("input", { type: "text", name: "answer", autocomplete: "off", "aria-label": field.label, maxlength: 800 })
      : null;
    const refuse = h("button", { type: "button", class: "plain", autofocus: !field }, no);
    const dialog = h(
      "dialog",
      { class: "question", "aria-labelledby": "question-title" },
      h(
        "form",
        {
          onsubmit: (event) => {
            event.preventDefault();
            close(input ? input.value : true);
          },
        },
        h("h2", { id: "question-title" }, title),
        h("p", {}, text),
        input,
        h("div", { class: "answers" }, h("button", { type: "submit", class: grave ? "grave" : "go" }, yes), refuse),
      ),
    );
    const before = document.activeElement;
    const close = (answer) => {
      dialog.close();
      dialog.remove();
      before?.focus?.();
      resolve(answer);
    };
    refuse.addEventListener("click", () => close(null));
    dialog.addEventListener("cancel", (event) => {
      event.preventDefault();
      close(null);
    });
    document.body.append(dialog);
    dialog.showModal();
    (input ?? refuse).focus();
  });
}

export const tell = (title, text) => question(title, text, { yes: "OK", no: "Close" });
