// Where one is: #/VIEW/MODEL?name=value. Every view can be linked to, and the browser's own buttons work.
import { useEffect, useState } from "./html.js";

export function read(hash = location.hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const [view = "models", model] = path.split("/").map(decodeURIComponent);
  return { view: view || "models", model, query: Object.fromEntries(new URLSearchParams(query)) };
}

export function link(view, model, query = {}) {
  const told = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const path = model ? `${view}/${encodeURIComponent(model)}` : view;
  return `#/${path}${told.length ? `?${new URLSearchParams(told)}` : ""}`;
}

// Changes the query of where one is, without another step in the browser's history.
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
