/** Keeps what is equal of two answers the same object, so that what did not change is not drawn again. */

/** Return `after`, with each part that equals that of `before` in its place replaced by it. */
export function shared(before, after) {
  if (Object.is(before, after) || !isObject(before) || !isObject(after)) return after;
  if (Array.isArray(before) !== Array.isArray(after)) return after;
  const names = Object.keys(after);
  let isEqual = names.length === Object.keys(before).length;
  for (const name of names) {
    if (!Object.hasOwn(before, name)) {
      isEqual = false;
      continue;
    }
    after[name] = shared(before[name], after[name]);
    isEqual &&= Object.is(before[name], after[name]);
  }
  return isEqual ? before : after;
}

function isObject(value) {
  return typeof value === "object" && value !== null;
}
