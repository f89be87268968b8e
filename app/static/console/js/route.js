// Route in the URL: #/VIEW/MODEL?name=value.
import { useEffect, useState } from "./html.js";

export function read(hash = location.hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const [view = "models", model] = path.split("/").map(decodeURIComponent);
  return { view: view || "models", model, query: Object.fromEntries(new URLSearchParams(query)) };
}

export function link(view, model, query = {}) {
  const present = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const path = model ? `${view}/${encodeURIComponent(model)}` : view;
  return `#/${path}${present.length ? `?${new URLSearchParams(present)}` : ""}`;
}

// Change the query without a new history entry.
export function keep(query) {
  const here = read();
  history.replaceState(null, "", link(here.view, here.model, { ...here.query, ...query }));
}

export function useRoute() {
  const [route, setRoute] = useState(read);
  useEffect(() => {
    const changed = () => setRoute(read());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}
