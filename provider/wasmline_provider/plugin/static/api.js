/** Requests of the page; addresses are relative, because Airflow may be served below a path. */

const TIMEOUT_MS = 30_000;
const MAX_PARAMETERS = 50;

/** An answer that is none: `status` is 0 without an answer of the server. */
export class ApiError extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

/** Return the path of an endpoint with its parts escaped: path("transforms", name, "logs"). */
export function path(...parts) {
  return `api/${parts.map((part) => encodeURIComponent(part)).join("/")}`;
}

/** Return the parameters of several requests in place of one, whose address would be too long. */
export function inPieces(parameters) {
  const count = Math.ceil(parameters.length / MAX_PARAMETERS);
  return Array.from({ length: count }, (_, index) =>
    parameters.slice(index * MAX_PARAMETERS, (index + 1) * MAX_PARAMETERS));
}

export function get(url, signal) {
  return request(url, { signal: AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)]) });
}

export function post(url, body) {
  return send("POST", url, body);
}

export function send(method, url, body) {
  return request(url, {
    method,
    body: JSON.stringify(body),
    headers: { "Content-Type": "application/json", "X-Wasmline": "1" },
    signal: AbortSignal.timeout(TIMEOUT_MS),
  });
}

/** Return what a reader can do about an error. */
export function explained(error) {
  if (error.status === 401) return "Your session has ended: sign in to Airflow again.";
  if (error.status === 403) return `Not permitted: ${error.message}`;
  if (error.status === 0) return `Airflow's API server does not answer: ${error.message}`;
  return error.message;
}

async function request(url, options) {
  let response;
  try {
    response = await fetch(url, { cache: "no-store", credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, error.name === "TimeoutError" ? `nothing for ${TIMEOUT_MS / 1000} s` : error.message);
  }
  const body = await bodyOf(response);
  if (response.ok && body !== null) return body;
  throw new ApiError(response.status, response.ok ? "the answer is not JSON" : detailOf(body, response));
}

/** Return why a request was refused: a text, or a list of what its fields lack. */
function detailOf(body, { status, statusText }) {
  if (typeof body?.detail === "string") return body.detail;
  if (Array.isArray(body?.detail)) {
    return body.detail.map(({ loc, msg }) => `${[loc].flat().join(".")}: ${msg}`).join("; ");
  }
  return `${status} ${statusText}`.trim();
}

async function bodyOf(response) {
  try {
    return await response.json();
  } catch (error) {
    if (error instanceof SyntaxError) return null;
    throw error.name === "AbortError" ? error : new ApiError(0, error.message);
  }
}
