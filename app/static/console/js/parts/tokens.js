// Tokens of the texts of a request: id and characters of each, as the model gets them.
import { html, useEffect, useState } from "../html.js";
import { askJson } from "../api.js";

// Texts and tokens beyond these are not shown.
const TEXTS = 8;
const TOKENS = 512;

const pieces = (tokens) => tokens.slice(0, TOKENS).map(({ id, text, special, start, stop }, at) => html`
  <li key=${at} class=${special ? "special" : ""} title=${special ? `id ${id}` : `id ${id}, characters ${start} to ${stop}`}>
    <span class="mono">${text}</span><small>${id}</small>${!special && html`<small>${start}–${stop}</small>`}</li>`);

export function Tokens({ model, texts }) {
  const [found, setFound] = useState({});
  useEffect(() => {
    let isCurrent = true;
    const body = JSON.stringify({ model, inputs: texts.slice(0, TEXTS) });
    askJson("tokenize", { method: "POST", body, headers: { "content-type": "application/json" } })
      .then((tokens) => isCurrent && setFound({ tokens }), (error) => isCurrent && setFound({ error }));
    return () => { isCurrent = false; };
  }, [model, texts]);
  const { tokens, error } = found;
  return html`<section class="panel code tokens" aria-label="Tokens"><h2>Tokens</h2>
    ${error && html`<p class="notice" role="alert">${error.message}</p>`}
    ${tokens?.map((each, at) => html`<p class="soft" key=${`count ${at}`}>${each.length} tokens</p><ol key=${at}>${pieces(each)}</ol>`)}
  </section>`;
}
