// Code of the last request: curl, Python, JavaScript.
import { html, useState } from "../html.js";
import { base, key } from "../api.js";

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
const root = () => String(base).replace(/\/$/, "");

function curl({ url, request }) {
  const secret = key() ? " \\\n  -H 'authorization: Bearer KEY'" : "";
  const body = request.inputs || request.text ? `-d ${quoted(short(request))}` : `--data-binary ${quoted(`@${request.name}`)}`;
  return `curl -s ${body} \\\n  -H 'content-type: ${request.type}'${secret} \\\n  ${quoted(url)}`;
}

// Long bodies (values as base64) are cut.
function short(request) {
  return request.body.length < 2000 ? request.body : `${request.body.slice(0, 400)}…`;
}

function python({ model, url, request }) {
  const secret = key() ? ', key="KEY"' : "";
  if (request.text) {
    const headers = key() ? `, headers={"authorization": "Bearer KEY"}` : "";
    return `import httpx\n\nanswer = httpx.post("${url}", json=${short(request)}${headers})\nprint(answer.json()["predictions"])`;
  }
  if (request.sound) {
    const headers = `{"content-type": "${request.type}"${key() ? ', "authorization": "Bearer KEY"' : ""}}`;
    return `import httpx\n\nwith open("${request.name}", "rb") as file:\n    answer = httpx.post("${url}", content=file.read(), headers=${headers})\nprint(answer.json()["predictions"])`;
  }
  const given = request.inputs
    ? `{\n${request.inputs.map(({ name, shape, dtype, how }) => `    "${name}": ${({ zeros: `np.zeros((${shape.join(", ")},), "${dtype}")`, ones: `np.ones((${shape.join(", ")},), "${dtype}")` })[how] ?? `np.random.standard_normal((${shape.join(", ")},)).astype("${dtype}")`},`).join("\n")}\n}`
    : request.type.startsWith("image/") ? `"${request.name}"` : `np.load("${request.name}")`;
  const set = Object.entries(request.options ?? {}).filter(([, value]) => value !== undefined);
  const parameters = set.length ? `, parameters={${set.map(([name, value]) => `"${name}": ${value}`).join(", ")}}` : "";
  const numpy = given.includes("np.") ? "import numpy as np\n" : "";
  return `${numpy}from pnnx_client import Client\n\nwith Client("${root()}"${secret}) as client:\n    found = client.infer("${model}", ${given.replaceAll("\n", "\n    ")}${parameters})\n    print(found.predictions${request.type.startsWith("image/") ? "" : ", dict(found)"})`;
}

function javascript({ url, request }) {
  const secret = key() ? ', authorization: "Bearer KEY"' : "";
  const body = request.inputs || request.text ? `JSON.stringify(${short(request)})` : `file /* ${request.name} */`;
  return `const answer = await fetch("${url}", {\n  method: "POST",\n  headers: { "content-type": "${request.type}"${secret} },\n  body: ${body},\n});\nconsole.log(await answer.json());`;
}

const LANGUAGES = { curl: ["curl", curl], python: ["Python", python], javascript: ["JavaScript", javascript] };

export function Code({ model, request, isTensor }) {
  const [chosen, setChosen] = useState("curl");
  const [isCopied, setCopied] = useState(false);
  const query = new URLSearchParams([...(isTensor ? [["outputs", "true"]] : []), ...Object.entries(request.options ?? {}).filter(([, value]) => value !== undefined)]);
  const url = `${root()}/models/${encodeURIComponent(model)}/infer${query.size ? `?${query}` : ""}`;
  const text = LANGUAGES[chosen][1]({ model, url, request });
  const copy = async () => { await navigator.clipboard.writeText(text); setCopied(true); setTimeout(() => setCopied(false), 1500); };
  return html`<section class="panel code" aria-label="Code for this request">
    <div class="row"><h2>Code for this request</h2>
      <div class="segmented" role="group" aria-label="Language">${Object.entries(LANGUAGES).map(([name, [title]]) => html`<button key=${name} aria-pressed=${String(name === chosen)} onClick=${() => setChosen(name)}>${title}</button>`)}</div>
      <button class="button small copy" onClick=${copy}>${isCopied ? "Copied" : "Copy"}</button></div>
    <pre tabindex="0" aria-label=${`${LANGUAGES[chosen][0]} code`}>${text}</pre>
  </section>`;
}
