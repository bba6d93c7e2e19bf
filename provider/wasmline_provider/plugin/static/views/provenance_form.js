/** The form that leads from a record's coordinates to its provenance. */

import { element } from "../elements.js";
import { section } from "../facts.js";
import { to } from "../route.js";

export function provenanceForm(topics) {
  return section("Provenance of a record", { note: "which module and model wrote it, from which record" },
    element("form", { class: "inline", on: { submit } },
      element("label", null, "Topic", element("input", { name: "topic", required: true, list: "topics",
        value: topics[0] ?? "", autocomplete: "off" })),
      element("datalist", { id: "topics" }, topics.map((topic) => element("option", { key: topic, value: topic }))),
      element("label", null, "Partition", element("input", { name: "partition", required: true, inputmode: "numeric",
        pattern: "[0-9]+", size: "6", autocomplete: "off" })),
      element("label", null, "Offset", element("input", { name: "offset", required: true, inputmode: "numeric",
        pattern: "[0-9]+", size: "12", autocomplete: "off" })),
      element("button", { type: "submit" }, "Look up")));
}

function submit(event) {
  event.preventDefault();
  const values = new FormData(event.target);
  location.hash = to("record", ...["topic", "partition", "offset"].map((name) => values.get(name).trim()));
}
