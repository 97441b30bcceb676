// What people write on a run, and how they delete one: tags, a note, and the record's end, each by the server's leave.

import { question, tell } from "holter/dialog.js";
import { fill, h } from "holter/dom.js";
import { change, of } from "holter/server.js";

const apart = (text) => text.split(/[\s,]+/).filter(Boolean);

// Asks first. Gives the runs that were deleted; what could not be is told with the reason.
export async function deleteRuns(runs) {
  const few = runs.length <= 12 ? runs.join(", ") : `${runs.slice(0, 12).join(", ")} and ${runs.length - 12} more`;
  const records = runs.length === 1 ? "this record" : `these ${runs.length} records`;
  const sure = await question(
    `Delete ${records}?`,
    `${few}. The recorded curves, findings and output are deleted for good. Files of the training itself are not touched.`,
    { yes: `Delete ${runs.length === 1 ? "it" : `all ${runs.length}`}`, no: "Keep", grave: true },
  );
  const gone = [];
  if (!sure) return gone;
  const kept = [];
  for (const run of runs) {
    try {
      await change("DELETE", of(run));
      gone.push(run);
    } catch (error) {
      kept.push(error.message);
    }
  }
  if (kept.length) await tell(`${kept.length} of ${runs.length} could not be deleted`, kept.slice(0, 5).join(" · "));
  return gone;
}

// Tags for several runs at once.
export async function tagRuns(runs) {
  const text = await question(
    runs.length === 1 ? `Tag ${runs[0]}` : `Tag ${runs.length} runs`,
    "Tags are single words, with spaces between them. holter ls --tag TAG finds runs by them.",
    { yes: "Add tags", no: "Cancel", field: { label: "Tags" } },
  );
  const add = apart(text ?? "");
  if (!add.length) return;
  try {
    for (const run of runs) await change("POST", `${of(run)}/tags`, { add });
  } catch (error) {
    await tell("Not all tags were written", error.message);
  }
}

// The tags, the note and the deletion of one run, on its page.
export class Labels {
  constructor(host, run) {
    this.host = host;
    this.run = run;
    this.writing = false;
    this.said = null;
  }

  show({ tags = [], note = "" }) {
    const said = JSON.stringify([tags, note]);
    if (said === this.said || this.writing) return;
    this.said = said;
    const write = async (what, said) => {
      try {
        const found = await change("POST", `${of(this.run)}/${what}`, said);
        this.writing = false;
        this.said = null;
        this.show({ tags: found.tags, note: what === "note" ? said.note : note });
        this.host.querySelector("input")?.focus();
      } catch (error) {
        await tell("This could not be written", error.message);
      }
    };
    const input = h("input", {
      type: "text",
      "aria-label": "Add tags",
      placeholder: "add a tag",
      autocomplete: "off",
      size: 10,
    });
    fill(
      this.host,
      h(
        "div",
        { class: "tags" },
        tags.map((tag) =>
          h(
            "span",
            { class: "tag" },
            tag,
            h(
              "button",
              { type: "button", "aria-label": `Remove the tag ${tag}`, onclick: () => write("tags", { remove: [tag] }) },
              "×",
            ),
          ),
        ),
        h(
          "form",
          {
            onsubmit: (event) => {
              event.preventDefault();
              if (apart(input.value).length) write("tags", { add: apart(input.value) });
            },
          },
          input,
        ),
        h(
          "button",
          { type: "button", class: "plain", onclick: () => this.write({ tags, note }, write) },
          note ? "Edit the note" : "Write a note",
        ),
        h(
          "button",
          {
            type: "button",
            class: "plain delete",
            onclick: async () => {
              if ((await deleteRuns([this.run])).length) location.assign("/");
            },
          },
          "Delete",
        ),
      ),
      note ? h("p", { class: "note" }, note) : null,
    );
  }

  write({ tags, note }, write) {
    this.writing = true;
    const area = h("textarea", { rows: 4, maxlength: 4000, "aria-label": `Note on ${this.run}` });
    area.value = note;
    const back = () => {
      this.writing = false;
      this.said = null;
      this.show({ tags, note });
      this.host.querySelector("input")?.focus();
    };
    fill(
      this.host,
      h(
        "form",
        {
          class: "note-form",
          onsubmit: (event) => {
            event.preventDefault();
            write("note", { note: area.value });
          },
          onkeydown: (event) => {
            if (event.key === "Escape") back();
            if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) write("note", { note: area.value });
          },
        },
        area,
        h(
          "div",
          { class: "answers" },
          h("button", { type: "submit", class: "go" }, "Save the note"),
          h("button", { type: "button", class: "plain", onclick: back }, "Cancel"),
        ),
      ),
    );
    area.focus();
  }
}
