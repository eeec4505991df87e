// A machine as a drawing: socket, NUMA node, cache, core, thread. An owner has a colour, a pattern and a letter.

import { bytes, cpuList, h, s } from "./dom.js";

const [SMALLEST, LARGEST] = [17, 27]; // pixels of a thread; as large as the longest row of cores lets it be
const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const SIGNS = { shared: "", reserved: "#", isolated: "!", offline: "×" };
const THEMES = {
  light: { text: "#1b2733", faint: "#5b6875", line: "#9aa7b3", box: "#f4f6f8", paper: "#ffffff", free: "#e3e9ee", lit: "#000000",
    owners: ["#0072b2", "#a63c00", "#00664a", "#8f3f6c", "#7a5200", "#1f5f86", "#5b2a86", "#5e4a12"] },
  dark: { text: "#e6edf3", faint: "#9fb0bf", line: "#566574", box: "#18222c", paper: "#111921", free: "#2a3743", lit: "#ffffff",
    owners: ["#56b4e9", "#f0883e", "#3fc49a", "#e69ac4", "#e6b422", "#9ecbff", "#c8a5f0", "#d4c27a"] },
};

export const palette = () => {
  const chosen = document.documentElement.dataset.theme;
  const dark = chosen === "dark" || (chosen !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  return dark ? THEMES.dark : THEMES.light;
};

/** Letters and colours of owners, in the order of their first CPUs. */
export function signs(owners) {
  const found = new Map();
  const first = (owner) => cpuList(owner.cpus)[0] ?? Infinity;
  const named = owners.filter((one) => one.how !== "sharing" && !(one.how in SIGNS)).sort((a, b) => first(a) - first(b));
  named.forEach((owner, index) => found.set(owner.name, { sign: LETTERS[index] ?? "*", colour: index % 8 }));
  for (const owner of owners) if (owner.how in SIGNS) found.set(owner.name, { sign: SIGNS[owner.how], colour: null });
  return found;
}

function patterns(colours, prefix) {
  const cross = (id, ...lines) =>
    s("pattern", { id: `${prefix}-${id}`, width: 6, height: 6, patternUnits: "userSpaceOnUse" },
      s("rect", { width: 6, height: 6, fill: colours.free }), ...lines.map((d) => s("path", { d, stroke: colours.line, "stroke-width": 1.4 })));
  const pools = colours.owners.map((colour, index) =>
    s("pattern", { id: `${prefix}-pool-${index}`, width: 5, height: 5, patternUnits: "userSpaceOnUse" },
      s("rect", { width: 5, height: 5, fill: colours.paper }), s("rect", { width: 5, height: 5, fill: colour, "fill-opacity": 0.18 }), s("path", { d: "M0 1H5", stroke: colour, "stroke-opacity": 0.8 })));
  return s("defs", {}, cross("reserved", "M0 6L6 0"), cross("isolated", "M0 6L6 0", "M0 0L6 6"), ...pools);
}

/** The text twin of a tile, and what a pointer shows. */
function words(cpu, place, owner, sharers) {
  const who = owner ? `${owner.name} (${owner.how})` : "nobody";
  const shared = owner?.how === "shared" && sharers.length ? `; shared by ${sharers.join(", ")}` : "";
  return `CPU ${cpu}: ${who}${shared}; core ${place.core}, cache ${place.cache}, NUMA ${place.numa}, socket ${place.socket}`;
}

/** Draws a layout once, then only what changes. */
export class MachineMap {
  constructor(name) {
    this.name = name;
    this.element = h("div", { class: "map" });
    this.tiles = new Map();
    this.drawn = "";
  }

  get drawing() {
    return this.element.querySelector("svg");
  }

  /** `lit` are the CPUs to light, empty: none is dimmed. `marks` are the letters, where they are those of another map. */
  update(layout, owners, lit = new Set(), marks = signs(owners)) {
    const width = Math.max(300, this.element.clientWidth || 900);
    const key = JSON.stringify([layout, width, palette().paper]);
    if (key !== this.drawn) {
      this.drawn = key;
      this.layOut(layout, width);
    }
    const of = new Map();
    for (const owner of owners) if (owner.how !== "sharing") for (const cpu of cpuList(owner.cpus)) of.set(cpu, owner);
    const sharers = owners.filter((one) => one.how === "sharing").map((one) => [one.name, new Set(cpuList(one.cpus))]);
    const drift = new Set(owners.flatMap((one) => cpuList(one.drift)));
    for (const [cpu, tile] of this.tiles) {
      const owner = of.get(cpu);
      const also = sharers.filter(([, cpus]) => cpus.has(cpu)).map(([name]) => name);
      this.paint(tile, cpu, owner, marks.get(owner?.name), lit, also, drift.has(cpu));
    }
    const counted = owners.filter((one) => one.how !== "sharing").map((one) => `${one.name}: ${one.count}`);
    this.drawing.setAttribute("aria-label", `Map of ${this.name}, ${layout.cpus} CPUs. ${counted.join(", ")}`);
  }

  paint(tile, cpu, owner, mark, lit, sharers, drifts) {
    const colours = palette();
    const how = owner?.how ?? "shared";
    const solid = how === "exclusive" ? colours.owners[mark.colour] : null;
    const fill = solid ?? { shared: colours.free, offline: "none", reserved: `url(#${this.name}-reserved)`, isolated: `url(#${this.name}-isolated)` }[how]
      ?? `url(#${this.name}-pool-${mark.colour})`;
    const dim = lit.size && !lit.has(cpu);
    const state = [fill, mark?.sign, how, dim, lit.has(cpu), owner?.name, sharers.join(), drifts].join("|");
    if (tile.state === state) return;
    tile.state = state;
    const outline = lit.has(cpu) ? colours.lit : how === "exclusive" ? fill : colours.line;
    const attributes = { fill, stroke: outline, "stroke-width": lit.has(cpu) ? 2 : 1, "stroke-dasharray": how === "offline" ? "2 2" : "none" };
    for (const [name, value] of Object.entries(attributes)) tile.box.setAttribute(name, value);
    tile.group.setAttribute("opacity", dim ? 0.35 : 1);
    tile.group.dataset.owner = owner?.name ?? "";
    tile.group.dataset.how = how;
    tile.group.dataset.lit = lit.has(cpu) ? "yes" : "no";
    tile.letter.textContent = drifts ? "≠" : (mark?.sign ?? "");
    tile.letter.setAttribute("fill", solid ? colours.paper : colours.text);
    tile.letter.setAttribute("stroke", solid || !mark?.sign ? "none" : colours.paper); // lines must not run through letters
    tile.title.textContent = words(cpu, tile.place, owner, sharers);
    tile.target = owner?.pod ? `#/pods/${encodeURIComponent(owner.namespace)}/${encodeURIComponent(owner.pod)}` : "";
    tile.group.classList.toggle("goes", Boolean(tile.target));
  }

  layOut(layout, width) {
    const colours = palette();
    this.tiles.clear();
    this.size = tileSize(layout, width);
    const parts = [patterns(colours, this.name)];
    let y = 0;
    for (const socket of layout.sockets) {
      parts.push(text(0, y + 14, socket.id < 0 ? "memory without CPUs" : `socket ${socket.id}`, colours.text, 13, true));
      y += 22;
      for (const numa of socket.numa) y += this.numa(parts, numa, socket.id, y, width, colours) + 10;
      y += 4;
    }
    const offline = cpuList(layout.offline);
    if (offline.length) {
      parts.push(text(0, y + 14, "offline", colours.text, 13, true));
      y += 22;
      const step = this.size + 3;
      const room = Math.max(1, Math.floor(width / step));
      offline.forEach((cpu, index) => parts.push(this.tile(cpu, (index % room) * step, y + Math.floor(index / room) * step,
        { core: "?", cache: "?", numa: "?", socket: "?" })));
      y += Math.ceil(offline.length / room) * step + 6;
    }
    const drawing = s("svg", { width, height: y, viewBox: `0 0 ${width} ${y}`, role: "img", "font-family": "system-ui, sans-serif" }, ...parts);
    drawing.addEventListener("click", (event) => {
      const cpu = event.target.closest("[data-cpu]");
      const target = cpu && this.tiles.get(Number(cpu.dataset.cpu)).target;
      if (target) location.hash = target;
    });
    this.element.replaceChildren(drawing);
  }

  numa(parts, numa, socket, top, width, colours) {
    const pages = numa.hugepages.filter((one) => one.count).map((one) => `${one.count} × ${bytes(one.sizeBytes)} pages`);
    const devices = numa.devices.map((one) => `${one.kind} ${one.name}`);
    const free = numa.freeBytes === null ? "" : `${bytes(numa.freeBytes)} of `;
    const label = [`NUMA ${numa.id}`, `${free}${bytes(numa.memoryBytes)}${free ? " free" : ""}`, ...pages, ...devices].join("  ·  ");
    const box = s("rect", { x: 0.5, y: top + 0.5, width: width - 1, rx: 6, fill: colours.box, stroke: colours.line });
    parts.push(box, text(10, top + 18, label, colours.faint, 12));
    let x = 10;
    let y = top + 28;
    let row = 0;
    const { size } = this;
    for (const cache of numa.caches) {
      const threads = Math.max(...cache.cores.map((core) => core.cpus.length));
      const step = threads * size + 5;
      const room = Math.max(1, Math.floor((width - 32) / step));
      const columns = Math.min(cache.cores.length, room);
      const lines = Math.ceil(cache.cores.length / columns);
      const wide = columns * step + 7;
      if (x > 10 && x + wide > width - 10) {
        x = 10;
        y += row + 8;
        row = 0;
      }
      const high = lines * (size + 5) + 20;
      parts.push(s("rect", { x: x + 0.5, y: y + 0.5, width: wide, height: high, rx: 4, fill: "none", stroke: colours.line, "stroke-dasharray": "3 3" }));
      const kinds = new Set(cache.cores.map((core) => core.kind));
      parts.push(text(x + 5, y + 13, `L3 ${cache.id}${kinds.has("efficiency") ? (kinds.size > 1 ? ", mixed cores" : ", efficiency cores") : ""}`, colours.faint, 10));
      cache.cores.forEach((core, index) => {
        const left = x + 5 + (index % columns) * step;
        const above = y + 18 + Math.floor(index / columns) * (size + 5);
        core.cpus.forEach((cpu, thread) =>
          parts.push(this.tile(cpu, left + thread * size, above, { core: core.id, cache: cache.id, numa: numa.id, socket })));
      });
      x += wide + 8;
      row = Math.max(row, high);
    }
    const height = y + row + 10 - top;
    box.setAttribute("height", height);
    return height;
  }

  tile(cpu, x, y, place) {
    const { size } = this;
    const box = s("rect", { x: x + 0.5, y: y + 0.5, width: size - 1, height: size - 1, rx: 2 });
    const letter = s("text", { x: x + size / 2, y: y + size / 2 + 4, "text-anchor": "middle", "font-size": 11, "font-weight": 600, "stroke-width": 3, "paint-order": "stroke" });
    const title = s("title", {});
    const group = s("g", { "data-cpu": cpu }, title, box, letter);
    this.tiles.set(cpu, { box, letter, title, group, place, target: "", state: "" });
    return group;
  }
}

function tileSize(layout, width) {
  const caches = layout.sockets.flatMap((socket) => socket.numa.flatMap((numa) => numa.caches));
  const fits = caches.map(({ cores }) => (width - 40 - 5 * cores.length) / (cores.length * Math.max(...cores.map((core) => core.cpus.length))));
  return Math.max(SMALLEST, Math.min(LARGEST, Math.floor(Math.min(...fits))));
}

function text(x, y, words, fill, size, bold = false) {
  return s("text", { x, y, fill, "font-size": size, "font-weight": bold ? 600 : 400 }, words);
}

/** What the patterns mean, for a page. */
export function legend() {
  const one = (kind, words) => h("li", {}, h("span", { class: `swatch ${kind}`, "aria-hidden": "true" }), words);
  return h("ul", { class: "legend" }, one("exclusive", "A, B …: a container's own"), one("pool", "lines: a pool"), one("shared", "plain: shared"),
    one("reserved", "#: reserved"), one("isolated", "!: isolated"), one("offline", "×: offline"), h("li", {}, "≠: the kernel says otherwise"));
}
