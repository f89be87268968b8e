// Samples of the microphone, and the WebSocket that sends them to a model.
import { base, key, urlOf } from "./api.js";

// Bytes that may wait for the server: more means that it cannot keep up.
const MOST_WAITING = 1 << 20;

export async function openMicrophone(onPiece) {
  if (!navigator.mediaDevices) throw new Error("The browser offers the microphone to pages of HTTPS and of localhost only.");
  const media = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1 } }).catch((error) => {
    throw new Error(`The microphone cannot be used: ${error.message}`);
  });
  const context = new AudioContext();
  const close = () => {
    media.getTracks().forEach((track) => track.stop());
    context.close();
  };
  try {
    await context.audioWorklet.addModule(new URL("console/js/worklet.js", base));
  } catch (error) {
    close();
    throw error;
  }
  const node = new AudioWorkletNode(context, "samples");
  node.port.onmessage = ({ data }) => onPiece(data);
  context.createMediaStreamSource(media).connect(node).connect(context.destination);
  return { rate: context.sampleRate, close };
}

const bare = (text) => btoa(text).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");

export const streamUrl = (model, query) => {
  const url = urlOf(`models/${encodeURIComponent(model)}/stream`, query);
  url.protocol = url.protocol.replace("http", "ws");
  return String(url);
};

// Answers arrive as they are; onEnd is called once, with an error or without.
export function openStream(model, query, { onAnswer, onEnd }) {
  const socket = new WebSocket(streamUrl(model, query), key() ? ["pnnx-serve", `key.${bare(key())}`] : []);
  let isOpen = true;
  const end = (error) => {
    if (!isOpen) return;
    isOpen = false;
    socket.close();
    onEnd(error);
  };
  socket.onmessage = ({ data }) => {
    const answer = JSON.parse(data);
    if (answer.error) end(new Error(answer.error.message));
    else onAnswer(answer);
  };
  socket.onerror = () => end(new Error("The stream was refused or broke off."));
  socket.onclose = ({ code }) => end(code === 1000 ? undefined : new Error(`The server closed the stream (${code}).`));
  return {
    send(piece) {
      if (socket.readyState !== WebSocket.OPEN) return;
      if (socket.bufferedAmount > MOST_WAITING) end(new Error("The server takes longer than the sound."));
      else socket.send(piece);
    },
    close: () => end(),
  };
}

// WAV file of pieces of 16-bit samples.
export function wavOf(pieces, rate) {
  const bytes = pieces.reduce((sum, piece) => sum + piece.byteLength, 0);
  const head = new DataView(new ArrayBuffer(44));
  const text = (at, letters) => [...letters].forEach((letter, index) => head.setUint8(at + index, letter.charCodeAt(0)));
  text(0, "RIFF"); head.setUint32(4, 36 + bytes, true); text(8, "WAVEfmt "); head.setUint32(16, 16, true);
  head.setUint16(20, 1, true); head.setUint16(22, 1, true); head.setUint32(24, rate, true); head.setUint32(28, 2 * rate, true);
  head.setUint16(32, 2, true); head.setUint16(34, 16, true); text(36, "data"); head.setUint32(40, bytes, true);
  return new Blob([head, ...pieces], { type: "audio/wav" });
}
