// The page: what is shown where, and what changes when something is chosen.

import { calibrationChart, intervalBar, pitChart, rangeChart, seriesChart } from "./charts.js";
import { exceedance, FADES, LEVELS, levelOf, NO_VALUE, scaleStyles, themeColour } from "./colours.js";
import { readPage, seriesOf, valuesOf } from "./data.js";
import { makeFinder } from "./finder.js";
import { formatNumber, formatShare, make, MISSING, withUnit } from "./format.js";
import { followHand } from "./hand.js";
import { showLegend, showScaleBar } from "./legend.js";
import { MapView } from "./map.js";
import { asCsv, download, NodeTable } from "./table.js";

const get = (id) => document.getElementById(id);
const WORST = 5;

class Page {
  constructor(page) {
    this.page = page;
    this.numbers = page.kind === "numbers";
    this.time = 0;
    this.threshold = page.exceedance?.threshold ?? 0;
    this.above = true;
    this.above_values = new Float32Array(page.n);
    this.selected = -1;
    this.fade = false;
    this.map = new MapView(get("canvas"), page, () => this.afterFrame());
    this.read();
    this.words();
    this.controls();
    this.table = new NodeTable(get("table"), { columns: this.columns(), n: page.n, choose: (i) => this.choose(i, true) });
    this.setLayer(page.layers[0]);
    this.showDetail();
    this.charts();
    new ResizeObserver(() => this.map.resize()).observe(get("map"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.repaint());
    this.map.resize();
  }

  // ------------------------------------------------------------------ values
  values(name) {
    return this.page.arrays[name] ? valuesOf(this.page, name, this.time) : null;
  }

  bounds(i) {
    const { lower, upper } = this.now;
    if (lower) return [lower[i], upper[i]];
    const half = this.page.z * this.now.std[i];
    return [this.now.mean[i] - half, this.now.mean[i] + half];
  }

  // Everything that depends on the time shown.
  read() {
    const names = ["mean", "std", "lower", "upper", "observed", "residual", "label", "entropy", "probability"];
    this.now = Object.fromEntries(names.map((name) => [name, this.values(name)]));
    if (this.page.exceedance) this.exceed();
  }

  exceed() {
    const { mean, std } = this.now;
    const { quantiles } = this.page.arrays;
    exceedance(this.threshold, { mean, std, quantiles }, this.page.exceedance, this.above_values);
    if (!this.above) for (let i = 0; i < this.page.n; i++) this.above_values[i] = 1 - this.above_values[i];
  }

  shown() {
    return this.layer.key === "exceedance" ? this.above_values : this.values(this.layer.array);
  }

  // ------------------------------------------------------------------ map
  setLayer(layer) {
    this.layer = layer;
    get("layer").value = layer.key;
    get("threshold").hidden = layer.key !== "exceedance";
    get("rings-control").hidden = Boolean(this.map.rings) || ["observed", "residual"].includes(layer.key);
    get("fade-control").hidden = !this.page.arrays.std || layer.key !== "mean";
    get("about-layer").textContent = layer.about;
    this.read();
    this.repaint();
  }

  title() {
    const { layer, page } = this;
    const when = page.times ? `, ${page.times.labels[this.time]}` : "";
    if (layer.key === "exceedance") {
      const level = withUnit(formatNumber(this.threshold, page.exceedance.decimals), page.unit);
      return `probability ${this.above ? "above" : "below"} ${level}${when}`;
    }
    return `${layer.label}${layer.unit ? `, ${layer.unit}` : ""}${when}`;
  }

  repaint() {
    const { page, layer, map } = this;
    const values = this.shown();
    const [low, high] = layer.limits;
    const classes = layer.kind === "classes";
    const dark = isDark();
    const table = page.arrays[`colours.${dark ? layer.dark : layer.light}`];
    const styles = scaleStyles(table, themeColour("--map"), classes);
    const faded = this.fade && layer.key === "mean";
    const step = faded ? this.fadeSteps() : null;
    const bin = (value, fade) => {
      const level = classes ? (Number.isNaN(value) ? NO_VALUE : value % LEVELS) : levelOf(value, low, high);
      return level === NO_VALUE ? NO_VALUE : level + LEVELS * fade;
    };
    const nodes = new Uint8Array(page.n);
    let [under, over] = [false, false];
    let missing = false;
    for (let i = 0; i < page.n; i++) {
      nodes[i] = bin(values[i], step ? step[i] : 0);
      under ||= values[i] < low;
      over ||= values[i] > high;
      missing ||= nodes[i] === NO_VALUE;
    }
    let edges = null;
    if (!classes && map.isMap) {
      const ends = page.arrays.edges;
      edges = new Uint8Array(ends.length / 2);
      for (let e = 0; e < edges.length; e++) {
        const [s, t] = [ends[2 * e], ends[2 * e + 1]];
        edges[e] = bin(0.5 * (values[s] + values[t]), step ? Math.round(0.5 * (step[s] + step[t])) : 0);
      }
    }
    const sparse = ["observed", "residual"].includes(layer.key); // all that has a colour was observed
    map.marked = this.observedNodes();
    map.showMarked = get("rings").checked && !sparse;
    map.setPaint({ nodes, edges, styles, sparse });
    showLegend(get("legend"), {
      title: this.title(),
      layer,
      styles,
      limits: layer.limits,
      beyond: [under, over],
      faded,
      missing: missing ? layer.missing : null,
      rings: !map.rings && map.showMarked && map.marked.length > 0,
    });
  }

  fadeSteps() {
    const { std } = this.now;
    const [low, high] = this.page.fade;
    return Uint8Array.from(std, (one) => Math.max(0, Math.min(FADES - 1, Math.floor((FADES * (one - low)) / (high - low || 1)))));
  }

  observedNodes() {
    const { observed } = this.now;
    const found = [];
    for (let i = 0; i < observed.length; i++) if (!Number.isNaN(observed[i])) found.push(i);
    return found;
  }

  afterFrame() {
    const { scale } = this.page.layout;
    get("scale").hidden = !scale;
    if (scale) showScaleBar(get("scale"), this.map.view.scale, scale);
    if (this.map.drawn && !document.documentElement.dataset.drawn) {
      document.documentElement.dataset.drawn = performance.now().toFixed(0); // when the first picture was there
    }
  }

  hover(node, px, py) {
    const tip = get("tip");
    this.map.canvas.style.cursor = node >= 0 ? "pointer" : "";
    if (this.map.hovered !== node) {
      this.map.hovered = node;
      this.map.request();
      tip.hidden = node < 0;
      if (node >= 0) tip.replaceChildren(...this.tipLines(node));
    }
    if (node < 0) return;
    const room = get("map").getBoundingClientRect();
    const left = px + 16 + tip.offsetWidth > room.width ? px - tip.offsetWidth - 12 : px + 16;
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${Math.max(4, Math.min(py + 14, room.height - tip.offsetHeight - 6))}px`;
  }

  tipLines(i) {
    const lines = [make("strong", { text: this.nameOf(i) })];
    const add = (text) => lines.push(make("span", { text }));
    if (this.numbers) {
      add(`${this.number(this.now.mean[i])} (${this.interval(i)})`);
      if (this.layer.key === "exceedance") add(`${formatShare(this.above_values[i])} ${this.above ? "above" : "below"} ${this.number(this.threshold)}`);
      if (!Number.isNaN(this.now.observed[i])) add(`observed ${this.number(this.now.observed[i])}`);
    } else {
      add(`${this.className(this.now.label[i])}, ${formatShare(this.now.probability[i])}`);
      if (!Number.isNaN(this.now.observed[i])) add(`labelled ${this.className(this.now.observed[i])}`);
    }
    if (!this.page.arrays.informed[i]) add("no data in this part");
    return lines;
  }

  // ------------------------------------------------------------------ words for one node
  nameOf(i) {
    return this.page.names[i] === "" ? "(empty name)" : this.page.names[i];
  }

  className(code) {
    return Number.isNaN(code) ? MISSING : this.page.classes[code];
  }

  number(value, unit = true) {
    return withUnit(formatNumber(value, this.page.decimals), unit ? this.page.unit : "");
  }

  interval(i) {
    const [low, high] = this.bounds(i);
    return `${this.number(low, false)} to ${this.number(high, false)}`;
  }

  choose(node, centre = false) {
    this.selected = this.map.selected = node;
    if (node >= 0 && centre) this.map.centre(node);
    this.map.request();
    this.table.select(node);
    this.showDetail();
    if (centre) get("explore").scrollIntoView({ block: "nearest" });
  }

  showDetail() {
    const i = this.selected;
    const detail = get("detail");
    if (i < 0) {
      detail.replaceChildren(make("h2", { text: "Look around" }), make("p", { class: "quiet", text: this.hint() }), ...this.worst());
      return;
    }
    const rows = [];
    const row = (term, text) => rows.push(make("dt", { text: term }), make("dd", { text }));
    let picture = null;
    if (this.numbers) {
      const { mean, std, observed, residual } = this.now;
      const [low, high] = this.bounds(i);
      picture = intervalBar({ low: this.page.layers[0].limits[0], high: this.page.layers[0].limits[1], mean: mean[i], lower: low, upper: high, observed: observed[i] });
      row("Prediction", this.number(mean[i]));
      row(`${Math.round(100 * this.page.level)} % interval`, withUnit(this.interval(i), this.page.unit));
      row("Standard deviation", this.number(std[i]));
      if (this.page.exceedance) row(`${this.above ? "Above" : "Below"} ${this.number(this.threshold)}`, formatShare(this.above_values[i]));
      row("Observed", this.number(observed[i]));
      if (residual && !Number.isNaN(residual[i])) row("Residual", this.number(residual[i]));
    } else {
      row("Most probable", this.className(this.now.label[i]));
      row("Labelled", this.className(this.now.observed[i]));
      row("Uncertainty", `${formatShare(this.now.entropy[i])} of the maximum`);
      picture = this.probabilityBars(i);
    }
    const notes = this.page.arrays.informed[i] ? [] : [make("p", { class: "warning", text: "This part of the graph has no data: what is shown is the prior." })];
    const close = make("button", { type: "button", class: "close", "aria-label": "Close", text: "×", on: { click: () => this.choose(-1) } });
    detail.replaceChildren(make("h2", {}, make("span", { text: this.nameOf(i) }), close), ...notes, picture, make("dl", {}, ...rows), ...this.series(i));
  }

  hint() {
    const what = this.page.layout.isMap ? "Hover over the map" : "Hover over a node";
    return `${what} for a value and its interval, click to keep it here. Drag to move, scroll or pinch to zoom; with the keyboard: arrows, + and −, 0 for everything.`;
  }

  // The places to look at first.
  worst() {
    const lists = [];
    const add = (title, values, text) => {
      const ranked = rank(values, WORST);
      if (!ranked.length) return;
      const items = ranked.map((i) => make("li", {}, make("button", { type: "button", class: "link", text: this.nameOf(i), on: { click: () => this.choose(i, true) } }), make("span", { text: text(i) })));
      lists.push(make("h3", { text: title }), make("ol", { class: "worst" }, ...items));
    };
    const { now, page } = this;
    if (this.numbers) {
      add("Least certain", now.std.map((one, i) => (page.arrays.informed[i] ? one : NaN)), (i) => `± ${this.number(now.std[i])}`);
      if (now.residual) add("Largest residuals", now.residual.map(Math.abs), (i) => this.number(now.residual[i]));
    } else {
      add("Least certain", now.entropy.map((one, i) => (page.arrays.informed[i] ? one : NaN)), (i) => `${this.className(now.label[i])}, ${formatShare(now.probability[i])}`);
    }
    return lists;
  }

  probabilityBars(i) {
    const list = make("ul", { class: "shares" });
    const shares = this.page.classes.map((name, k) => [name, this.page.arrays.shares[k * this.page.n + i]]);
    for (const [name, share] of shares.sort((a, b) => b[1] - a[1]).slice(0, 8)) {
      const bar = make("span", { class: "bar" });
      bar.style.width = `${100 * share}%`;
      list.append(make("li", {}, make("span", { class: "name", text: name }), make("span", { class: "track" }, bar), make("span", { class: "number", text: formatShare(share) })));
    }
    return list;
  }

  series(i) {
    const { page } = this;
    if (!page.times || page.times.labels.length < 2) return [];
    const [mean, std, observed] = ["mean", "std", "observed"].map((name) => seriesOf(page, name, i));
    const [lower, upper] = [-1, 1].map((sign) => mean.map((one, k) => one + sign * page.z * std[k]));
    return [seriesChart({ times: page.times.numbers, labels: page.times.labels, mean, lower, upper, observed, now: this.time, unit: page.unit, name: this.nameOf(i) })];
  }

  // ------------------------------------------------------------------ controls
  controls() {
    const { page } = this;
    const select = get("layer");
    for (const layer of page.layers) select.append(make("option", { value: layer.key, text: layer.name }));
    select.addEventListener("change", () => this.setLayer(page.layers.find((one) => one.key === select.value)));
    get("rings").addEventListener("change", () => this.repaint());
    get("fade").addEventListener("change", (event) => {
      this.fade = event.target.checked;
      this.repaint();
    });
    get("zoom-in").addEventListener("click", () => this.map.zoom(1.6));
    get("zoom-out").addEventListener("click", () => this.map.zoom(1 / 1.6));
    get("zoom-fit").addEventListener("click", () => this.map.fit());
        makeFinder(get("search"), get("found"), page.names, (i) => this.choose(i, true));
    followHand(get("map"), this.map, { hover: (...where) => this.hover(...where), choose: (i) => this.choose(i) });
    get("filter").addEventListener("input", (event) => this.table.search(event.target.value.trim()));
    get("download").addEventListener("click", () => download(asCsv(this.fileColumns(), this.table.order), page.file, "text/csv"));
    get("theme").addEventListener("click", () => this.turnTheme());
    if (page.exceedance) this.thresholdControl(page.exceedance);
    if (page.times) this.timeControl(page.times);
  }

  thresholdControl({ low, high, step }) {
    const slider = get("threshold-slider");
    Object.assign(slider, { min: low, max: high, step });
    slider.value = this.threshold;
    const say = () => {
      get("threshold-value").textContent = this.number(this.threshold);
      slider.setAttribute("aria-valuetext", this.number(this.threshold));
    };
    const change = () => {
      this.threshold = Number(slider.value);
      this.above = get("side").value === "above";
      say();
      this.exceed();
      this.repaint();
      this.table.refresh();
      this.showDetail();
    };
    slider.addEventListener("input", change);
    get("side").addEventListener("change", change);
    say();
  }

  timeControl({ labels }) {
    get("times").hidden = labels.length < 2;
    const slider = get("time-slider");
    Object.assign(slider, { min: 0, max: labels.length - 1, step: 1, value: 0 });
    const move = (to) => {
      this.time = to;
      slider.value = to;
      slider.setAttribute("aria-valuetext", labels[to]);
      get("time-value").textContent = labels[to];
      if (!this.table) return;
      this.read();
      this.repaint();
      this.table.refresh();
      this.showDetail();
    };
    slider.addEventListener("input", () => move(Number(slider.value)));
    let playing = null;
    const play = get("play");
    play.addEventListener("click", () => {
      if (playing) {
        clearInterval(playing);
        playing = null;
      } else playing = setInterval(() => move((this.time + 1) % labels.length), 700);
      play.textContent = playing ? "❚❚" : "▶";
      play.setAttribute("aria-label", playing ? "Stop" : "Play");
    });
    move(0);
  }

  turnTheme() {
    const dark = !isDark();
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    this.repaint();
  }

  // ------------------------------------------------------------------ table
  columns() {
    const { page } = this;
    const number = (key, label, decimals = page.decimals) => ({
      key,
      label,
      numeric: true,
      value: (i) => this.now?.[key]?.[i] ?? NaN,
      text: (i) => formatNumber(this.now?.[key]?.[i] ?? NaN, decimals),
    });
    const name = { key: "node", label: "Node", numeric: false, value: (i) => page.names[i], text: (i) => page.names[i] };
    const percent = `${Math.round(100 * page.level)} %`;
    if (this.numbers) {
      const end = (key, label, side) => ({ key, label, numeric: true, value: (i) => (this.now ? this.bounds(i)[side] : NaN), text: (i) => formatNumber(this.now ? this.bounds(i)[side] : NaN, page.decimals) });
      const columns = [name, number("mean", "Mean"), number("std", "Std. dev."), end("lower", `${percent} from`, 0), end("upper", "to", 1), number("observed", "Observed")];
      if (page.arrays.residual) columns.push(number("residual", "Residual"));
      if (page.exceedance) columns.push({ key: "exceedance", label: () => `${this.above ? "Above" : "Below"} ${this.number(this.threshold)}`, numeric: true, value: (i) => this.above_values[i], text: (i) => formatShare(this.above_values[i]) });
      return columns;
    }
    const code = (key, label) => ({ key, label, numeric: false, value: (i) => (Number.isNaN(this.now?.[key][i] ?? NaN) ? null : this.className(this.now[key][i])), text: (i) => this.className(this.now?.[key][i] ?? NaN) });
    const share = (key, label) => ({ ...number(key, label), text: (i) => formatShare(this.now?.[key][i] ?? NaN) });
    return [name, code("label", "Class"), share("probability", "Probability"), share("entropy", "Uncertainty"), code("observed", "Labelled")];
  }

  fileColumns() {
    const { page } = this;
    const columns = [...this.table.columns];
    const places = page.arrays.places;
    if (places) page.layout.axes.forEach((key, k) => columns.splice(1 + k, 0, { key, value: (i) => placed(page, i, k) }));
    if (page.times) columns.splice(1, 0, { key: "time", value: () => page.times.labels[this.time] });
    if (!this.numbers) page.classes.forEach((name, k) => columns.push({ key: `p(${name})`, value: (i) => page.arrays.shares[k * page.n + i] }));
    columns.push({ key: "informed", value: (i) => (page.arrays.informed[i] ? "True" : "False") });
    return columns;
  }

  // ------------------------------------------------------------------ the rest of the page
  words() {
    const { page } = this;
    document.title = page.title;
    get("title").textContent = page.title;
    get("subtitle").textContent = page.subtitle;
    get("layout-note").textContent = page.layout.note;
    get("figures").append(...page.figures.map((one) => make("div", { class: "card" }, make("span", { class: "number", text: one.value }), make("span", { class: "label", text: one.label }), one.note ? make("span", { class: "quiet", text: one.note }) : null)));
    get("warnings").append(...page.warnings.map((text) => make("li", { text })));
    get("warnings").hidden = !page.warnings.length;
    get("facts").append(...page.facts.flatMap(([term, text]) => [make("dt", { text: term }), make("dd", { text })]));
    const rows = page.parameters.map((one) => make("tr", {}, make("th", { scope: "row" }, make("span", { text: one.name }), make("span", { class: "quiet", text: one.meaning })), make("td", { class: "numeric", text: one.value }), make("td", { class: "numeric", text: one.interval })));
    get("parameters").append(...rows);
    get("parameters").closest("table").hidden = !rows.length;
    get("made").textContent = page.made;
    get("table-note").textContent = page.times ? "At the time chosen above." : "";
  }

  charts() {
    const { calibration, pit, range } = this.page.checks;
    const put = (id, data, drawn) => {
      get(id).hidden = !data;
      if (data) get(id).prepend(make("h3", { text: data.title }), drawn(data), make("p", { class: "quiet", text: data.words }));
    };
    put("calibration", calibration, calibrationChart);
    put("pit", pit, pitChart);
    put("range", range, rangeChart);
    get("verdict").textContent = this.page.checks.verdict;
    get("trust").hidden = !calibration && !pit && !this.page.checks.verdict;
    get("reach").hidden = !range;
  }
}

const placed = (page, i, k) => page.layout.origin[k] + page.arrays.places[2 * i + k];

const isDark = () => {
  const { theme } = document.documentElement.dataset;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};

// The places of the largest values, NaN left out.
function rank(values, count) {
  const best = [];
  for (let i = 0; i < values.length; i++) {
    if (Number.isNaN(values[i]) || (best.length === count && values[i] <= values[best[count - 1]])) continue;
    let at = best.length;
    while (at > 0 && values[best[at - 1]] < values[i]) at--;
    best.splice(at, 0, i);
    if (best.length > count) best.pop();
  }
  return best;
}

readPage(get("data")).then(
  (page) => {
    window.graphmatern = new Page(page);
    get("waiting").remove();
    document.body.classList.add("ready");
  },
  (error) => {
    get("waiting").textContent = "This page cannot be shown by this browser; use one from 2023 or later.";
    throw error;
  },
);
