// Page frame: header, current view, and the dialog for a key.
import { html, render, useEffect, useRef, useState } from "./html.js";
import { key, onLocked } from "./api.js";
import { useLive } from "./live.js";
import { link, useRoute } from "./route.js";
import { KeyDialog } from "./parts/key-dialog.js";
import { VIEWS } from "./views/all.js";
import { TITLES } from "./views/titles.js";

function useView(name) {
  const [found, setFound] = useState({});
  useEffect(() => {
    let isWanted = true;
    (VIEWS[name] ?? VIEWS.models)().then((View) => isWanted && setFound({ name, View }));
    return () => { isWanted = false; };
  }, [name]);
  return found.name === name ? found.View : null;
}

function Where({ route, models }) {
  const tabs = useRef(null);
  // Again once the fonts are there: they change the width of the tabs.
  const show = () => tabs.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  useEffect(() => { show(); document.fonts.ready.then(show); }, [route.view, route.model]);
  const ready = models.filter((model) => model.state === "ready");
  const go = (event) => { location.hash = link(route.view, event.target.value); };
  return html`<div class="where">
    <label><span class="hidden">Model</span>
      <select value=${route.model} onChange=${go}>
        ${(ready.length ? ready : [{ name: route.model }]).map(({ name }) => html`<option key=${name} value=${name} selected=${name === route.model}>${name}</option>`)}
      </select>
    </label>
    <nav ref=${tabs} class="segmented" aria-label="Views of this model">
      ${Object.entries(TITLES).map(([name, title]) => html`<a key=${name} href=${link(name, route.model)} aria-current=${name === route.view ? "page" : null}>${title}</a>`)}
    </nav>
  </div>`;
}

function Head({ route, live }) {
  const [theme, setTheme] = useState(document.documentElement.dataset.theme);
  const state = live.isLive === null ? "" : live.isLive ? "live" : "lost";
  const words = { "": "Connecting", live: "Live", lost: "Disconnected" }[state];
  return html`<header class="head">
    <a class="brand" href="#/models"><img src="console/icon.svg" alt="" width="24" height="24" />pnnx-serve</a>
    ${route.model && html`<${Where} route=${route} models=${live.moments.at(-1)?.models ?? []} />`}
    <div class="gap"></div>
    <div class="tools">
      <div class=${`pulse ${state}`} role="status" title=${words}><span>${words}</span></div>
      <a class="button quiet small" href="docs">API</a>
      <button class="button quiet icon small" aria-label=${theme === "dark" ? "Light colours" : "Dark colours"} onClick=${() => setTheme(globalThis.toggleTheme())}>
        <svg width="16" height="16" viewBox="0 0 16 16" aria-hidden="true"><circle cx="8" cy="8" r="6.2" fill="none" stroke="currentColor" stroke-width="1.5"/><path d="M8 1.8a6.2 6.2 0 0 1 0 12.4z" fill="currentColor"/></svg>
      </button>
    </div>
  </header>`;
}

function App() {
  const route = useRoute();
  const [locked, setLocked] = useState(null);
  const [tries, setTries] = useState(0);
  const live = useLive(locked === null ? `open ${tries}` : "");
  const View = useView(route.view);
  const main = useRef(null);
  useEffect(() => onLocked((message) => setLocked(key() ? message : "")), []);
  useEffect(() => { document.title = [route.model, "pnnx-serve"].filter(Boolean).join(" · "); }, [route.model]);
  const unlock = () => { setLocked(null); setTries(tries + 1); };
  return html`<div class="shell">
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); main.current.focus(); }}>Skip to content</a>
    <${Head} route=${route} live=${live} />
    <main id="main" ref=${main} tabindex="-1">
      ${View && locked === null && html`<${View} key=${`${route.view} ${route.model} ${tries}`} route=${route} live=${live} />`}
    </main>
    ${locked !== null && html`<${KeyDialog} message=${locked} onDone=${unlock} />`}
  </div>`;
}

render(html`<${App} />`, document.getElementById("app"));
