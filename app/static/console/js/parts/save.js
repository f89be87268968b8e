// Download of drawings and reports.
import { ask } from "../api.js";

const MOST_PIXELS = 16384;

function give(blob, name) {
  const anchor = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: name });
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(anchor.href), 10000);
}

const at = (model, rest) => `models/${encodeURIComponent(model)}/${rest}`;

export async function pngOf(svg) {
  const picture = new Image();
  picture.src = URL.createObjectURL(svg);
  await picture.decode();
  URL.revokeObjectURL(picture.src);
  // Double resolution, up to the size that browsers support.
  const scale = Math.min(2, MOST_PIXELS / Math.max(picture.naturalWidth, picture.naturalHeight));
  const canvas = Object.assign(document.createElement("canvas"), { width: picture.naturalWidth * scale, height: picture.naturalHeight * scale });
  canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => { canvas.toBlob(resolve, "image/png"); });
}

export async function saveDrawing(model, kind) {
  const svg = await (await ask(at(model, "graph"), { query: { format: "svg" } })).blob();
  give(kind === "png" ? await pngOf(svg) : svg, `${model}.${kind}`);
}

// Graph, profile and machine in one stand-alone file.
export async function saveReport(model, query = {}) {
  give(await (await ask(at(model, "report"), { query })).blob(), `${model}.html`);
}
