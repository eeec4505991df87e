// Lines over time, for comparisons: each policy has a colour, a dash and its name at the end of its line.

import { s } from "./dom.js";
import { palette } from "./map.js";

const DASHES = ["none", "7 4", "2 3", "9 3 2 3"];

const span = (seconds) => (seconds >= 3600 ? `${(seconds / 3600).toFixed(1).replace(/\.0$/, "")} h` : seconds >= 120 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds)} s`);

const fitting = (name, room) => (name.length > room ? `…${name.slice(1 - room)}` : name);

export function chart(curves, width = 640, height = 220) {
  const colours = palette();
  const names = Object.keys(curves.series);
  const beside = Math.min(width / 2.4, 44 + 7 * Math.max(6, ...names.map((name) => name.length)));
  const [left, right, top, bottom] = [52, width - beside, 30, height - 28];
  const x = (time) => left + ((right - left) * time) / curves.duration;
  const y = (value) => bottom - (bottom - top) * Math.min(1, curves.top ? value / curves.top : 0);
  const told = (attributes, words) => s("text", { fill: colours.text, "font-size": 12, ...attributes }, words);
  const parts = [told({ x: left, y: 18, "font-weight": 600 }, curves.title)];
  for (let step = 0; step <= 4; step++) {
    const value = (curves.top * step) / 4;
    parts.push(s("path", { d: `M${left} ${y(value)}H${right}`, stroke: colours.line, "stroke-opacity": 0.4 }));
    parts.push(told({ x: left - 6, y: y(value) + 4, "text-anchor": "end" }, `${Math.round(value * 10) / 10}${curves.unit}`));
  }
  parts.push(told({ x: left, y: bottom + 18 }, "0"), told({ x: right, y: bottom + 18, "text-anchor": "end" }, span(curves.duration)));
  Object.entries(curves.series).forEach(([name, points], index) => {
    const corners = points.flatMap(([time, value], at) => [[time, value], [points[at + 1]?.[0] ?? curves.duration, value]]);
    const d = corners.map(([time, value]) => `${x(time).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
    const colour = colours.owners[index % 8];
    parts.push(s("polyline", { points: d, fill: "none", stroke: colour, "stroke-width": 2, "stroke-dasharray": DASHES[index % 4] }));
    parts.push(s("path", { d: `M${right + 8} ${top + 6 + 18 * index}h22`, stroke: colour, "stroke-width": 2, "stroke-dasharray": DASHES[index % 4] }));
    parts.push(told({ x: right + 34, y: top + 10 + 18 * index }, fitting(name, (beside - 40) / 6.6)));
  });
  const label = `${curves.title} over ${span(curves.duration)}, for ${Object.keys(curves.series).join(" and ")}`;
  return s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label, "font-family": "system-ui, sans-serif", class: "chart" }, ...parts);
}
