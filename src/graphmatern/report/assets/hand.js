// Mouse, fingers and keys on the map.

export function followHand(element, map, { hover, choose }) {
  const down = new Map();
  let moved = 0;
  let spread = 0;

  const place = (event) => {
    const box = map.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const fingers = () => {
    const [a, b] = [...down.values()];
    return { x: (a[0] + b[0]) / 2, y: (a[1] + b[1]) / 2, apart: Math.hypot(a[0] - b[0], a[1] - b[1]) };
  };

  element.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    down.set(event.pointerId, place(event));
    element.setPointerCapture(event.pointerId);
    moved = down.size > 1 ? 99 : 0;
    if (down.size === 2) spread = fingers().apart;
  });
  element.addEventListener("pointermove", (event) => {
    const [px, py] = place(event);
    const last = down.get(event.pointerId);
    if (!last) {
      hover(map.pick(px, py), px, py);
      return;
    }
    down.set(event.pointerId, [px, py]);
    if (down.size === 2) {
      const { x, y, apart } = fingers();
      map.pan((px - last[0]) / 2, (py - last[1]) / 2);
      if (spread > 0) map.zoom(apart / spread, x, y);
      spread = apart;
      return;
    }
    moved += Math.hypot(px - last[0], py - last[1]);
    if (moved > 4) {
      hover(-1);
      element.classList.add("moving");
      map.pan(px - last[0], py - last[1]);
    }
  });
  const release = (event) => {
    if (!down.delete(event.pointerId)) return;
    element.classList.remove("moving");
    if (event.type === "pointerup" && moved <= 4) choose(map.pick(...place(event)));
  };
  element.addEventListener("pointerup", release);
  element.addEventListener("pointercancel", release);
  element.addEventListener("pointerleave", () => hover(-1));
  element.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      const lines = event.deltaMode === 1 ? 16 : 1;
      map.zoom(Math.exp(-0.0016 * Math.max(-240, Math.min(240, event.deltaY * lines))), ...place(event));
    },
    { passive: false },
  );
  element.addEventListener("dblclick", (event) => map.zoom(2, ...place(event)));
  element.addEventListener("keydown", (event) => {
    const step = 60;
    const acts = {
      ArrowLeft: () => map.pan(step, 0),
      ArrowRight: () => map.pan(-step, 0),
      ArrowUp: () => map.pan(0, step),
      ArrowDown: () => map.pan(0, -step),
      "+": () => map.zoom(1.5),
      "=": () => map.zoom(1.5),
      "-": () => map.zoom(1 / 1.5),
      0: () => map.fit(),
      Enter: () => choose(nearest(map)),
      Escape: () => choose(-1),
    };
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in acts)) return;
    event.preventDefault();
    acts[event.key]();
  });
}

// The node nearest to the middle of the window.
function nearest(map) {
  let [best, found] = [Infinity, -1];
  for (let i = 0; i < map.x.length; i++) {
    const d = (map.x[i] - map.view.x) ** 2 + (map.y[i] - map.view.y) ** 2;
    if (d < best) [best, found] = [d, i];
  }
  return found;
}
