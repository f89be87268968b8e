// Search of operators by name or type; matches are highlighted in the drawing.
import { html, useEffect, useState } from "../html.js";

const SHOWN = 12;

export function Search({ fieldRef, graph, text, onText, onGo }) {
  const [at, setAt] = useState(-1);
  const [isOpen, setOpen] = useState(false);
  const word = text.toLowerCase();
  const found = word && graph ? graph.operators.filter(({ name, type }) => `${name} ${type}`.toLowerCase().includes(word)) : [];
  const shown = found.slice(0, SHOWN);
  const go = (row) => { onGo(row.name); setOpen(false); };
  // Enter before the graph is loaded selects the first match once it is.
  const [isAwaited, setAwaited] = useState(false);
  useEffect(() => {
    if (isAwaited && graph && shown.length) go(shown[0]);
    if (graph) setAwaited(false);
  }, [graph, isAwaited]);
  const onKeyDown = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && shown.length) { setAt((at + step + shown.length) % shown.length); setOpen(true); }
    else if (event.key === "Enter" && shown.length) go(shown[Math.max(0, at)]);
    else if (event.key === "Enter" && word && !graph) setAwaited(true);
    else if (event.key === "Escape") { onText(""); setOpen(false); }
    else return;
    event.preventDefault();
  };
  return html`<div class="search" role="search">
    <label><span class="hidden">Search operators</span>
      <input class="field" ref=${fieldRef} type="search" placeholder="Search operators  /" value=${text} role="combobox" aria-expanded=${String(isOpen && shown.length > 0)} aria-controls="found" aria-autocomplete="list"
        aria-activedescendant=${at >= 0 ? `found-${at}` : null} onInput=${(event) => { onText(event.target.value); setAt(-1); setAwaited(false); setOpen(true); }} onKeyDown=${onKeyDown} onBlur=${() => setOpen(false)} onFocus=${() => setOpen(true)} />
    </label>
    <span class="hidden" role="status">${word && `${found.length} found`}</span>
    ${isOpen && word && html`<ul class="panel results" id="found" role="listbox" aria-label="Operators found">
      ${shown.map((row, index) => html`<li key=${row.index} id=${`found-${index}`} role="option" aria-selected=${String(index === at)} onMouseDown=${(event) => { event.preventDefault(); go(row); }}><span class="mono">${row.name}</span><span class="soft">${row.type}</span></li>`)}
      ${!found.length && html`<li class="soft" role="option" aria-selected="false">No matches</li>`}
      ${found.length > SHOWN && html`<li class="soft" role="option" aria-selected="false">and ${found.length - SHOWN} more</li>`}
    </ul>`}
  </div>`;
}
