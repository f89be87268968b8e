// Text input: one text a line, or a pair of texts, as the task needs them.
import { html, useState } from "../html.js";

const SENTENCE = "Ada Lovelace wrote to Charles Babbage from London.";
// Fields of each task: the first text of every pair, and texts, one a line.
const FIELDS = {
  embedding: { many: "Texts, one per line", start: "A cat sits on the mat.\nA dog lies on the rug.\nShares fell on Monday." },
  rerank: { one: "Query", first: "Where does it rain?", many: "Documents, one per line", start: "In Vienna it rains.\nThe cat sat on the mat." },
  "question-answering": { one: "Question", first: "Who wrote to Babbage?", many: "Context", start: SENTENCE, isWhole: true },
  "fill-mask": { many: "Text", start: "The cat sat on the [MASK].", isWhole: true },
};
const PLAIN = { many: "Text", start: SENTENCE, isWhole: true };

export function TextInput({ about, onRun }) {
  const { one, first, many, start, isWhole } = FIELDS[about.task] ?? PLAIN;
  const [head, setHead] = useState(first ?? "");
  const [rest, setRest] = useState(start);
  const texts = (isWhole ? [rest] : rest.split("\n")).filter((text) => text.trim());
  const run = () => {
    const text = one ? texts.map((each) => [head, each]) : texts;
    onRun({ body: JSON.stringify({ text }), type: "application/json", name: "request.json", text, texts });
  };
  return html`
    ${one && html`<label class="text"><span>${one}</span><input class="field" value=${head} onInput=${(event) => setHead(event.target.value)} /></label>`}
    <label class="text"><span>${many}</span><textarea class="field" rows="6" onInput=${(event) => setRest(event.target.value)}>${start}</textarea></label>
    <div class="row"><button class="button primary" disabled=${!texts.length} onClick=${run}>Run</button></div>`;
}
