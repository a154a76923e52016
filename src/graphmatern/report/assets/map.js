// The map: a bitmap somewhat larger than the window is drawn in slices of time, and moved while the hand moves.
// So panning is smooth however many roads there are, with or without a graphics card.

import { NO_VALUE, themeColour } from "./colours.js";

const SLICE = 9; // milliseconds of drawing per frame
const MARGIN = 0.3; // of the window's size that the bitmap has on each side
const BATCH = 1500; // lines per stroke

export class MapView {
  constructor(canvas, page, changed) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false });
    this.page = page;
    this.changed = changed; // called after each frame, with the view
    this.x = page.arrays.x;
    this.y = page.arrays.y;
    this.edges = page.arrays.edges;
    this.bends = page.arrays.bends || new Float32Array(0);
    this.bendStart = page.arrays.bendStart || null;
    this.shift = page.arrays.shift || null;
    this.rings = page.arrays.rings || null; // outlines of areas
    this.isMap = page.layout.isMap;
    this.view = { x: 0, y: 0, scale: 1 };
    this.paint = { nodes: new Uint8Array(page.n).fill(NO_VALUE), edges: null, styles: [] };
    this.marked = [];
    this.showMarked = true;
    this.hovered = this.selected = -1;
    this.drawn = null; // the finished bitmap and the view it shows
    this.job = null;
    this.stale = true;
    this.frames = 0;
    this.waiting = false;
    this.measure();
  }

  // ------------------------------------------------------------------ geometry
  measure() {
    const { x, y, edges } = this;
    let [left, right, low, high] = [Infinity, -Infinity, Infinity, -Infinity];
    const see = (u, v) => {
      if (u < left) left = u;
      if (u > right) right = u;
      if (v < low) low = v;
      if (v > high) high = v;
    };
    for (let i = 0; i < x.length; i++) see(x[i], y[i]);
    if (this.rings) for (let i = 0; i < this.rings.length; i += 2) see(this.rings[i], this.rings[i + 1]);
    const m = edges.length / 2;
    this.boxes = new Float32Array(4 * m);
    let total = 0;
    for (let e = 0; e < m; e++) {
      const [s, t] = [edges[2 * e], edges[2 * e + 1]];
      let [a, b, c, d] = [Math.min(x[s], x[t]), Math.max(x[s], x[t]), Math.min(y[s], y[t]), Math.max(y[s], y[t])];
      total += Math.hypot(x[s] - x[t], y[s] - y[t]);
      if (this.bendStart) {
        for (let k = this.bendStart[e]; k < this.bendStart[e + 1]; k++) {
          const [u, v] = [this.bends[2 * k], this.bends[2 * k + 1]];
          a = Math.min(a, u); b = Math.max(b, u); c = Math.min(c, v); d = Math.max(d, v);
          see(u, v);
        }
      }
      this.boxes.set([a, b, c, d], 4 * e);
    }
    if (!(right > left)) { left -= 1; right += 1; }
    if (!(high > low)) { low -= 1; high += 1; }
    this.extent = { left, right, low, high };
    const area = (right - left) * (high - low);
    this.spacing = m ? total / m : Math.sqrt(area / Math.max(x.length, 1));
    this.spacing = Math.min(this.spacing, Math.max(right - left, high - low) / 2);
    if (!this.isMap) this.spacing = Math.min(this.spacing, Math.sqrt(area / x.length)); // made up: edges may be long
    if (this.rings) this.measureAreas();
  }

  measureAreas() {
    // Areas: the outlines of node i are ringOf[i] … ringOf[i + 1] of ringStart.
    const { ringStart, ringOf } = this.page.arrays;
    this.areaBoxes = new Float32Array(4 * this.page.n);
    for (let i = 0; i < this.page.n; i++) {
      let [a, b, c, d] = [Infinity, -Infinity, Infinity, -Infinity];
      for (let k = ringStart[ringOf[i]]; k < ringStart[ringOf[i + 1]]; k++) {
        const [u, v] = [this.rings[2 * k], this.rings[2 * k + 1]];
        a = Math.min(a, u); b = Math.max(b, u); c = Math.min(c, v); d = Math.max(d, v);
      }
      this.areaBoxes.set([a, b, c, d], 4 * i);
    }
  }

  resize() {
    const box = this.canvas.getBoundingClientRect();
    this.ratio = Math.min(window.devicePixelRatio || 1, 2);
    const [width, height] = [Math.max(box.width, 50), Math.max(box.height, 50)];
    if (this.width === width && this.height === height && this.ratio === this.lastRatio) return;
    const first = this.width === undefined;
    Object.assign(this, { width, height, lastRatio: this.ratio });
    this.canvas.width = Math.round(width * this.ratio);
    this.canvas.height = Math.round(height * this.ratio);
    this.stale = true;
    if (first || this.fitted) this.fit();
    this.request();
  }

  get fitScale() {
    const { left, right, low, high } = this.extent;
    const room = Math.min(34, 0.08 * Math.min(this.width, this.height));
    return Math.min((this.width - 2 * room) / (right - left), (this.height - 2 * room) / (high - low));
  }

  fit() {
    const { left, right, low, high } = this.extent;
    this.view = { x: (left + right) / 2, y: (low + high) / 2, scale: this.fitScale };
    this.fitted = true;
    this.request();
  }

  zoom(factor, px = this.width / 2, py = this.height / 2) {
    const scale = Math.max(this.fitScale / 3, Math.min(this.view.scale * factor, this.fitScale * 3e4));
    const [u, v] = this.toWorld(px, py);
    this.view.scale = scale;
    this.view.x = u - (px - this.width / 2) / scale;
    this.view.y = v + (py - this.height / 2) / scale;
    this.fitted = false;
    this.request();
  }

  pan(dx, dy) {
    this.view.x -= dx / this.view.scale;
    this.view.y += dy / this.view.scale;
    this.fitted = false;
    this.request();
  }

  centre(node) {
    this.view.x = this.x[node];
    this.view.y = this.y[node];
    const near = Math.min(26 / this.spacing, this.fitScale * 60);
    if (this.rings) {
      const [a, b, c, d] = this.areaBoxes.subarray(4 * node, 4 * node + 4);
      if (b > a) this.view.scale = Math.min(0.25 * Math.min(this.width / (b - a), this.height / (d - c)), this.fitScale * 60);
    } else this.view.scale = Math.max(this.view.scale, near);
    this.fitted = false;
    this.request();
  }

  toWorld(px, py) {
    return [this.view.x + (px - this.width / 2) / this.view.scale, this.view.y - (py - this.height / 2) / this.view.scale];
  }

  toScreen(node) {
    return [
      (this.x[node] - this.view.x) * this.view.scale + this.width / 2,
      (this.view.y - this.y[node]) * this.view.scale + this.height / 2,
    ];
  }

  sizes(scale) {
    const pixels = this.spacing * scale; // between neighbours
    const clip = (value, low, high) => Math.max(low, Math.min(high, value));
    if (this.rings) return { node: 0, line: 0.7 };
    if (this.isMap) return { node: clip(0.16 * pixels, 0.5, 7), line: clip(0.16 * pixels, this.edges.length > 40000 ? 0.9 : 2.4, 7) };
    return { node: clip(0.26 * pixels, 1.4, 8), line: clip(0.02 * pixels, 0.3, 1.2) };
  }

  // ------------------------------------------------------------------ which node is here
  pick(px, py) {
    const [u, v] = this.toWorld(px, py);
    if (this.rings) return this.pickArea(u, v);
    const { x, y } = this;
    const size = this.sizes(this.view.scale).node;
    const reach = Math.max(size + 5, 9) / this.view.scale;
    let [best, found] = [reach * reach, -1];
    for (let i = 0; i < x.length; i++) {
      const d = (x[i] - u) ** 2 + (y[i] - v) ** 2;
      if (d < best) [best, found] = [d, i];
    }
    return found >= 0 || !this.isMap ? found : this.pickEdge(u, v, 7 / this.view.scale);
  }

  // On a road away from its ends, the nearer end.
  pickEdge(u, v, reach) {
    const { boxes, edges, x, y } = this;
    let [best, found] = [reach * reach, -1];
    for (let e = 0; e < edges.length / 2; e++) {
      const at = 4 * e;
      if (u < boxes[at] - reach || u > boxes[at + 1] + reach || v < boxes[at + 2] - reach || v > boxes[at + 3] + reach) continue;
      const line = this.lineOf(e);
      for (let k = 0; k + 3 < line.length; k += 2) {
        const [ax, ay, dx, dy] = [line[k], line[k + 1], line[k + 2] - line[k], line[k + 3] - line[k + 1]];
        const length = dx * dx + dy * dy;
        const share = length > 0 ? Math.max(0, Math.min(1, ((u - ax) * dx + (v - ay) * dy) / length)) : 0;
        const d = (ax + share * dx - u) ** 2 + (ay + share * dy - v) ** 2;
        if (d < best) [best, found] = [d, e];
      }
    }
    if (found < 0) return -1;
    const [s, t] = [edges[2 * found], edges[2 * found + 1]];
    return (x[s] - u) ** 2 + (y[s] - v) ** 2 <= (x[t] - u) ** 2 + (y[t] - v) ** 2 ? s : t;
  }

  pickArea(u, v) {
    const { ringStart, ringOf } = this.page.arrays;
    for (let i = 0; i < this.page.n; i++) {
      const box = 4 * i;
      if (u < this.areaBoxes[box] || u > this.areaBoxes[box + 1] || v < this.areaBoxes[box + 2] || v > this.areaBoxes[box + 3]) continue;
      let inside = false; // even–odd rule, so that holes are outside
      for (let r = ringOf[i]; r < ringOf[i + 1]; r++) {
        for (let k = ringStart[r], last = ringStart[r + 1] - 1; k < ringStart[r + 1]; last = k++) {
          const [ax, ay, bx, by] = [this.rings[2 * k], this.rings[2 * k + 1], this.rings[2 * last], this.rings[2 * last + 1]];
          if (ay > v !== by > v && u < ((bx - ax) * (v - ay)) / (by - ay) + ax) inside = !inside;
        }
      }
      if (inside) return i;
    }
    return -1;
  }

  lineOf(e) {
    const [s, t] = [this.edges[2 * e], this.edges[2 * e + 1]];
    const bends = this.bendStart ? this.bends.subarray(2 * this.bendStart[e], 2 * this.bendStart[e + 1]) : [];
    return [this.x[s], this.y[s], ...bends, this.x[t], this.y[t]];
  }

  // ------------------------------------------------------------------ drawing
  setPaint(paint) {
    this.paint = paint;
    this.order = paint.edges ? sortedByBin(paint.edges) : null;
    this.nodeOrder = sortedByBin(paint.nodes);
    this.stale = true;
    this.request();
  }

  request() {
    if (this.waiting || !this.width) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.frame();
    });
  }

  // Whether the finished bitmap no longer shows what the window should.
  outdated() {
    if (this.stale || !this.drawn) return true;
    const { view, drawn } = this;
    if (Math.abs(Math.log(view.scale / drawn.view.scale)) > 1e-6) return true;
    const room = MARGIN * 0.6;
    return (
      Math.abs(view.x - drawn.view.x) * view.scale > room * this.width ||
      Math.abs(view.y - drawn.view.y) * view.scale > room * this.height
    );
  }

  frame() {
    const began = performance.now();
    if (this.stale || (!this.job && this.outdated())) this.begin();
    if (this.job) {
      const budget = this.drawn ? SLICE : 2000; // the first picture comes in one piece
      let done = false;
      while (!done && performance.now() - began < budget) done = this.job.steps.next().done;
      if (done) {
        this.drawn = this.job;
        this.job = null;
      }
    }
    this.present();
    this.frames += 1;
    if (this.job || this.outdated()) this.request();
    this.changed(this);
  }

  begin() {
    this.stale = false;
    const { ratio } = this;
    const bitmap = this.spare && this.spare !== this.drawn?.bitmap ? this.spare : document.createElement("canvas");
    const [width, height] = [this.width * (1 + 2 * MARGIN), this.height * (1 + 2 * MARGIN)].map((one) => Math.round(one * ratio));
    if (bitmap.width !== width || bitmap.height !== height) [bitmap.width, bitmap.height] = [width, height];
    this.spare = this.drawn?.bitmap;
    const view = { ...this.view };
    const context = bitmap.getContext("2d", { alpha: false });
    const job = { bitmap, view, width: width / ratio, height: height / ratio };
    job.steps = this.steps(context, job, ratio);
    this.job = job;
  }

  *steps(context, job, ratio) {
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.fillStyle = themeColour("--map");
    context.fillRect(0, 0, job.bitmap.width, job.bitmap.height);
    const scale = job.view.scale * ratio;
    const [ox, oy] = [job.bitmap.width / 2 - job.view.x * scale, job.bitmap.height / 2 + job.view.y * scale];
    const shown = {
      left: -ox / scale,
      right: (job.bitmap.width - ox) / scale,
      low: (oy - job.bitmap.height) / scale,
      high: oy / scale,
    };
    const at = { context, scale, ox, oy, shown, ratio };
    const sizes = this.sizes(job.view.scale);
    if (this.rings) yield* this.areaSteps(at);
    else {
      yield* this.edgeSteps(at, sizes);
      // Where nodes are smaller than the lines between them, they would only cost time.
      if (!this.isMap || this.paint.sparse || 2 * sizes.node > sizes.line * 1.1 || !this.edges.length) yield* this.nodeSteps(at, sizes);
    }
    if (this.showMarked && this.marked.length) yield* this.markSteps(at, job.view.scale, sizes);
  }

  *edgeSteps({ context, scale, ox, oy, shown, ratio }, sizes) {
    const { x, y, edges, boxes, bendStart, bends, shift, paint } = this;
    const width = sizes.line * ratio;
    context.lineWidth = width;
    context.lineCap = width > 2 ? "round" : "butt";
    context.lineJoin = "round";
    const m = edges.length / 2;
    const order = paint.edges ? this.order.order : null;
    const starts = paint.edges ? this.order.starts : null;
    for (let bin = 0; bin < (order ? 256 : 1); bin++) {
      const [from, to] = order ? [starts[bin], starts[bin + 1]] : [0, m];
      if (from === to) continue;
      context.strokeStyle = order ? paint.styles[bin] : themeColour("--edge");
      let count = 0;
      context.beginPath();
      for (let k = from; k < to; k++) {
        const e = order ? order[k] : k;
        const box = 4 * e;
        if (boxes[box] > shown.right || boxes[box + 1] < shown.left || boxes[box + 2] > shown.high || boxes[box + 3] < shown.low) continue;
        const [s, t] = [edges[2 * e], edges[2 * e + 1]];
        // Carriageways that run side by side are drawn apart, however small the map.
        const dx = shift ? (shift[2 * e] / 127) * width * 0.62 : 0;
        const dy = shift ? (-shift[2 * e + 1] / 127) * width * 0.62 : 0;
        context.moveTo(x[s] * scale + ox + dx, oy - y[s] * scale + dy);
        if (bendStart) {
          for (let b = bendStart[e]; b < bendStart[e + 1]; b++) {
            context.lineTo(bends[2 * b] * scale + ox + dx, oy - bends[2 * b + 1] * scale + dy);
          }
        }
        context.lineTo(x[t] * scale + ox + dx, oy - y[t] * scale + dy);
        if (++count === BATCH) {
          context.stroke();
          context.beginPath();
          count = 0;
          yield;
        }
      }
      if (count) {
        context.stroke();
        yield;
      }
    }
  }

  get sparseSize() {
    return Math.max(1.2, Math.min(3.4, 60 / Math.sqrt(this.marked.length || 1)));
  }

  *nodeSteps({ context, scale, ox, oy, shown, ratio }, sizes) {
    const { x, y, paint } = this;
    const { order, starts } = this.nodeOrder;
    let count = 0;
    for (let step = 0; step < 256; step++) {
      const bin = (step + NO_VALUE) % 256; // those without a value lie below the others
      if (starts[bin] === starts[bin + 1]) continue;
      // Where only some nodes have a value, these must be seen.
      const r = (paint.sparse && bin !== NO_VALUE ? Math.max(sizes.node, this.sparseSize) : sizes.node) * ratio;
      context.fillStyle = paint.styles[bin];
      context.beginPath();
      for (let k = starts[bin]; k < starts[bin + 1]; k++) {
        const i = order[k];
        if (x[i] < shown.left || x[i] > shown.right || y[i] < shown.low || y[i] > shown.high) continue;
        const [px, py] = [x[i] * scale + ox, oy - y[i] * scale];
        if (r < 2) context.rect(px - r, py - r, 2 * r, 2 * r);
        else {
          context.moveTo(px + r, py);
          context.arc(px, py, r, 0, 2 * Math.PI);
        }
        if (++count % BATCH === 0) {
          context.fill();
          context.beginPath();
          yield;
        }
      }
      context.fill();
    }
    yield;
  }

  *areaSteps({ context, scale, ox, oy, shown, ratio }) {
    const { ringStart, ringOf } = this.page.arrays;
    context.lineWidth = 0.7 * ratio;
    context.lineJoin = "round";
    context.strokeStyle = themeColour("--map");
    for (let i = 0; i < this.page.n; i++) {
      const box = 4 * i;
      const boxes = this.areaBoxes;
      if (!(boxes[box] <= shown.right && boxes[box + 1] >= shown.left && boxes[box + 2] <= shown.high && boxes[box + 3] >= shown.low)) continue;
      this.traceArea(context, i, scale, ox, oy, ringStart, ringOf);
      context.fillStyle = this.paint.styles[this.paint.nodes[i]];
      context.fill("evenodd");
      context.stroke();
      if (i % 200 === 0) yield;
    }
  }

  traceArea(context, i, scale, ox, oy, ringStart, ringOf) {
    context.beginPath();
    for (let r = ringOf[i]; r < ringOf[i + 1]; r++) {
      for (let k = ringStart[r]; k < ringStart[r + 1]; k++) {
        const [px, py] = [this.rings[2 * k] * scale + ox, oy - this.rings[2 * k + 1] * scale];
        if (k === ringStart[r]) context.moveTo(px, py);
        else context.lineTo(px, py);
      }
      context.closePath();
    }
  }

  // Rings around observed nodes, as small as their number asks for.
  *markSteps({ context, scale, ox, oy, shown, ratio }, zoom, sizes) {
    const { x, y, marked, extent } = this;
    if (this.rings) return; // an area is coloured as a whole
    const area = Math.max((extent.right - extent.left) * (extent.high - extent.low), this.spacing ** 2);
    const apart = Math.sqrt(area / marked.length) * zoom; // pixels between rings
    const r = Math.max(1.2, Math.min(0.09 * apart, sizes.node + 2.6, 8)) * ratio;
    context.lineWidth = Math.max(0.7, Math.min(1.5, 0.24 * r)) * (ratio > 1 ? 1.2 : 1);
    context.strokeStyle = themeColour("--ring");
    context.beginPath();
    let count = 0;
    for (const i of marked) {
      if (x[i] < shown.left || x[i] > shown.right || y[i] < shown.low || y[i] > shown.high) continue;
      const [px, py] = [x[i] * scale + ox, oy - y[i] * scale];
      context.moveTo(px + r, py);
      context.arc(px, py, r, 0, 2 * Math.PI);
      if (++count % BATCH === 0) {
        context.stroke();
        context.beginPath();
        yield;
      }
    }
    context.stroke();
  }

  present() {
    const { context, drawn, view, ratio } = this;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.fillStyle = themeColour("--map");
    context.fillRect(0, 0, this.canvas.width, this.canvas.height);
    if (drawn) {
      const factor = view.scale / drawn.view.scale;
      const [width, height] = [drawn.width * factor * ratio, drawn.height * factor * ratio];
      let left = this.canvas.width / 2 + (drawn.view.x - view.x) * view.scale * ratio - width / 2;
      let top = this.canvas.height / 2 - (drawn.view.y - view.y) * view.scale * ratio - height / 2;
      if (factor === 1) [left, top] = [Math.round(left), Math.round(top)]; // sharp, pixel on pixel
      context.drawImage(drawn.bitmap, left, top, width, height);
    }
    this.highlight(this.hovered, themeColour("--ink"), 2);
    this.highlight(this.selected, themeColour("--accent"), 3);
  }

  highlight(node, colour, width) {
    if (node < 0) return;
    const { context, ratio } = this;
    context.lineWidth = width * ratio;
    context.strokeStyle = colour;
    if (this.rings) {
      const scale = this.view.scale * ratio;
      const { ringStart, ringOf } = this.page.arrays;
      this.traceArea(context, node, scale, this.canvas.width / 2 - this.view.x * scale, this.canvas.height / 2 + this.view.y * scale, ringStart, ringOf);
    } else {
      const [px, py] = this.toScreen(node);
      context.beginPath();
      context.arc(px * ratio, py * ratio, (Math.max(this.sizes(this.view.scale).node, 3) + 3) * ratio, 0, 2 * Math.PI);
    }
    context.stroke();
  }
}

// Positions sorted by bin, and where each bin begins.
function sortedByBin(bins) {
  const starts = new Uint32Array(257);
  for (let i = 0; i < bins.length; i++) starts[bins[i] + 1] += 1;
  for (let bin = 0; bin < 256; bin++) starts[bin + 1] += starts[bin];
  const next = starts.slice();
  const order = new Uint32Array(bins.length);
  for (let i = 0; i < bins.length; i++) order[next[bins[i]]++] = i;
  return { order, starts };
}
