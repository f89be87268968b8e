// Runs in the browser's audio thread: passes on a tenth of a second of samples at a time, as 16-bit integers.
class Samples extends AudioWorkletProcessor {
  constructor() {
    super();
    this.piece = new Int16Array(Math.round(sampleRate / 10));
    this.filled = 0;
  }

  process([input]) {
    for (const value of input[0] ?? []) {
      this.piece[this.filled] = Math.max(-32768, Math.min(32767, Math.round(32767 * value)));
      this.filled += 1;
      if (this.filled === this.piece.length) {
        this.port.postMessage(this.piece.slice());
        this.filled = 0;
      }
    }
    return true;
  }
}

registerProcessor("samples", Samples);
