// Events of the last 90 seconds; rates and percentiles are differences of two of them.
import { useEffect, useState } from "./html.js";
import { listen } from "./api.js";

const KEPT = 90;
const WINDOW = 30;

export function useLive(isOpen) {
  const [state, setState] = useState({ moments: [], isLive: null, error: null });
  useEffect(() => {
    if (!isOpen) return undefined;
    let stop = new AbortController();
    const begin = () => listen({
      signal: stop.signal,
      onEvent: (event) => setState(({ moments }) => ({ moments: [...moments.slice(1 - KEPT), event], isLive: true, error: null })),
      onLost: (error) => setState(({ moments }) => ({ moments, isLive: false, error: error ?? null })),
    });
    // A page in the back/forward cache would keep its connection, of which browsers allow six.
    const leave = () => stop.abort();
    const comeBack = (event) => {
      if (!event.persisted) return;
      stop = new AbortController();
      begin();
    };
    begin();
    addEventListener("pagehide", leave);
    addEventListener("pageshow", comeBack);
    return () => {
      leave();
      removeEventListener("pagehide", leave);
      removeEventListener("pageshow", comeBack);
    };
  }, [isOpen]);
  return state;
}

const versionIn = (moment, name, number) =>
  moment.models.find((model) => model.name === name)?.versions.find((version) => version.version === number);

// Requests per second between successive events.
export function rates(moments, name, number) {
  const found = [];
  for (let at = 1; at < moments.length; at += 1) {
    const [before, now] = [moments[at - 1], moments[at]].map((moment) => versionIn(moment, name, number)?.statistics?.requests);
    const seconds = moments[at].at - moments[at - 1].at;
    found.push(before === undefined || now === undefined || now < before || seconds <= 0 ? 0 : (now - before) / seconds);
  }
  return found;
}

// Latency percentiles of the last 30 seconds, or of all answers if there were none.
export function percentiles(moments, name, number, shares) {
  const last = moments.at(-1);
  const now = last && versionIn(last, name, number)?.times;
  if (!now) return null;
  const before = versionIn(moments.at(-1 - WINDOW) ?? moments[0], name, number)?.times ?? [];
  const recent = now.map((count, at) => count - (before[at] ?? 0));
  const counts = recent.some((count) => count > 0) && recent.every((count) => count >= 0) ? recent : now;
  const total = counts.reduce((sum, count) => sum + count, 0);
  return total ? shares.map((share) => within(counts, last.bounds_s, share * total)) : null;
}

function within(counts, bounds, wanted) {
  let sum = 0;
  for (let at = 0; at < counts.length; at += 1) {
    if (counts[at] && sum + counts[at] >= wanted) {
      const low = at ? bounds[at - 1] : 0;
      const high = bounds[at] ?? low;
      return low + ((high - low) * (wanted - sum)) / counts[at];
    }
    sum += counts[at];
  }
  return bounds.at(-1);
}
