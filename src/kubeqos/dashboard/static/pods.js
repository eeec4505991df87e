// A list of pods, to find one.

import { csvButton, h, link, panel, put, table } from "./dom.js";
import { ask } from "./live.js";
import { POD_COLUMNS } from "./node.js";

const COLUMNS = [...POD_COLUMNS, ["Node", (one) => (one.node ? link(`nodes/${one.node}`, one.node) : one.reason || "none"), (one) => one.node]];

export function podsView(place, at, failed) {
  const filter = h("input", { type: "search", id: "filter", placeholder: "namespace or name" });
  const found = h("div");
  let rows = [];
  let asked = 0;
  put(place, h("h1", {}, "Pods"),
    panel("All pods", { command: "kubectl get pods -A -o wide", wide: true, tools: [csvButton("pods", COLUMNS, () => rows)] }, h("div", { class: "controls" }, h("label", { for: "filter" }, "Filter"), filter), found));
  const read = async () => {
    const mine = ++asked;
    try {
      const told = await ask(`pods?text=${encodeURIComponent(filter.value)}${at ? `&at=${at}` : ""}`);
      if (mine !== asked) return;
      rows = Object.values(told.pods);
      put(found, table("Pods", COLUMNS, rows), told.total > rows.length && h("p", {}, `${rows.length} of ${told.total} pods are shown; filter for others.`));
    } catch (problem) {
      failed(problem);
    }
  };
  filter.addEventListener("input", read);
  read();
  const again = at ? 0 : setInterval(read, 2000);
  return () => clearInterval(again);
}
