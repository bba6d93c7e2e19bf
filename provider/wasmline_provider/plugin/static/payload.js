/** Previews of payloads: text, or base64 of bytes that are no UTF-8. */

import { element } from "./elements.js";
import { count, truncated } from "./texts.js";

/** Describe a payload: {"text", "base64", "bytes", "cut"}, or null. */
export function payload(value, { absent = "null" } = {}) {
  if (value === null || value === undefined) return element("span", { class: "quiet" }, absent);
  const isText = value.text !== null && value.text !== undefined;
  return element("span", { class: "payload" },
    element("code", { dir: "auto" }, isText ? truncated(value.text) : truncated(value.base64 ?? "")),
    element("span", { class: "quiet" }, sizeOf(value, isText)));
}

function sizeOf(value, isText) {
  const size = value.bytes === 1 ? "1 byte" : `${count(value.bytes)} bytes`;
  return [!isText && "base64", value.cut ? `the start of ${size}` : size].filter(Boolean).join(", ");
}

/** Describe headers: [[name, payload], …]. */
export function headers(pairs, { absent }) {
  if (pairs.length === 0) return element("span", { class: "quiet" }, "none");
  return element("dl", { class: "headers" }, pairs.map(([name, value], index) => [
    element("dt", { key: `name ${index}` }, element("bdi", { class: "text" }, truncated(name))),
    element("dd", { key: `value ${index}` }, payload(value, { absent })),
  ]));
}
