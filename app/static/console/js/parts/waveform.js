// Waveform of a sound, and the spans that were found in it.
import { html, useEffect, useState } from "../html.js";
import { colourOf } from "./boxes.js";

const COLUMNS = 480;
const TALL = 120;

// Largest magnitude of each of so many parts.
export function peaks(samples, count = COLUMNS, scale = 1) {
  const found = [];
  for (let at = 0; at < count; at += 1) {
    let most = 0;
    for (let index = Math.floor((at * samples.length) / count); index < ((at + 1) * samples.length) / count; index += 1) {
      most = Math.max(most, Math.abs(samples[index]));
    }
    found.push(most * scale);
  }
  return found;
}

// Columns and length of an encoded sound, null as long as they are not known or if the browser cannot read it.
export function useSound(blob) {
  const [sound, setSound] = useState(null);
  useEffect(() => {
    let isWanted = true;
    setSound(null);
    if (!blob) return undefined;
    (async () => {
      const decoded = await new OfflineAudioContext(1, 1, 44100).decodeAudioData(await blob.arrayBuffer());
      if (isWanted) setSound({ columns: peaks(decoded.getChannelData(0)), seconds: decoded.duration });
    })().catch(() => null);
    return () => { isWanted = false; };
  }, [blob]);
  return sound;
}

// columns: magnitudes from 0 to 1; spans: [{start, end, text}] in seconds; from: time of the first column.
export function Waveform({ columns, seconds, spans = [], from = 0, label = "Waveform" }) {
  const x = (time) => (COLUMNS * Math.max(0, Math.min(seconds, time - from))) / seconds;
  const width = COLUMNS / columns.length;
  const shape = columns.map((value, at) => {
    const tall = Math.max(0.6, Math.min(1, value) * (TALL - 8));
    return `M${((at + 0.5) * width).toFixed(2)} ${((TALL - tall) / 2).toFixed(2)}v${tall.toFixed(2)}`;
  }).join("");
  const shown = spans.filter(({ start, end }) => end > from && start < from + seconds);
  return html`<figure class="waveform">
    <svg viewBox=${`0 0 ${COLUMNS} ${TALL}`} preserveAspectRatio="none" role="img" aria-label=${`${label}, ${seconds.toFixed(1)} s, ${shown.length} spans`}>
      ${shown.map(({ start, end }, at) => html`<rect key=${at} class="span" x=${x(start)} y="0" width=${Math.max(1, x(end) - x(start))} height=${TALL} fill=${colourOf(at)} fill-opacity="0.16" stroke=${colourOf(at)} stroke-opacity="0.6" />`)}
      <path d=${shape} stroke-width=${(0.7 * width).toFixed(2)} />
    </svg>
    ${shown.some(({ text }) => text) && html`<div class="captions" aria-hidden="true">${shown.map(({ start, end, text }, at) => html`<span key=${at} title=${text} style=${{ left: `${(100 * x(start)) / COLUMNS}%`, width: `${(100 * (x(end) - x(start))) / COLUMNS}%` }}>${text}</span>`)}</div>`}
    <figcaption class="soft fine number"><span>${from < 0 ? "" : `${from.toFixed(1)} s`}</span><span>${(from + seconds).toFixed(1)} s</span></figcaption>
  </figure>`;
}
