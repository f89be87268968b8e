// Picture input: dropped, pasted, chosen, photographed, drawn, or a sample of the model.
import { html, useEffect, useRef, useState } from "../html.js";
import { urlOf, ask } from "../api.js";
import { Boxes } from "./boxes.js";
import { Sketch } from "./sketch.js";

function Thumb({ model, sample, isChosen, onClick }) {
  const [source, setSource] = useState(null);
  useEffect(() => {
    let url = null;
    ask(`models/${encodeURIComponent(model)}/samples/${encodeURIComponent(sample.name)}`).then(async (answer) => {
      url = URL.createObjectURL(await answer.blob());
      setSource(url);
    }, () => null);
    return () => url && URL.revokeObjectURL(url);
  }, []);
  return html`<button class="thumb" aria-label=${`Sample ${sample.name}`} aria-pressed=${String(isChosen)} onClick=${onClick}>${source && html`<img src=${source} alt="" />`}</button>`;
}

export function PictureInput({ about, samples, sent, found, places, onRun, onSample, onSize }) {
  const [isOver, setOver] = useState(false);
  const [isSketching, setSketching] = useState(false);
  const [refused, setRefused] = useState(null);
  const [field, camera] = [useRef(null), useRef(null)];
  const take = (file) => {
    if (!file) return;
    const isPicture = file.type ? file.type.startsWith("image/") : /\.(png|jpe?g|webp|gif|bmp|tiff?)$/i.test(file.name);
    setRefused(isPicture ? null : file.name || "The file");
    if (!isPicture) return;
    setSketching(false);
    onRun({ body: file, type: file.type || "application/octet-stream", name: file.name || "picture.png", picture: URL.createObjectURL(file) });
  };
  useEffect(() => {
    const paste = (event) => {
      const file = [...(event.clipboardData?.files ?? [])].find(({ type }) => type.startsWith("image/"));
      if (file) { event.preventDefault(); take(file); }
    };
    addEventListener("paste", paste);
    return () => removeEventListener("paste", paste);
  }, []);
  const drop = (event) => { event.preventDefault(); setOver(false); take(event.dataTransfer.files[0]); };
  const canSketch = about.preprocess?.color === "grey";
  return html`
    <div class=${isOver ? "drop over" : "drop"} onDragOver=${(event) => { event.preventDefault(); setOver(true); }} onDragLeave=${() => setOver(false)} onDrop=${drop}>
      ${isSketching ? html`<${Sketch} onPicture=${(blob) => onRun({ body: blob, type: "image/png", name: "sketch.png", picture: null })} />`
        : sent?.picture ? html`<${Boxes} source=${sent.picture} found=${found} task=${about.task} places=${places} onSize=${onSize} />`
        : html`<p class="soft">Drop or paste a picture here</p>`}
    </div>
    ${refused && html`<p class="notice" role="alert">${refused} is not a picture. Expected PNG, JPEG, WebP, GIF, BMP or TIFF.</p>`}
    <div class="row">
      <button class="button" onClick=${() => field.current.click()}>Choose a picture</button>
      <button class="button only-touch" onClick=${() => camera.current.click()}>Camera</button>
      ${canSketch && html`<button class="button" aria-pressed=${String(isSketching)} onClick=${() => setSketching(!isSketching)}>Draw</button>`}
      <p class="soft fine">or drop or paste one</p>
      <input ref=${field} class="hidden" type="file" accept="image/*" tabindex="-1" aria-label="Picture" onChange=${(event) => take(event.target.files[0])} />
      <input ref=${camera} class="hidden" type="file" accept="image/*" capture="environment" tabindex="-1" aria-label="Camera" onChange=${(event) => take(event.target.files[0])} />
    </div>
    ${samples?.length > 0 && html`<div class="samples" role="group" aria-label="Samples">${samples.map((sample) => html`<${Thumb} key=${sample.name} model=${about.name} sample=${sample} isChosen=${sent?.name === sample.name} onClick=${() => { setSketching(false); onSample(sample); }} />`)}</div>`}`;
}

export const pathOf = (model) => String(urlOf(`models/${encodeURIComponent(model)}/infer`));
