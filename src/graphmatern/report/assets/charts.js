// Small charts, drawn as SVG. Colours and sizes of text are in the style sheet.

import { draw, formatNumber, roundTicks, tickDecimals } from "./format.js";

// Axes with a frame of round ticks; `marks` draws into them through the two scales.
export function chart({ width = 360, height = 270, x, y, label, marks }) {
  const room = { left: 52, right: 14, top: 12, bottom: 44 };
  const sx = (value) => room.left + ((value - x.low) / (x.high - x.low || 1)) * (width - room.left - room.right);
  const sy = (value) => height - room.bottom - ((value - y.low) / (y.high - y.low || 1)) * (height - room.top - room.bottom);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, class: "chart" });
  const axes = draw("g", { class: "axes" });
  const xTicks = x.ticks || roundTicks(x.low, x.high, 5).map((at) => [at, null]);
  const places = tickDecimals(xTicks.map(([at]) => at));
  for (const [at, text] of xTicks) {
    axes.append(draw("line", { x1: sx(at), x2: sx(at), y1: height - room.bottom, y2: height - room.bottom + 4 }));
    const anchor = text && at === x.high ? "end" : text && at === x.low ? "start" : "middle";
    axes.append(draw("text", { x: sx(at), y: height - room.bottom + 17, "text-anchor": anchor, text: text ?? formatNumber(at, places) }));
  }
  const yTicks = roundTicks(y.low, y.high, 5);
  for (const at of yTicks) {
    axes.append(draw("line", { class: "grid", x1: room.left, x2: width - room.right, y1: sy(at), y2: sy(at) }));
    axes.append(draw("text", { x: room.left - 7, y: sy(at) + 4, "text-anchor": "end", text: formatNumber(at, tickDecimals(yTicks)) }));
  }
  axes.append(draw("line", { x1: room.left, x2: width - room.right, y1: height - room.bottom, y2: height - room.bottom }));
  axes.append(draw("text", { class: "name", x: (room.left + width - room.right) / 2, y: height - 6, "text-anchor": "middle", text: x.name }));
  const middle = (room.top + height - room.bottom) / 2;
  axes.append(draw("text", { class: "name", transform: `translate(13 ${middle}) rotate(-90)`, "text-anchor": "middle", text: y.name }));
  svg.append(axes);
  marks(svg, sx, sy);
  return svg;
}

const path = (xs, ys, sx, sy) => {
  let text = "";
  let open = false;
  for (let k = 0; k < xs.length; k++) {
    if (Number.isNaN(ys[k])) {
      open = false;
      continue;
    }
    text += `${open ? "L" : "M"}${sx(xs[k]).toFixed(2)} ${sy(ys[k]).toFixed(2)}`;
    open = true;
  }
  return text;
};

const band = (xs, low, high, sx, sy) => {
  const forth = path(xs, low, sx, sy);
  const back = path([...xs].reverse(), [...high].reverse(), sx, sy);
  return `${forth}${back.replace("M", "L")}Z`;
};

export function calibrationChart({ level, inside, low, high, x, y }) {
  return chart({
    x: { low: 0, high: 1, name: x },
    y: { low: 0, high: 1, name: y },
    label: "How often left-out values lie in their intervals, against how often they should",
    marks: (svg, sx, sy) => {
      svg.append(draw("path", { class: "band", d: band(level, low, high, sx, sy) }));
      svg.append(draw("path", { class: "ideal", d: path([0, 1], [0, 1], sx, sy) }));
      svg.append(draw("path", { class: "line", d: path(level, inside, sx, sy) }));
    },
  });
}

export function pitChart({ counts, low, high, expected }) {
  const top = 1.12 * Math.max(high, ...counts);
  return chart({
    x: { low: 0, high: 1, name: "where the value fell in its prediction (PIT)" },
    y: { low: 0, high: top, name: "values" },
    label: "Histogram of probability integral transforms: flat if predictions are calibrated",
    marks: (svg, sx, sy) => {
      svg.append(draw("rect", { class: "band", x: sx(0), width: sx(1) - sx(0), y: sy(high), height: sy(low) - sy(high) }));
      counts.forEach((count, k) => {
        const [left, right] = [sx(k / counts.length), sx((k + 1) / counts.length)];
        svg.append(draw("rect", { class: "bar", x: left + 1, width: right - left - 2, y: sy(count), height: sy(0) - sy(count) }));
      });
      svg.append(draw("path", { class: "ideal", d: path([0, 1], [expected, expected], sx, sy) }));
    },
  });
}

export function rangeChart({ distance, low, median, high, name }) {
  const lowest = Math.min(0, ...low);
  return chart({
    width: 560,
    x: { low: 0, high: distance[distance.length - 1], name },
    y: { low: Math.max(-1, Math.floor(lowest * 5) / 5), high: 1, name: "correlation" },
    label: "How the correlation of two nodes falls with the distance between them",
    marks: (svg, sx, sy) => {
      svg.append(draw("path", { class: "band accent", d: band(distance, low, high, sx, sy) }));
      svg.append(draw("path", { class: "line", d: path(distance, median, sx, sy) }));
    },
  });
}

// One node over time: mean in its band, observations as dots, a line at the time shown.
export function seriesChart({ times, labels, mean, lower, upper, observed, now, unit, name }) {
  const known = [...lower, ...upper, ...observed].filter((one) => !Number.isNaN(one));
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const room = 0.06 * (high - low || 1);
  const [first, last] = [times[0], times[times.length - 1]];
  return chart({
    width: 320,
    height: 190,
    x: { low: first, high: last === first ? first + 1 : last, name: "", ticks: [[first, labels[0]], [last, labels[labels.length - 1]]] },
    y: { low: low - room, high: high + room, name: unit || "value" },
    label: `Prediction over time at ${name}`,
    marks: (svg, sx, sy) => {
      svg.append(draw("line", { class: "now", x1: sx(times[now]), x2: sx(times[now]), y1: sy(low - room), y2: sy(high + room) }));
      svg.append(draw("path", { class: "band accent", d: band(times, lower, upper, sx, sy) }));
      svg.append(draw("path", { class: "line", d: path(times, mean, sx, sy) }));
      times.forEach((at, k) => {
        if (!Number.isNaN(observed[k])) svg.append(draw("circle", { class: "dot", cx: sx(at), cy: sy(observed[k]), r: 2.6 }));
      });
    },
  });
}

// An interval as a line with its mean, on the scale of all predictions; what was observed as a dot.
export function intervalBar({ low, high, mean, lower, upper, observed }) {
  const [width, height, edge] = [280, 30, 8];
  const from = Math.min(low, lower, Number.isNaN(observed) ? low : observed);
  const to = Math.max(high, upper, Number.isNaN(observed) ? high : observed);
  const sx = (value) => edge + ((value - from) / (to - from || 1)) * (width - 2 * edge);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, class: "interval", "aria-hidden": "true" });
  svg.append(draw("line", { class: "track", x1: edge, x2: width - edge, y1: 15, y2: 15 }));
  svg.append(draw("line", { class: "span", x1: sx(lower), x2: sx(upper), y1: 15, y2: 15 }));
  svg.append(draw("line", { class: "mean", x1: sx(mean), x2: sx(mean), y1: 5, y2: 25 }));
  if (!Number.isNaN(observed)) svg.append(draw("circle", { class: "dot", cx: sx(observed), cy: 15, r: 4.5 }));
  return svg;
}
