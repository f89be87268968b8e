// Requests to the server. A key, if required, stays in this tab.
const KEY = "pnnx-serve.key";
const listeners = new Set();

export const base = new URL(".", document.baseURI);

export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    Object.assign(this, { status, code });
  }
}

export const key = () => sessionStorage.getItem(KEY);

export function setKey(value) {
  if (value) sessionStorage.setItem(KEY, value);
  else sessionStorage.removeItem(KEY);
}

// Listener for servers that require a key, or another one.
export function onLocked(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function urlOf(path, query = {}) {
  const url = new URL(path, base);
  for (const [name, value] of Object.entries(query)) {
    if (Array.isArray(value)) value.forEach((each) => url.searchParams.append(name, each));
    else if (value !== undefined && value !== null && value !== "") url.searchParams.set(name, value);
  }
  return url;
}

export async function ask(path, { query, ...options } = {}) {
  const headers = { ...options.headers };
  if (key()) headers.authorization = `Bearer ${key()}`;
  let answer;
  try {
    answer = await fetch(urlOf(path, query), { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "unreachable", "The server cannot be reached.");
  }
  if (answer.ok) return answer;
  const failure = (await answer.json().catch(() => null))?.error;
  if (answer.status === 401) lock(failure?.message);
  throw new ApiError(answer.status, failure?.code ?? "error", failure?.message ?? `The server answered ${answer.status}.`);
}

// Ask for a key.
export const lock = (message) => listeners.forEach((listener) => listener(message));

// Events of a long operation, until the signal aborts it.
export async function* follow(path, options) {
  yield* eventsOf((await ask(path, options)).body);
}

export const askJson = async (path, options) => (await ask(path, options)).json();

// Events of /events until the signal aborts; reconnects when the stream ends.
export async function listen({ signal, onEvent, onLost }) {
  let pause = 500;
  while (!signal.aborted) {
    try {
      const answer = await ask("events", { signal });
      pause = 500;
      for await (const event of eventsOf(answer.body)) onEvent(event);
      onLost();
    } catch (error) {
      if (signal.aborted) return;
      onLost(error);
    }
    await new Promise((resolve) => setTimeout(resolve, pause));
    pause = Math.min(pause * 1.6, 5000);
  }
}

async function* eventsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const pieces = (rest + value).split("\n\n");
    rest = pieces.pop();
    for (const piece of pieces) {
      const data = piece.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6));
      if (data.length) yield JSON.parse(data.join("\n"));
    }
  }
}
