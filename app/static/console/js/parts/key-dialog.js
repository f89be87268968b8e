// Dialog for a server with keys; the key is kept in this tab only.
import { html, useEffect, useRef } from "../html.js";
import { setKey } from "../api.js";

export function KeyDialog({ message, onDone }) {
  const field = useRef(null);
  useEffect(() => field.current.focus(), []);
  const submit = (event) => {
    event.preventDefault();
    setKey(field.current.value.trim());
    onDone();
  };
  return html`<div class="veil">
    <form class="panel dialog" role="dialog" aria-modal="true" aria-labelledby="key-title" onSubmit=${submit}>
      <h2 id="key-title">This server requires a key</h2>
      <p class="soft">It is kept in this tab until you close it.</p>
      ${message && html`<p class="notice" role="alert">${message}</p>`}
      <label><span class="hidden">Key</span>
        <input class="field mono" ref=${field} type="password" autocomplete="off" spellcheck="false" required placeholder="Key" />
      </label>
      <div class="row"><button class="button primary">Open the console</button></div>
    </form>
  </div>`;
}
