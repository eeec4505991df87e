// The plan that brings a node's free CPUs together, as a before and after: who moves, what is gained, who stays and why.

import { copyable, csvButton, cpuList, h, panel, podLink, put, savable, svgButton, table } from "./dom.js";
import { MachineMap, signs } from "./map.js";

const MOVE_COLUMNS = [
  ["Container", (one) => [podLink(one.namespace, one.pod), `/${one.container}`], (one) => `${one.namespace}/${one.pod}/${one.container}`],
  ["CPUs", (one) => String(one.cpus)],
  ["From", (one) => `${one.fromCpus} (NUMA ${one.fromNuma})`],
  ["To", (one) => `${one.toCpus} (NUMA ${one.toNuma})`],
];
const number = (value) => (Number.isInteger(value) ? String(value) : value.toFixed(2));
const MEASURE_COLUMNS = [["Measure", (one) => one.what], ["Before", (one) => number(one.now)], ["After", (one) => number(one.then)]];
const STAY_COLUMNS = [["Stays", (one) => one.what], ["Because", (one) => one.because]];

/** A panel with both maps; `update(layout, owners, plan)` draws, `failed(problem)` says why there is no plan. */
export class DefragPanel {
  constructor(name) {
    this.maps = { before: new MachineMap(`${name}-before`), after: new MachineMap(`${name}-after`) };
    this.answer = h("div");
    this.tables = h("div", { class: "two" });
    this.foot = h("div");
    this.pictures = h("div", { class: "two", hidden: true }, Object.entries(this.maps).map(([when, map]) => h("div", {}, h("h3", {}, when === "before" ? "Before" : "After"), map.element)));
    this.told = null;
    const tools = [...Object.entries(this.maps).map(([when, map]) => svgButton(`defrag-${when}-${name}`, () => map.drawing, `SVG ${when}`)), csvButton(`defrag-${name}`, MOVE_COLUMNS, () => this.told?.plan.moves ?? [])];
    this.element = panel("Defragmentation", { command: `kubeqos defrag ${name}`, wide: true, tools }, this.answer, this.pictures, this.tables, this.foot);
    this.pictureTools = [...this.element.querySelectorAll(".tools button")].slice(0, 2);
    new ResizeObserver(() => this.draw()).observe(this.pictures);
  }

  update(layout, owners, plan) {
    this.told = { layout, owners, plan };
    const moving = plan.moves.length > 0;
    for (const part of [this.pictures, ...this.pictureTools]) part.hidden = !moving;
    const who = plan.moves.length === 1 ? "One container moves" : `${plan.moves.length} containers move`;
    put(this.answer, h("p", {}, moving ? `${who}, and the free CPUs lie closer together.` : "Nobody need move."));
    put(this.tables, h("div", {}, moving && table("Who moves", MOVE_COLUMNS, plan.moves), plan.staying.length > 0 && savable("defrag-stays", "Who stays", STAY_COLUMNS, plan.staying)), savable("defrag-gained", "What is gained", moving ? MEASURE_COLUMNS : MEASURE_COLUMNS.slice(0, 2), plan.measures));
    put(this.foot, moving && (plan.cannotApply ? h("p", { class: "none" }, `It cannot be applied: ${plan.cannotApply}.`) : copyable(plan.commands.apply)));
    this.draw();
  }

  failed(problem) {
    for (const part of [this.pictures, ...this.pictureTools]) part.hidden = true;
    put(this.tables);
    put(this.foot);
    put(this.answer, h("p", { class: "none" }, problem.message));
  }

  /** The same letters in both, so that an owner can be followed from one to the other; who moves is lit. */
  draw() {
    if (!this.told?.layout || this.pictures.hidden) return;
    const { layout, owners, plan } = this.told;
    const marks = signs(owners);
    const lit = (member) => new Set(plan.moves.flatMap((one) => cpuList(one[member])));
    this.maps.before.update(layout, owners, lit("fromCpus"), marks);
    this.maps.after.update(layout, plan.owners, lit("toCpus"), marks);
  }
}
