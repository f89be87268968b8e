// Text with a button that copies it.
import { html, useState } from "../html.js";

export function Copy({ title, text, note }) {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => { await navigator.clipboard.writeText(text); setCopied(true); setTimeout(() => setCopied(false), 1500); };
  return html`<div class="copied"><div class="row"><h3>${title}</h3><button class="button small" aria-label=${`Copy ${title}`} onClick=${copy}>${isCopied ? "Copied" : "Copy"}</button></div>
    <pre tabindex="0" aria-label=${title}>${text}</pre>${note && html`<p class="soft fine">${note}</p>`}</div>`;
}
