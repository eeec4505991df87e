// How full every node is: a box per node, filled from below as far as it is used. A few are a drawing with names; many are
// a canvas, which draws thousands in the time in which a drawing lays out hundreds (bench/dashboard.py: 60 and 5,000).

import { h, s } from "./dom.js";
import { palette } from "./map.js";

const MOST_DRAWN = 400;

export class HeatMap {
  constructor() {
    this.element = h("div", { class: "heat" });
    this.boxes = new Map();
    this.names = null;
    this.key = "";
  }

  /** `names` is the same array as long as the nodes are; `measure(row)` is [share or null, text]. Unchanged rows cost nothing. */
  update(names, rows, title, measure) {
    const width = Math.max(280, this.element.clientWidth || 900);
    const key = [width, palette().paper, title].join("|");
    if (key !== this.key || names !== this.names) {
      [this.key, this.names] = [key, names];
      this.boxes.clear();
      this.place(names, width, title);
    }
    for (const name of names) {
      const box = this.boxes.get(name);
      if (box.row === rows[name]) continue;
      box.row = rows[name];
      (this.canvas ? this.fill : this.draw).call(this, box, name, ...measure(box.row));
    }
  }

  place(nodes, width, title) {
    const many = nodes.length > MOST_DRAWN;
    const [wide, high] = many ? [11, 15] : nodes.length > 80 ? [40, 34] : [104, 52];
    const columns = Math.max(1, Math.floor(width / wide));
    const height = Math.ceil(nodes.length / columns) * high + 2;
    const label = `${title} of ${nodes.length} nodes; the table below says the same`;
    nodes.forEach((name, index) =>
      this.boxes.set(name, { x: (index % columns) * wide, y: Math.floor(index / columns) * high, wide: wide - 3, high: high - 3, row: null }));
    this.columns = columns;
    if (many) {
      this.canvas = h("canvas", { role: "img", "aria-label": label, class: "goes" });
      const scale = devicePixelRatio || 1;
      this.canvas.width = width * scale;
      this.canvas.height = height * scale;
      this.canvas.style.width = `${width}px`;
      this.canvas.style.height = `${height}px`;
      this.pen = this.canvas.getContext("2d");
      this.pen.scale(scale, scale);
      const found = (event) => {
        const at = Math.floor(event.offsetY / high) * columns + Math.floor(event.offsetX / wide);
        return event.offsetX < columns * wide ? nodes[at] : undefined;
      };
      this.canvas.addEventListener("mousemove", (event) => (this.canvas.title = this.boxes.get(found(event))?.told ?? ""));
      this.canvas.addEventListener("click", (event) => found(event) && (location.hash = `#/nodes/${encodeURIComponent(found(event))}`));
      this.element.replaceChildren(this.canvas);
    } else {
      this.canvas = null;
      const parts = nodes.map((name) => this.made(this.boxes.get(name), name, wide > 50));
      this.element.replaceChildren(
        s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, "font-family": "system-ui, sans-serif" }, ...parts));
    }
  }

  made(box, name, named) {
    const colours = palette();
    const { x, y, wide, high } = box;
    box.level = s("rect", { x: x + 1, width: wide, fill: colours.owners[0], "fill-opacity": 0.35 });
    box.number = s("text", { x: x + 8, y: y + high - 10, "font-size": 12, "font-weight": 600, fill: colours.text });
    box.title = s("title", {});
    box.outline = s("rect", { x: x + 1, y: y + 1, width: wide, height: high, rx: 3, fill: "none", stroke: colours.line });
    const short = name.length > 13 ? `${name.slice(0, 12)}…` : name;
    const group = s("g", { class: "goes", "data-node": name }, box.title,
      s("rect", { x: x + 1, y: y + 1, width: wide, height: high, rx: 3, fill: colours.free }), box.level, box.outline,
      named && s("text", { x: x + 8, y: y + 18, "font-size": 12, fill: colours.text }, short), box.number);
    group.addEventListener("click", () => (location.hash = `#/nodes/${encodeURIComponent(name)}`));
    return group;
  }

  draw(box, name, share, text) {
    const colours = palette();
    const level = (box.high - 1) * Math.min(1, share ?? 0);
    box.level.setAttribute("y", box.y + 1 + box.high - level);
    box.level.setAttribute("height", level);
    box.level.setAttribute("fill-opacity", share >= 0.8 ? 0.6 : 0.35);
    box.outline.setAttribute("stroke", share >= 1 ? colours.lit : colours.line);
    box.outline.setAttribute("stroke-width", share >= 1 ? 2 : 1);
    box.number.textContent = share === null ? "–" : `${Math.round(share * 100)} %`;
    box.title.textContent = `${name}: ${text}`;
  }

  fill(box, name, share, text) {
    const colours = palette();
    const { x, y, wide, high } = box;
    this.pen.clearRect(x, y, wide + 3, high + 3);
    this.pen.fillStyle = colours.free;
    this.pen.fillRect(x + 1, y + 1, wide, high);
    const level = high * Math.min(1, share ?? 0);
    this.pen.fillStyle = colours.owners[0];
    this.pen.fillRect(x + 1, y + 1 + high - level, wide, level);
    box.told = `${name}: ${text}`;
  }
}
