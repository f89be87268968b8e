// Where the reader looks: one transformation of a drawing, changed by wheel, drag, pinch and keys.
const LEAST = 0.02;
const MOST = 3;
const EASE_MS = 220;
// Without another step of the wheel or the fingers a reader has come to where he wanted.
const SETTLE_MS = 300;

const isStill = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

export class View {
  constructor(onChange) {
    Object.assign(this, { x: 0, y: 0, k: 1, width: 1, height: 1, onChange, pointers: new Map(), frame: 0 });
  }

  set(x, y, k) {
    Object.assign(this, { x, y, k });
    this.onChange(this);
  }

  // To another place in a short time; at once where the reader wants things to stand still.
  glide(x, y, k) {
    cancelAnimationFrame(this.frame);
    if (isStill()) { this.set(x, y, k); return; }
    const from = { x: this.x, y: this.y, k: this.k };
    const start = performance.now();
    const step = (now) => {
      const part = clamp((now - start) / EASE_MS, 0, 1);
      const eased = 1 - (1 - part) ** 3;
      const at = from.k * (k / from.k) ** eased;
      const share = k === from.k ? eased : (1 / from.k - 1 / at) / (1 / from.k - 1 / k);
      this.set(at * (from.x / from.k + (x / k - from.x / from.k) * share), at * (from.y / from.k + (y / k - from.y / from.k) * share), at);
      if (part < 1) this.frame = requestAnimationFrame(step);
    };
    this.frame = requestAnimationFrame(step);
  }

  fitted(box, most = 1) {
    const gap = 28;
    const k = clamp(Math.min((this.width - 2 * gap) / box.width, (this.height - 2 * gap) / box.height), LEAST, most);
    return [this.width / 2 - k * (box.x + box.width / 2), this.height / 2 - k * (box.y + box.height / 2), k];
  }

  fit(box, { glide = false } = {}) {
    if (glide) this.glide(...this.fitted(box));
    else this.set(...this.fitted(box));
    this.isFitted = true;
  }

  // A box into the middle, large enough to be read; nothing happens where it can be seen already.
  show(box) {
    const k = Math.max(this.k, 0.75);
    const seen = this.window();
    const isSeen = box.x >= seen.x && box.y >= seen.y && box.x + box.width <= seen.x + seen.width && box.y + box.height <= seen.y + seen.height;
    if (isSeen && this.k >= 0.5) return;
    this.isFitted = false;
    this.glide(this.width / 2 - k * (box.x + box.width / 2), this.height / 2 - k * (box.y + box.height / 2), k);
  }

  window() {
    return { x: -this.x / this.k, y: -this.y / this.k, width: this.width / this.k, height: this.height / this.k };
  }

  zoom(factor, x = this.width / 2, y = this.height / 2, glide = false) {
    const k = clamp(this.k * factor, LEAST, MOST);
    const share = k / this.k;
    clearTimeout(this.settling);
    this.settling = setTimeout(() => this.onSettle?.(x, y, factor > 1), SETTLE_MS);
    this.isFitted = false;
    this[glide ? "glide" : "set"](x - (x - this.x) * share, y - (y - this.y) * share, k);
  }

  pan(dx, dy) {
    this.isFitted = false;
    this.set(this.x + dx, this.y + dy, this.k);
  }

  // Listens to an element; gives what ends it.
  attach(element) {
    const stop = new AbortController();
    const on = (name, listener) => element.addEventListener(name, listener, { signal: stop.signal, passive: false });
    const place = (event) => { const box = element.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
    on("wheel", (event) => {
      event.preventDefault();
      cancelAnimationFrame(this.frame);
      const unit = event.deltaMode === 1 ? 0.05 : event.ctrlKey ? 0.01 : 0.002;
      this.zoom(Math.exp(-event.deltaY * unit), ...place(event));
    });
    on("pointerdown", (event) => {
      if (event.button !== 0) return;
      cancelAnimationFrame(this.frame);
      this.pointers.set(event.pointerId, place(event));
      this.moved = this.pointers.size > 1;
      this.travelled = 0;
    });
    on("pointermove", (event) => this.drag(event, place(event), element));
    for (const name of ["pointerup", "pointercancel", "lostpointercapture"]) {
      on(name, (event) => { this.pointers.delete(event.pointerId); element.classList.remove("dragging"); });
    }
    on("click", (event) => { if (this.moved) { event.stopPropagation(); event.preventDefault(); this.moved = false; } });
    element.addEventListener("click", (event) => { if (this.travelled > 4) event.stopPropagation(); }, { capture: true, signal: stop.signal });
    return () => { stop.abort(); clearTimeout(this.settling); };
  }

  drag(event, [x, y], element) {
    const before = this.pointers.get(event.pointerId);
    if (!before) return;
    const others = [...this.pointers.entries()].filter(([id]) => id !== event.pointerId);
    this.travelled += Math.abs(x - before[0]) + Math.abs(y - before[1]);
    if (this.travelled > 4 && !element.hasPointerCapture(event.pointerId)) {
      element.setPointerCapture(event.pointerId);
      element.classList.add("dragging");
    }
    if (others.length) {
      const [, [ox, oy]] = others[0];
      const share = Math.hypot(x - ox, y - oy) / Math.max(1, Math.hypot(before[0] - ox, before[1] - oy));
      this.zoom(share, (x + ox) / 2, (y + oy) / 2);
    } else if (this.travelled > 4) {
      this.pan(x - before[0], y - before[1]);
    }
    this.pointers.set(event.pointerId, [x, y]);
  }
}
