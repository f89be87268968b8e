// Sound input: dropped, chosen, recorded, streamed from the microphone, or a sample of the model.
import { html, useEffect, useRef, useState } from "../html.js";
import { ask } from "../api.js";
import { openMicrophone, openStream, wavOf } from "../microphone.js";
import { joined, spansOf } from "./sound-result.js";
import { Waveform, peaks, useSound } from "./waveform.js";

const TYPES = { wav: "audio/wav", flac: "audio/flac", ogg: "audio/ogg", oga: "audio/ogg", opus: "audio/ogg", mp3: "audio/mpeg", aif: "audio/aiff", aiff: "audio/aiff" };
// Seconds of a stream that are shown, and columns of a piece of a tenth of a second.
const SHOWN_S = 12;
const COLUMNS = 4;
const MOST = 10 * COLUMNS * SHOWN_S;

const typeOf = (file) => TYPES[file.name?.split(".").at(-1).toLowerCase()] ?? (file.type.startsWith("audio/") ? file.type : null);

// Microphone whose samples are a stream to the model, or a file that is sent at the end.
function useMicrophone({ about, options, onLive, onFile }) {
  const [state, setState] = useState({ isOpen: false, columns: [], heard: 0 });
  const open = useRef(null);
  const stop = (error) => {
    const { microphone, stream, pieces } = open.current ?? {};
    if (!open.current) return;
    open.current = null;
    microphone?.close();
    stream?.close();
    setState((old) => ({ ...old, isOpen: false, error }));
    if (stream) onLive((old) => ({ ...old, isOpen: false }));
    else if (pieces?.length) onFile(wavOf(pieces, microphone.rate));
  };
  const start = async () => {
    const mine = (open.current = { pieces: [] });
    setState({ isOpen: true, columns: [], heard: 0 });
    const take = (piece) => {
      if (open.current !== mine) return;
      if (mine.stream) mine.stream.send(piece);
      else if (!about.sound.takes_streams) mine.pieces.push(piece);
      setState((old) => ({ ...old, heard: old.heard + 0.1, columns: [...old.columns, ...peaks(piece, COLUMNS, 1 / 32768)].slice(-MOST) }));
    };
    try {
      const microphone = await openMicrophone(take);
      if (open.current !== mine) { microphone.close(); return; }
      mine.microphone = microphone;
      if (!about.sound.takes_streams) return;
      onLive(() => ({ isOpen: true }));
      mine.stream = openStream(about.name, { ...options, sample_rate: microphone.rate }, { onAnswer: (answer) => onLive((old) => joined(old, answer)), onEnd: stop });
    } catch (error) {
      stop(error);
    }
  };
  useEffect(() => () => stop(), []);
  return { ...state, start, stop: () => stop() };
}

function liveSpans({ spans = [], speechStart, end = 0 }) {
  return typeof speechStart === "number" ? [...spans, { start: speechStart, end }] : spans;
}

export function SoundInput({ about, samples, sent, found, live, options, onRun, onSample, onLive }) {
  const [isOver, setOver] = useState(false);
  const [refused, setRefused] = useState(null);
  const field = useRef(null);
  const run = (body, type, name) => { onLive(() => null); onRun({ body, type, name, sound: URL.createObjectURL(body) }); };
  const take = (file) => {
    if (!file) return;
    const type = typeOf(file);
    setRefused(type ? null : file.name || "The file");
    if (type) run(file, type, file.name || "sound.wav");
  };
  const microphone = useMicrophone({ about, options, onLive, onFile: (blob) => run(blob, "audio/wav", "recording.wav") });
  const sound = useSound(live ? null : sent?.body);
  const predictions = about.steps ? Object.values(found?.predictions ?? {}).find((each) => each?.spans) : found?.predictions;
  const drop = (event) => { event.preventDefault(); setOver(false); take(event.dataTransfer.files[0]); };
  return html`
    <div class=${isOver ? "drop sound over" : "drop sound"} onDragOver=${(event) => { event.preventDefault(); setOver(true); }} onDragLeave=${() => setOver(false)} onDrop=${drop}>
      ${microphone.isOpen || live
        ? html`<${Waveform} label="Microphone" columns=${[...Array(MOST - microphone.columns.length).fill(0), ...microphone.columns]} seconds=${SHOWN_S} from=${microphone.heard - SHOWN_S} spans=${liveSpans(live ?? {})} />`
        : sound ? html`<${Waveform} ...${sound} spans=${spansOf(predictions)} />`
        : html`<p class="soft">${sent?.sound ? sent.name : "Drop a sound here"}</p>`}
    </div>
    ${sent?.sound && !live && !microphone.isOpen && html`<audio controls src=${sent.sound} aria-label="Sound sent"></audio>`}
    ${refused && html`<p class="notice" role="alert">${refused} is not a sound. Expected WAV, FLAC, Ogg, MP3 or AIFF.</p>`}
    ${microphone.error && html`<p class="notice" role="alert">${microphone.error.message}</p>`}
    <div class="row">
      <button class="button" onClick=${() => field.current.click()}>Choose a sound</button>
      <button class="button" aria-pressed=${String(microphone.isOpen)} onClick=${microphone.isOpen ? microphone.stop : microphone.start}>${microphone.isOpen ? "Stop" : "Microphone"}</button>
      <p class="soft fine">${about.sound.takes_streams ? "or drop one; the microphone is answered while you speak" : "or drop one; the microphone is sent when you stop"}</p>
      <input ref=${field} class="hidden" type="file" accept="audio/*" tabindex="-1" aria-label="Sound" onChange=${(event) => take(event.target.files[0])} />
    </div>
    ${samples?.length > 0 && html`<div class="row" role="group" aria-label="Samples">${samples.map((sample) => html`<button key=${sample.name} class="button small" aria-pressed=${String(!live && sent?.name === sample.name)} onClick=${() => { onLive(() => null); onSample(sample); }}>${sample.name}</button>`)}</div>`}`;
}
