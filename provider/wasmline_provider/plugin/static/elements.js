/**
 * Descriptions of elements, and the patches that bring a container's elements to them.
 *
 * Text is only ever set as text: there is no way from a string to markup. A node is kept as long as its key (or its
 * place among the children of its tag) stays, and with it focus, selection, scroll and what a reader opened.
 *
 * @typedef {{tag: string, key: ?string, on: Object<string, function(Event): void>, attributes: Object,
 *   children: Array<Child>, inputs?: Array}} Description
 * @typedef {{key: string, inputs: Array, build: function(): Description}} Memo
 * @typedef {Description|Memo|string|number} Child
 */

const SVG_NAMESPACE = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "path", "line", "text", "g", "circle"]);
const FORBIDDEN = /^(on.*|style|src|srcdoc|action|formaction)$/i;
const LINK = /^(#\/|\.\.\/dags\/)/;
const PROPERTIES = new Set(["value", "checked", "disabled"]);

/** What each node was drawn from. @type {WeakMap<Node, Description>} */
const drawn = new WeakMap();

/**
 * Describe an element. `props` are attributes, `key` among the siblings, and `on`: {event type: handler}.
 * Children that are null, undefined, false or empty are left out.
 */
export function element(tag, props, ...children) {
  const { key = null, on = {}, ...attributes } = props ?? {};
  return { tag, key, on, attributes, children: children.flat(Infinity).filter((each) => isShown(each)) };
}

/** Describe an element that is built again only when one of its inputs is another one. @returns {Memo} */
export function memo(key, inputs, build) {
  return { key, inputs, build };
}

/** Bring the children of a container to the descriptions; the focused element keeps the focus if it is moved. */
export function draw(container, ...children) {
  const focused = document.activeElement;
  patchChildren(container, element("div", null, children).children);
  if (focused?.isConnected && focused !== document.activeElement) focused.focus({ preventScroll: true });
}

function isShown(child) {
  return child !== null && child !== undefined && child !== false && child !== "";
}

function patchChildren(parent, children) {
  const nodes = new Reusable(parent);
  const wanted = children.map((child) => patched(nodes.take(child), child));
  nodes.removeRest();
  let place = parent.firstChild;
  for (const node of wanted) {
    if (node === place) place = place.nextSibling;
    else parent.insertBefore(node, place);
  }
}

/** The nodes of a parent that a patch may use again. */
class Reusable {
  constructor(parent) {
    this.keyed = new Map();
    this.unkeyed = [];
    for (const node of parent.childNodes) {
      const key = drawn.get(node)?.key ?? null;
      if (key === null) this.unkeyed.push(node);
      else this.keyed.set(key, node);
    }
  }

  /** Return a node of the description's key and tag, or of its tag where it has no key. */
  take(child) {
    if (child.key) {
      const node = this.keyed.get(child.key);
      if (node && "tag" in child && drawn.get(node).tag !== child.tag) return undefined; // it goes with the rest
      this.keyed.delete(child.key);
      return node;
    }
    const tag = typeof child === "object" ? child.tag : "#text";
    const index = this.unkeyed.findIndex((node) => node.nodeName.toLowerCase() === tag);
    return index < 0 ? undefined : this.unkeyed.splice(index, 1)[0];
  }

  removeRest() {
    for (const node of [...this.keyed.values(), ...this.unkeyed]) node.remove();
  }
}

function patched(node, child) {
  if (typeof child !== "object") return patchedText(node, String(child));
  if (!("build" in child)) return patchedElement(node, child);
  const before = node && drawn.get(node).inputs;
  if (before && child.inputs.every((input, index) => Object.is(input, before[index]))) return node;
  return patchedElement(node, { ...child.build(), key: child.key, inputs: child.inputs });
}

function patchedText(node, text) {
  if (node === undefined) return document.createTextNode(text);
  if (node.data !== text) node.data = text;
  return node;
}

function patchedElement(known, description) {
  const node = known ?? created(description.tag);
  const before = drawn.get(node)?.attributes ?? {};
  drawn.set(node, description);
  for (const name of Object.keys(before)) if (!(name in description.attributes)) setAttribute(node, name, null);
  patchChildren(node, description.children);
  for (const [name, value] of Object.entries(description.attributes)) {
    if (before[name] !== value) setAttribute(node, name, value); // what a reader changed since stays
  }
  for (const type of Object.keys(description.on)) listen(node, type);
  return node;
}

function created(tag) {
  return SVG_TAGS.has(tag) ? document.createElementNS(SVG_NAMESPACE, tag) : document.createElement(tag);
}

function setAttribute(node, name, value) {
  if (FORBIDDEN.test(name)) throw new Error(`attribute ${name} is not drawn`);
  if (name === "href" && value && !LINK.test(value)) throw new Error(`link to ${value} is not drawn`);
  if (PROPERTIES.has(name)) node[name] = value ?? (name === "value" ? "" : false);
  else if (value === null || value === undefined || value === false) node.removeAttribute(name);
  else node.setAttribute(name, value === true ? "" : String(value));
}

const listening = new WeakMap();

function listen(node, type) {
  const types = listening.get(node) ?? new Set();
  if (types.has(type)) return;
  listening.set(node, types.add(type));
  node.addEventListener(type, (event) => drawn.get(node)?.on[type]?.(event));
}
